"""Workers and their surroundings in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from sless_builder.adapters.memory_store import MemoryBuildStore
from sless_builder.adapters.signals import LocalSignals
from sless_builder.application.build_log import BuildLog
from sless_builder.application.working import Lease, Worker
from sless_builder.domain.build import (
    BuildState,
    Claim,
    FunctionUid,
    Report,
    Result,
    Source,
    VersionUid,
)
from sless_builder.domain.known import FunctionInfo, VersionInfo
from sless_builder.ports import Changes, CreatedVersion, NewVersion, Target
from sless_platform.errors import Unavailable

RESULT = Result(("sha256:base", "sha256:code"), "sless/ns/hello@sha256:image", cached=False)
V1, F1 = VersionUid("v1"), FunctionUid("f1")
SOURCE = Source(V1, F1, "ns", "hello", 1, "c1", "python3.11", "handler.handle")
AT_ONCE = timedelta(0)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in ended), ended


@dataclass
class Kept:
    signals: LocalSignals = field(default_factory=LocalSignals)
    store: MemoryBuildStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryBuildStore(self.signals)

    async def queue(self, *sources: Source) -> None:
        await self.store.apply(Changes(1, wanted=tuple((source, 0) for source in sources)))

    async def state(self, version: VersionUid = V1) -> BuildState:
        part = await self.store.log(version, 0)
        assert part is not None
        return part.state

    async def log(self) -> str:
        part = await self.store.log(V1, 0)
        assert part is not None
        return part.text

    async def report(self) -> Report:
        (report,) = await self.store.unreported("me")
        return report

    def worker(
        self,
        builds: Builds,
        limit: timedelta = timedelta(seconds=60),
        lease: Lease | None = None,
        *,
        patience: timedelta = timedelta(hours=1),
        pause: timedelta = AT_ONCE,
    ) -> Worker:
        """A worker that tries again at once."""
        return Worker(
            owner="me",
            queue=self.store,
            signals=self.signals,
            building=builds,
            limit=limit,
            patience=patience,
            takeovers=5,
            lease=lease,
            pause=lambda _failures: pause,
        )


class Builds:
    """Ends each build as it is told: a result, an error, or (None) never."""

    def __init__(self, *ends: Result | Exception | None) -> None:
        self._ends = list(ends)
        self.begun = 0
        self.stopped = 0

    async def build(self, claim: Claim, log: BuildLog) -> Result:
        self.begun += 1
        log.line(f"attempt {claim.attempt}")
        end = self._ends[min(self.begun, len(self._ends)) - 1]
        if isinstance(end, Exception):
            raise end
        if end is not None:
            return end
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1
        raise AssertionError("unreachable")


async def is_in(kept: Kept, state: BuildState) -> bool:
    return await kept.state() is state


def source(number: int) -> Source:
    return Source(VersionUid(f"v{number}"), FunctionUid(f"f{number}"), "ns", "x", 1, f"c{number}", "python3.11", "h.h")


async def claimed(kept: Kept) -> Claim:
    await kept.queue(SOURCE)
    claim = await kept.store.claim("me", timedelta(seconds=30))
    assert claim is not None
    return claim


class FakeRegistry:
    """A registry that says what it is told to say."""

    def __init__(self, *batches: Changes) -> None:
        self.batches = list(batches)
        self.reports: list[Report] = []
        self.finalized: list[FunctionUid] = []
        self.watched_from: list[int | None] = []
        self.acknowledged: list[int] = []
        self.away = 0
        self.state: BuildState | None = BuildState.BUILT

    async def function(self, target: Target) -> FunctionInfo:
        raise AssertionError("nothing here may ask for this")

    async def version(self, target: Target, number: int) -> VersionInfo:
        raise AssertionError("nothing here may ask for this")

    async def create_version(self, version: NewVersion) -> CreatedVersion:
        raise AssertionError("nothing here may ask for this")

    async def report(self, report: Report) -> BuildState | None:
        if self.away:
            self.away -= 1
            raise Unavailable("the registry is away")
        self.reports.append(report)
        return self.state

    async def report_finalized(self, function_uid: FunctionUid) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("the registry is away")
        self.finalized.append(function_uid)

    def watch(self, revision: int | None) -> AbstractAsyncContextManager[FakeRegistry]:
        return self._watch(revision)

    @asynccontextmanager
    async def _watch(self, revision: int | None) -> AsyncIterator[FakeRegistry]:
        self.watched_from.append(revision)
        yield self

    async def __aiter__(self) -> AsyncIterator[Changes]:
        while self.batches:
            yield self.batches.pop(0)
        if len(self.watched_from) == 1:
            raise Unavailable("the stream broke")
        await asyncio.Event().wait()

    async def acknowledge(self, revision: int) -> None:
        self.acknowledged.append(revision)


class MemoryObjects:
    """An object store's keys."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)

    async def put(self, key: str, chunks: AsyncIterator[bytes] | bytes) -> int:
        self.keys.add(key)
        return 0

    async def get(self, key: str) -> AsyncIterator[bytes]:
        raise AssertionError("nothing here may ask for this")
        yield b""

    async def read(self, key: str) -> bytes:
        raise AssertionError("nothing here may ask for this")

    async def exists(self, key: str) -> bool:
        return key in self.keys

    async def delete(self, key: str) -> None:
        self.keys.discard(key)

    async def list(self, prefix: str = "") -> AsyncIterator[str]:
        for key in sorted(self.keys):
            if key.startswith(prefix):
                yield key

    async def size(self, key: str) -> int:
        return 0
