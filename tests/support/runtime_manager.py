"""A runtime-manager whose surroundings exist in memory and do what the test says; made to run in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sless_platform import tracing
from sless_platform.errors import Unavailable
from sless_platform.tracing import Trace
from sless_runtime_manager.adapters.memory import MemoryRuntimeBackend
from sless_runtime_manager.adapters.memory.backend import MemoryMachine
from sless_runtime_manager.application.board import Board
from sless_runtime_manager.application.manager import RuntimeManager
from sless_runtime_manager.application.slots import StartSlots
from sless_runtime_manager.application.tools import Times, Tools
from sless_runtime_manager.domain import Function, InstanceSet, Kind, Limits, Outcome, Phase, Workload
from sless_runtime_manager.errors import HandlerNotLoaded, InstanceUnreachable, WatcherTooSlow, WorkloadNotFound
from sless_runtime_manager.ports import FunctionChanges, InstanceHandle, InstanceSpec, LogLine
from sless_runtime_manager.scaling import Policy

EPOCH = datetime(2026, 11, 30, 12, tzinfo=UTC)
IDLE = timedelta(seconds=300)

Verdict = str | Exception
"""What comes of a probe: "ready", "hang", or what it raises."""


def virtual_now() -> datetime:
    """The running loop's time as a moment."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


class Machine(MemoryMachine):
    """Remembers every start."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[InstanceSpec] = []
        self.traces: list[Trace | None] = []
        """Of each start, which trace it belongs to."""
        self.draining: set[str] = set()

    def start(self, spec: InstanceSpec) -> InstanceHandle:
        handle = super().start(spec)
        self.started.append(spec)
        self.traces.append(tracing.current())
        return handle

    def alive(self, uid: str, template: str | None = None) -> list[str]:
        """The function's instances that run, the oldest first."""
        return [
            one.instance_id
            for one in self.specs.values()
            if one.function_uid == uid and template in (None, one.template)
        ]


class Backend(MemoryRuntimeBackend):
    """Instances take `drain` to finish their calls, as long as they are given that time."""

    def __init__(self, machine: Machine, drain: timedelta) -> None:
        super().__init__(machine)
        self.machine: Machine = machine
        self._drain = drain

    async def stop(self, instance_id: str, *, grace: timedelta) -> None:
        self.machine.graces[instance_id] = grace
        if instance_id in self.machine.specs:
            self.machine.draining.add(instance_id)
            await asyncio.sleep(min(self._drain, grace).total_seconds())
        await super().stop(instance_id, grace=grace)


class Link:
    """InstanceLink to an instance in memory."""

    def __init__(self, max_concurrency: int, is_lost: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self._is_lost = is_lost
        self.max_concurrency = max_concurrency
        self.departing: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    async def lost(self) -> str:
        """See InstanceLink."""
        while not self._is_lost():
            await asyncio.sleep(2)
        return "the test says so"

    def close(self) -> None:
        """See InstanceLink."""
        if not self.closed.done():
            self.closed.set_result(None)


class Probes:
    """Prober that asks the test: `verdict` is called with each instance's handle."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.verdict: Callable[[InstanceHandle], Verdict] = lambda _handle: "ready"
        self.delay = timedelta(milliseconds=50)
        self.links: dict[str, Link] = {}
        self.unreachable: set[str] = set()
        self.at_once = 0
        self.most_at_once = 0

    async def open(self, handle: InstanceHandle, on_lines: Callable[[Sequence[LogLine]], None]) -> Link:
        """See Prober."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.delay.total_seconds())
            verdict = self.verdict(handle)
            if handle.instance_id in self._machine.draining:
                verdict = InstanceUnreachable("the instance is draining")
            if verdict == "hang":
                await asyncio.Event().wait()
        finally:
            self.at_once -= 1
        if isinstance(verdict, Exception):
            raise verdict
        on_lines([LogLine(virtual_now(), "stdout", "loaded")])
        link = self.links[handle.instance_id] = Link(handle.max_concurrency, lambda: handle.address in self.unreachable)
        return link


class MemoryRegistry:
    """Registry that behaves as the real one does, as far as the runtime-manager can see."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.workloads: dict[str, Workload] = {}
        self.served: dict[str, Workload] = {}
        self.reports: list[tuple[str, Outcome]] = []
        self.report_traces: list[Trace | None] = []
        self.finalized: list[str] = []
        self.asked = 0
        self.away = False
        self.defects: list[Exception] = []
        self._revision = 0
        self._streams: list[asyncio.Queue[FunctionChanges]] = []

    def put(self, uid: str, *, deploying: bool = True, timeout: int | None = 30, **changes: Any) -> Workload:
        """A new generation: `changes` are Workload's fields, and least, most, concurrency."""
        known = self.workloads.get(uid) or _new_workload(uid)
        bounds = {name: changes.pop(name) for name in ("least", "most", "concurrency") if name in changes}
        self._revision += 1
        workload = replace(
            known,
            generation=known.generation + 1,
            limits=replace(known.limits, **bounds),
            deploying=deploying,
            revision=self._revision,
            **changes,
        )
        self.workloads[uid] = workload
        self._write(
            Function(
                uid=uid,
                generation=workload.generation,
                version=workload.version,
                deploying=deploying,
                failed=False,
                deleted=False,
                least=workload.limits.least,
                most=workload.limits.most,
                timeout=None if timeout is None else timedelta(seconds=timeout),
                revision=self._revision,
            )
        )
        return workload

    def delete(self, uid: str) -> None:
        """Begin to delete."""
        del self.workloads[uid]
        self._change(uid, deleted=True)

    def resync(self) -> None:
        """Make every watcher take a snapshot again, as after a long absence."""
        for stream in self._streams:
            stream.put_nowait(self._snapshot())

    def outcomes(self, uid: str) -> list[Outcome]:
        """What was reported of a function."""
        return [outcome for reported, outcome in self.reports if reported == uid]

    async def watch(self) -> AsyncIterator[FunctionChanges]:
        """See Registry."""
        stream: asyncio.Queue[FunctionChanges] = asyncio.Queue()
        while self.away:
            await asyncio.sleep(0.5)
        stream.put_nowait(self._snapshot())
        self._streams.append(stream)
        try:
            while True:
                yield await stream.get()
        finally:
            self._streams.remove(stream)

    async def get_function(self, function_uid: str) -> Function:
        """See Registry."""
        await self._answer()
        if function_uid not in self.workloads:
            raise WorkloadNotFound(f"there is no function with uid {function_uid}")
        return self.functions[function_uid]

    async def get_workload(self, function_uid: str) -> Workload:
        """See Registry."""
        await self._answer()
        self.asked += 1
        if self.defects:
            raise self.defects.pop()
        if function_uid not in self.workloads:
            raise WorkloadNotFound(f"there is no function with uid {function_uid}")
        workload, served = self.workloads[function_uid], self.served.get(function_uid)
        differs = served is not None and served.template != workload.template
        return replace(workload, revision=self._revision, serving=served if differs else None)

    async def report_status(self, function_uid: str, outcome: Outcome) -> bool:
        """See Registry."""
        await self._answer()
        function = self.functions.get(function_uid)
        if function is None or function.deleted or function.generation != outcome.generation:
            return False
        self.reports.append((function_uid, outcome))
        if outcome.phase is Phase.READY:
            self.served[function_uid] = self.workloads[function_uid]
        self.report_traces.append(tracing.current())
        if outcome.phase is not Phase.DEPLOYING:
            self.workloads[function_uid] = replace(self.workloads[function_uid], deploying=False)
            self._change(function_uid, deploying=False, failed=outcome.phase is Phase.FAILED)
        return True

    async def report_finalized(self, function_uid: str) -> None:
        """See Registry."""
        await self._answer()
        self.finalized.append(function_uid)
        self.functions.pop(function_uid, None)
        self._send(FunctionChanges(reset=False, complete=True, functions=(), purged=(function_uid,)))

    async def _answer(self) -> None:
        await asyncio.sleep(0.005)
        if self.away:
            raise Unavailable("the registry is away")

    def _snapshot(self) -> FunctionChanges:
        return FunctionChanges(reset=True, complete=True, functions=tuple(self.functions.values()))

    def _change(self, uid: str, **changes: Any) -> None:
        self._revision += 1
        self._write(replace(self.functions[uid], revision=self._revision, **changes))

    def _write(self, function: Function) -> None:
        self.functions[function.uid] = function
        self._send(FunctionChanges(reset=False, complete=True, functions=(function,)))

    def _send(self, changes: FunctionChanges) -> None:
        for stream in self._streams:
            stream.put_nowait(changes)


class MemoryLogs:
    """FunctionLogs in memory."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}

    def write(self, function_uid: str, instance_id: str, lines: Sequence[LogLine]) -> None:
        """See FunctionLogs."""
        self.lines.setdefault(function_uid, []).extend(line.text for line in lines)

    def remove(self, function_uid: str) -> None:
        """See FunctionLogs."""
        self.lines.pop(function_uid, None)


class Invoker:
    """A watcher that applies and acknowledges what it is sent, while `acknowledges`."""

    def __init__(self) -> None:
        self.sets: dict[str, InstanceSet] = {}
        self.history: list[InstanceSet] = []
        self.resets = 0
        self.acknowledges = True
        self.received = 0

    async def follow(self, board: Board) -> None:
        """Until cancelled; again when it was sent away."""
        while True:
            with suppress(WatcherTooSlow):
                await self._follow(board)

    async def _follow(self, board: Board) -> None:
        with board.watching() as watcher:
            async for batch in watcher.batches():
                if batch.reset:
                    self.sets.clear()
                    self.resets += 1
                for changed in batch.sets:
                    self.applied(changed)
                    self.sets[changed.function_uid] = changed
                    self.history.append(changed)
                self.received = batch.revision
                if self.acknowledges:
                    watcher.acknowledge(batch.revision)

    def applied(self, changed: InstanceSet) -> None:
        """For tests that look at every set."""

    def serving(self, uid: str) -> set[str]:
        """Instances that calls of the function are sent to."""
        return {one.instance_id for one in self.sets[uid].instances} if uid in self.sets else set()

    def failure(self, uid: str) -> str:
        """Why no instance can be had."""
        return self.sets[uid].failure if uid in self.sets else ""


@dataclass
class World:
    """All that surrounds a runtime-manager; `start` and `kill` one."""

    machine: Machine = field(default_factory=Machine)
    probes: Probes = field(init=False)
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    logs: MemoryLogs = field(default_factory=MemoryLogs)
    invoker: Invoker = field(default_factory=Invoker)
    times: Times = field(default_factory=Times)
    idle: timedelta = IDLE
    start_slots: int = 4
    drain: timedelta = timedelta(0)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.probes = Probes(self.machine)

    def start(self) -> None:
        """A runtime-manager, and an invoker that watches it."""
        self.board = Board(self.times.acknowledgement)
        self.manager = RuntimeManager(
            Tools(
                backend=Backend(self.machine, self.drain),
                prober=self.probes,
                registry=self.registry,
                logs=self.logs,
                board=self.board,
                slots=StartSlots(self.start_slots, timedelta(seconds=5)),
                clock=virtual_now,
                new_id=lambda: f"i-{next(self._ids):016x}",
                policy=Policy(idle=self.idle),
                times=self.times,
            )
        )
        self._tasks = [
            asyncio.create_task(self.manager.run()),
            asyncio.create_task(self.invoker.follow(self.board)),
        ]

    async def kill(self) -> None:
        """End the runtime-manager; instances live on, and so does what the invoker knows."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def restart(self) -> None:
        """Kill, and start a successor."""
        await self.kill()
        self.start()

    def crash(self, instance_id: str, *, exit_code: int | None = 1, signal: int | None = None) -> None:
        """An instance ends by itself."""
        self.machine.end(instance_id, exit_code=exit_code, signal=signal)
        if instance_id in self.probes.links:
            self.probes.links[instance_id].close()

    async def ensure(self, uid: str, concurrency: int = 1) -> None:
        """EnsureInstances."""
        await self.manager.ensure_instances(function_uid=uid, concurrency=concurrency)

    def starts(self, uid: str) -> int:
        """How often an instance of the function was started."""
        return sum(spec.function_uid == uid for spec in self.machine.started)

    async def until(self, condition: Callable[[], object], within: float = 30) -> None:
        """Wait for the condition; AssertionError when it doesn't come true within so many seconds of virtual time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not condition():
            if loop.time() > deadline:
                raise AssertionError(f"not true within {within} s; sets: {self.invoker.sets}")
            await asyncio.sleep(0.05)

    async def replaced(self, uid: str, gone: set[str], within: float = 5) -> None:
        """Wait until calls of the function are sent to instances again, and to none of those that are gone."""
        await self.until(lambda: self.invoker.serving(uid) and self.invoker.serving(uid).isdisjoint(gone), within)

    async def started(self, uid: str, starts: int, within: float = 60) -> None:
        """Wait until so many instances of the function have been started."""
        await self.until(lambda: self.starts(uid) >= starts, within)

    async def passes(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def ready(self, uid: str) -> None:
        """Wait until the newest generation was reported ready."""
        generation = self.registry.functions[uid].generation
        await self.until(
            lambda: (generation, Phase.READY) in [(o.generation, o.phase) for o in self.registry.outcomes(uid)]
        )


@asynccontextmanager
async def a_world(**options: Any) -> AsyncIterator[World]:
    """A world with a runtime-manager that runs."""
    world = World(**options)
    world.start()
    try:
        yield world
    finally:
        await world.kill()


def not_loadable(message: str = "module handler has no function handle") -> HandlerNotLoaded:
    """What a probe raises when the code can't be loaded."""
    return HandlerNotLoaded(
        message, 'Traceback (most recent call last):\n  File "handler.py", line 1\nAttributeError: handle'
    )


def _new_workload(uid: str) -> Workload:
    return Workload(
        function_uid=uid,
        namespace="sless-ffd1f598c169b0ae",
        namespace_number=1,
        name=uid,
        kind=Kind.FUNCTION,
        generation=0,
        version=1,
        runtime="python3.11",
        entrypoint="handler.handle",
        layers=(),
        memory_mb=128,
        environment={},
        limits=Limits(least=0, most=3, concurrency=2),
        template="a",
        deploying=True,
        revision=0,
    )
