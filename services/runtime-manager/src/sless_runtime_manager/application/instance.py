"""One instance, from its start (or its adoption) to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sless_platform import telemetry, tracing
from sless_platform.errors import PlatformError, Unavailable
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger

from sless_runtime_manager.application import explain
from sless_runtime_manager.application.fate import End, Fate, was_taken_away
from sless_runtime_manager.application.lines import LineCutter
from sless_runtime_manager.application.tools import Tools
from sless_runtime_manager.application.waiting import abandon, first
from sless_runtime_manager.domain import ServingInstance
from sless_runtime_manager.errors import HandlerNotLoaded, InstanceUnreachable, MemoryExhausted
from sless_runtime_manager.planning import Replica, Stage
from sless_runtime_manager.ports import (
    InstanceEnded,
    InstanceHandle,
    InstanceLink,
    InstanceOutput,
    InstanceSpec,
    LogLine,
)

log = get_logger(__name__)


class _NeverReadyError(Exception):
    """The instance's life ended before it was ready."""

    def __init__(self, end: End) -> None:
        super().__init__(end.message)
        self.end = end


class Instance:
    """One instance. `live` is its whole life, run as a task by its owner; the other methods are called meanwhile.

    `on_change` is called when it can be reached, when `stage` has changed, and at last when `end` is set.
    """

    def __init__(
        self,
        start: InstanceSpec | InstanceHandle,
        *,
        memory_mb: int | None,
        tools: Tools,
        patience: Callable[[], timedelta],
        on_change: Callable[[Instance], None],
    ) -> None:
        """`start`: what to start, or what runs already. `patience`: how long calls that run may take when it has to go."""
        self.instance_id = start.instance_id
        self.function_uid = start.function_uid
        self.template = start.template
        self.generation = start.generation
        self.stage = Stage.STARTING
        self.end: End | None = None
        self.started_at: datetime = start.started_at if isinstance(start, InstanceHandle) else tools.clock()
        self.ready_at: datetime | None = None
        self._start = start
        self._adopted = isinstance(start, InstanceHandle)
        self._memory_mb = memory_mb
        self._tools = tools
        self._patience = patience
        self._on_change = on_change
        self._address = ""
        self._max_concurrency = start.max_concurrency
        self._lines = LineCutter()
        loop = asyncio.get_running_loop()
        self._departure: asyncio.Future[int] = loop.create_future()
        self._hurried: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[InstanceEnded] = loop.create_future()

    @property
    def replica(self) -> Replica:
        """What planning needs of it."""
        return Replica(
            instance_id=self.instance_id, template=self.template, stage=self.stage, started_at=self.started_at
        )

    @property
    def can_be_reached(self) -> bool:
        """Whether it listens, ready or not."""
        return self._address != ""

    @property
    def serving(self) -> ServingInstance:
        """What callers need of it."""
        return ServingInstance(
            instance_id=self.instance_id,
            address=self._address,
            max_concurrency=self._max_concurrency,
            version=self._start.version,
        )

    def leave(self, withdrawn: int) -> None:
        """Let it go: from that revision of the board on nobody is sent to it any more."""
        self.stage = Stage.LEAVING
        if not self._departure.done():
            self._departure.set_result(withdrawn)

    def hurry(self) -> None:
        """It is going already: ask anew how long that may take."""
        if not self._hurried.done():
            self._hurried.set_result(None)

    def ended(self, event: InstanceEnded) -> None:
        """The backend says that it is gone."""
        if not self._ended.done():
            self._ended.set_result(event)

    def listens(self, address: str) -> None:
        """The backend says that it can be connected to."""
        if self._address != address:
            self._address = address
            self._on_change(self)

    def printed(self, output: InstanceOutput) -> None:
        """The backend says what it printed past the protocol."""
        self._write(self._lines.cut(output, self._tools.clock()))

    async def live(self) -> None:
        """From the start to the end."""
        try:
            self.end = await self._live()
        except _NeverReadyError as error:
            self.end = error.end
        finally:
            self._write(self._lines.end(self._tools.clock()))
            self._on_change(self)

    async def _live(self) -> End:
        link = await self._become_ready()
        tracing.enter(None)  # its life is longer than what it was started for
        try:
            fault_point("runtime_manager.after_start_before_publish")
            self._max_concurrency = link.max_concurrency
            self.ready_at = self._tools.clock()
            if self.stage is Stage.STARTING:
                self.stage = Stage.READY
                self._on_change(self)
            return await self._serve(link)
        finally:
            link.close()

    # To readiness.

    async def _become_ready(self) -> InstanceLink:
        if isinstance(self._start, InstanceHandle):
            return await self._probe(self._start)
        async with self._tools.slots.slot(self._start.namespace):
            if self._departure.done():
                raise _NeverReadyError(End(Fate.LEFT))
            with telemetry.span("start instance", {"sless.instance": self.instance_id}):
                handle = await self._launch(self._start)
            with telemetry.span("probe instance", {"sless.instance": self.instance_id}):
                return await self._probe(handle)

    async def _launch(self, spec: InstanceSpec) -> InstanceHandle:
        try:
            return await self._tools.backend.start(spec)
        except MemoryExhausted as error:
            raise _NeverReadyError(End(Fate.NO_ROOM, error.message)) from error
        except Unavailable as error:
            raise _NeverReadyError(End(Fate.POSTPONED, error.message)) from error
        except PlatformError as error:
            raise _NeverReadyError(End(Fate.NOT_LOADED, error.message)) from error

    async def _probe(self, handle: InstanceHandle) -> InstanceLink:
        self.listens(handle.address)
        opening = asyncio.ensure_future(self._tools.prober.open(handle, self._write))
        try:
            await first(opening, self._ended, self._departure, within=self._tools.times.load)
            if not opening.done():
                raise _NeverReadyError(await self._never_ready())
            return opening.result()
        except HandlerNotLoaded as error:
            await self._stop()
            raise _NeverReadyError(End(Fate.NOT_LOADED, explain.not_loaded(error, self._memory_mb))) from error
        except InstanceUnreachable as error:
            raise _NeverReadyError(await self._refused(str(error))) from error
        finally:
            await abandon(opening)

    async def _never_ready(self) -> End:
        """It ended, was asked to leave, or took too long."""
        if self._ended.done():
            return self._end_before_ready()
        leaving = self._departure.done()
        await self._stop(self._patience() if leaving and self._adopted else None)
        if leaving:
            return End(Fate.LEFT)
        await first(self._ended, within=self._tools.times.end_notice)
        tail = self._ended.result().tail if self._ended.done() else ""
        return End(Fate.NOT_LOADED, explain.too_slow(self._tools.times.load, tail, self._memory_mb))

    async def _refused(self, why: str) -> End:
        """It has ended, or does not say HELLO. One that did so before, to an earlier process, is draining: that is no failure."""
        if self._adopted:
            self.stage = Stage.LEAVING
            self._on_change(self)
            await self._stop(self._patience())
            return End(Fate.LEFT)
        await first(self._ended, within=self._tools.times.end_notice)
        if self._ended.done():
            return self._end_before_ready()
        await self._stop()
        return End(Fate.NOT_LOADED, why)

    def _end_before_ready(self) -> End:
        event = self._ended.result()
        if self._departure.done():
            return End(Fate.LEFT)
        if was_taken_away(event):
            return End(Fate.POSTPONED, event.message)
        return End(Fate.NOT_LOADED, explain.ended_before_ready(event, self._memory_mb))

    # From readiness on.

    async def _serve(self, link: InstanceLink) -> End:
        lost = asyncio.ensure_future(link.lost())
        try:
            await first(self._departure, self._ended, link.closed, link.departing, lost)
            if lost.done():
                log.warning("instance cannot be used any more", instance=self.instance_id, why=lost.result())
            return await self._end_of_service(link, wants_to_go=link.departing.done() or lost.done())
        finally:
            await abandon(lost)

    async def _end_of_service(self, link: InstanceLink, *, wants_to_go: bool) -> End:
        if self._departure.done():
            await self._withdrawn(self._departure.result())
            return await self._finish()
        if wants_to_go and not self._ended.done():
            # A call that can't be stopped holds it, or it can't be reached any more: whoever keeps it starts another.
            self.stage = Stage.LEAVING
            self._on_change(self)
            return await self._finish()
        await first(self._ended, within=self._tools.times.end_notice)
        if self._ended.done():
            return self._crashed(self._ended.result())
        await self._stop()
        return End(Fate.CRASHED, "it closed its connection")

    def _crashed(self, event: InstanceEnded) -> End:
        """Its author finds the reason in the function's log, which the answers to the calls that it took with it point to."""
        why = explain.how(event, self._memory_mb)
        if was_taken_away(event):
            return End(Fate.POSTPONED, why)
        now = self._tools.clock()
        self._write([*self._lines.end(now), LogLine(now, "stderr", f"the instance ended: {why}")])
        return End(Fate.CRASHED, why)

    async def _withdrawn(self, revision: int) -> None:
        applied = asyncio.ensure_future(self._tools.board.applied(revision))
        try:
            await first(applied, self._ended)
        finally:
            await abandon(applied)

    async def _finish(self) -> End:
        """Ask it to drain and to end (SIGTERM says both); calls that run have their time."""
        stopping = asyncio.ensure_future(self._stop(self._patience()))
        try:
            await first(stopping, self._hurried)
            if not stopping.done():
                await self._stop(self._patience())
        finally:
            await abandon(stopping)
        return End(Fate.LEFT)

    async def _stop(self, grace: timedelta | None = None) -> None:
        """Until it is gone. Asked again while the backend is away; if it took the instance with it, its end will be told."""
        grace = self._tools.times.stop_grace if grace is None else grace
        pause = timedelta(milliseconds=100)
        while not self._ended.done():
            try:
                await self._asked_to_stop(grace)
                await first(self._ended, within=self._tools.times.end_notice)
                return
            except Unavailable as error:
                log.warning("an instance can't be stopped now", instance=self.instance_id, error=error.message)
            await first(self._ended, within=pause)
            pause = min(pause * 2, timedelta(seconds=5))

    async def _asked_to_stop(self, grace: timedelta) -> None:
        asking = asyncio.ensure_future(self._tools.backend.stop(self.instance_id, grace=grace))
        try:
            await first(asking, self._ended)
            if asking.done():
                asking.result()
        finally:
            await abandon(asking)

    def _write(self, lines: Sequence[LogLine]) -> None:
        if lines:
            self._tools.logs.write(self.function_uid, self.instance_id, lines)
