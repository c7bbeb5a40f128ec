"""Workers: take builds from the queue and keep their leases while they build."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from sless_platform import telemetry, tracing
from sless_platform.backoff import Backoff
from sless_platform.errors import DeadlineExceeded, PlatformError, Unavailable
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger
from sless_platform.telemetry import Attributes, Span

from sless_builder.application.build_log import BuildLog
from sless_builder.application.finishing import to_its_end
from sless_builder.domain.build import (
    Claim,
    Problem,
    Result,
    UserError,
    abandoned,
    pause_after,
    platform_failed,
    waiting,
)
from sless_builder.errors import LeaseLost
from sless_builder.ports import QUEUE, Queue, Signals, build_topic

_LOOK_AGAIN: Final = timedelta(seconds=2)
_FLUSH_EVERY: Final = timedelta(milliseconds=300)
_RELEASE_LIMIT: Final = timedelta(seconds=2)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim holds, how often it is renewed, and how long before its end the work stops by itself."""

    duration: timedelta = timedelta(seconds=5)
    renew_every: timedelta = timedelta(milliseconds=1500)
    margin: timedelta = timedelta(seconds=1)


class Builds(Protocol):
    """What a worker runs: see Building."""

    async def build(self, claim: Claim, log: BuildLog) -> Result:
        """Build a version. Raises UserError for what its author must mend, anything else for what the platform must."""
        ...


@dataclass
class _Work:
    """One claim under way. Whoever changes the build's row has the `gate`, so that nothing is written after its end."""

    claim: Claim
    log: BuildLog
    span: Span | None
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    over: bool = False


class Worker:
    """Builds what waits, `at_once` builds at a time. `owner` names this process among all that build."""

    def __init__(
        self,
        *,
        owner: str,
        queue: Queue,
        signals: Signals,
        building: Builds,
        limit: timedelta,
        patience: timedelta,
        takeovers: int,
        grace: timedelta = timedelta(0),
        at_once: int = 2,
        lease: Lease | None = None,
        pause: Callable[[int], timedelta] = pause_after,
    ) -> None:
        """What bounds a build.

        limit      how long it may take.
        grace      how long it has after that to say what took so long.
        patience   how long it is tried again while the platform fails.
        takeovers  how often its builder may be lost with it.
        pause      how long it waits after the platform's n-th failure.
        """
        self._owner = owner
        self._queue = queue
        self._signals = signals
        self._building = building
        self._limit = limit
        self._patience = patience
        self._takeovers = takeovers
        self._grace = grace
        self._at_once = at_once
        self._lease = lease or Lease()
        self._pause = pause

    async def run(self) -> None:
        """Build until cancelled; what is being built then is given back."""
        free = asyncio.Semaphore(self._at_once)
        with self._signals.listen(QUEUE) as something:
            async with asyncio.TaskGroup() as group:
                while True:
                    await free.acquire()
                    began = asyncio.get_running_loop().time()
                    claim = await self._claimed()
                    if claim is None:
                        free.release()
                        await something.wait(_LOOK_AGAIN)
                    else:
                        work = group.create_task(self._work(claim, began))
                        work.add_done_callback(lambda _work: free.release())

    async def _claimed(self) -> Claim | None:
        """A claim; one that comes when nobody waits for it any more is given back."""
        claiming = asyncio.ensure_future(self._claim())
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait([claiming])
            claim = claiming.result()
            if claim is not None:
                await self._release(claim)
            raise

    async def _claim(self) -> Claim | None:
        try:
            return await self._queue.claim(self._owner, self._lease.duration)
        except PlatformError as error:
            log.warning("the queue does not answer", error=error.message)
            return None

    async def _work(self, claim: Claim, began: float) -> None:
        fault_point("builder.build.claimed")
        with tracing.within(tracing.kept(claim.source.traceparent)), telemetry.span("build", _facts(claim)) as span:
            await self._worked(_Work(claim, BuildLog(self._queue, claim), span), began)

    async def _worked(self, work: _Work, began: float) -> None:
        claim = work.claim
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self._keep(work, began))
                await self._build(work)
                keeper.cancel()
        except* LeaseLost as lost:
            if work.span is not None:
                work.span.fail_with(lost.exceptions[0])
            log.info("build stopped", version=claim.source.version_uid, attempt=claim.attempt)
        except* Exception as errors:
            log.exception("build given back", version=claim.source.version_uid, exc_info=errors)
        finally:
            await to_its_end(self._release(claim))

    async def _keep(self, work: _Work, began: float) -> None:
        """Renew the lease and store the log's lines until cancelled. Raises LeaseLost as soon as the build is not ours."""
        loop = asyncio.get_running_loop()
        held_until, renewed = began + self._lease.duration.total_seconds(), began
        with self._signals.listen(build_topic(work.claim.source.version_uid)) as changed:
            while True:
                told = await changed.wait(_FLUSH_EVERY)
                async with work.gate:
                    if work.over:
                        return
                    now = loop.time()
                    if told or now - renewed >= self._lease.renew_every.total_seconds():
                        if await self._renewed(work.claim, held_until):
                            held_until, renewed = now + self._lease.duration.total_seconds(), now
                        _check(work.claim, held_until - self._lease.margin.total_seconds())
                    with suppress(Unavailable, DeadlineExceeded):
                        await work.log.flush()

    async def _renewed(self, claim: Claim, held_until: float) -> bool:
        """Whether the lease was renewed; a database that does not answer may do so a moment later."""
        try:
            async with asyncio.timeout_at(held_until - self._lease.margin.total_seconds()):
                await self._queue.renew(claim, self._lease.duration)
        except (Unavailable, DeadlineExceeded, TimeoutError):
            return False
        return True

    async def _build(self, work: _Work) -> None:
        claim = work.claim
        if claim.takeovers >= self._takeovers:
            await self._fail(work, abandoned(claim.takeovers))
            return
        if claim.failures or claim.takeovers:
            work.log.line(f"the build was interrupted by the platform; attempt {claim.attempt}")
        try:
            result = await self._result(work)
        except UserError as error:
            await self._fail(work, error.problem)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, it is the platform's fault
            await self._put_back(work, error)
        else:
            work.log.line(f"built: {result.image_ref}")
            if work.span is not None:
                work.span.note({"sless.build.cached": result.cached})
            await self._finish(work, result, "")

    async def _result(self, work: _Work) -> Result:
        limit = self._limit.total_seconds()
        try:
            async with asyncio.timeout(limit + self._grace.total_seconds()) as timer:
                return await self._building.build(work.claim, work.log)
        except TimeoutError:
            if not timer.expired():
                raise
            raise UserError(
                Problem("BUILD_TIMEOUT", f"the build took longer than {limit:g} s, the most it may")
            ) from None

    async def _put_back(self, work: _Work, error: Exception) -> None:
        if work.span is not None:
            work.span.fail_with(error)
        log.error("build failed by the platform's fault", version=work.claim.source.version_uid, exc_info=error)
        claim, why = work.claim, _said(error)
        if claim.failing >= self._patience:
            await self._fail(work, platform_failed(why, claim.failing))
            return
        pause = self._pause(claim.failures + 1)
        message = waiting(why, claim.attempt + 1, pause)
        work.log.line(f"the platform failed ({why}); the build is tried again in {pause.total_seconds():g} s")
        await self._end(work, lambda lines: self._queue.retry(claim, pause, message, lines))

    async def _fail(self, work: _Work, problem: Problem) -> None:
        problem = problem.printable()
        if work.span is not None:
            work.span.fail(problem.reason, problem.message)
        work.log.problem(problem)
        await self._finish(work, problem, work.log.end())

    async def _finish(self, work: _Work, end: Result | Problem, message: str) -> None:
        await self._end(work, lambda lines: self._queue.finish(work.claim, end, message, lines))
        fault_point("builder.build.after_result_commit")

    async def _end(self, work: _Work, act: Callable[[str], Awaitable[None]]) -> None:
        """Store how it ended, with the log's last lines."""
        async with work.gate:
            lines = work.log.take()
            await self._persistently(lambda: act(lines))
            work.over = True

    async def _persistently(self, act: Callable[[], Awaitable[None]]) -> None:
        """Try while the database is away; the lease's end ends it."""
        for pause in Backoff().delays():
            try:
                await act()
                return
            except (Unavailable, DeadlineExceeded) as error:
                log.warning("build's end not stored yet", error=error.message)
            await asyncio.sleep(pause.total_seconds())

    async def _release(self, claim: Claim) -> None:
        """Nothing of the work goes on any more: somebody else may have the build."""
        with suppress(PlatformError, TimeoutError):
            async with asyncio.timeout(_RELEASE_LIMIT.total_seconds()):
                await self._queue.release(claim)


def _facts(claim: Claim) -> Attributes:
    source = claim.source
    return {
        "sless.namespace": source.namespace,
        "sless.name": source.name,
        "sless.version": source.number,
        "sless.runtime": source.runtime,
        "sless.attempt": claim.attempt,
    }


def _check(claim: Claim, until: float) -> None:
    if asyncio.get_running_loop().time() >= until:
        raise LeaseLost(f"attempt {claim.attempt} could not renew its lease of version {claim.source.version_uid}")


def _said(error: Exception) -> str:
    """What people are told of a fault of the platform: typed errors are made for them, others tell of the inside."""
    if isinstance(error, PlatformError):
        return error.message
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "internal error"
