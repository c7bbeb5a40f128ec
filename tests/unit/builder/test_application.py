"""Workers, reports, logs, the registry's changes and the clean-up, on memory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sless_builder.adapters.memory_store import MemoryBuildStore
from sless_builder.adapters.no_compiler import NoCompiler
from sless_builder.adapters.signals import LocalSignals
from sless_builder.adapters.workspace import FolderWorkspace
from sless_builder.application.build_log import MAX_LOG_BYTES, BuildLog
from sless_builder.application.cleaning import Cleaner
from sless_builder.application.finishing import in_thread, to_its_end
from sless_builder.application.following import Follower
from sless_builder.application.reporting import Reporter
from sless_builder.application.uploading import Uploading, UploadRequest
from sless_builder.application.working import Lease, Worker
from sless_builder.domain.archive import ArchiveInspector, ArchiveLimits
from sless_builder.domain.build import (
    BuildState,
    Claim,
    FunctionUid,
    Problem,
    Report,
    Result,
    Source,
    UserError,
    VersionUid,
)
from sless_builder.domain.known import FunctionInfo, VersionInfo
from sless_builder.domain.layers import archive_key
from sless_builder.errors import LeaseLost
from sless_builder.ports import Changes, CreatedVersion, NewVersion, Target
from sless_platform.errors import NotFound, PlatformError, Unavailable
from sless_platform.identity import Principal

from tests.support import archives

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

    def worker(self, builds: Builds, limit: timedelta = timedelta(seconds=60), lease: Lease | None = None) -> Worker:
        return Worker(
            owner="me",
            queue=self.store,
            signals=self.signals,
            building=builds,
            limit=limit,
            lease=lease,
            pause=lambda _failures: AT_ONCE,
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


# -- workers


async def test_a_build_that_succeeds_is_stored_with_its_log() -> None:
    kept, builds = Kept(), Builds(RESULT)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert (await kept.report()).result == RESULT
    assert await kept.log() == f"attempt 1\nbuilt: {RESULT.image_ref}\n"


async def is_in(kept: Kept, state: BuildState) -> bool:
    return await kept.state() is state


@pytest.mark.fault(11)
async def test_the_users_mistake_is_not_tried_again() -> None:
    kept, problem = (
        Kept(),
        Problem("SYNTAX_ERROR", "handler.py line 3: expected ':'", "handler.py", 3, quote="def x\n     ^"),
    )
    await kept.queue(SOURCE)
    builds = Builds(UserError(problem))
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    report = await kept.report()
    assert (builds.begun, report.problem) == (1, problem)
    assert report.message == "attempt 1\nerror: handler.py line 3: expected ':'\n    def x\n         ^"


@pytest.mark.fault(11)
async def test_the_platforms_failures_are_tried_again() -> None:
    kept, builds = (
        Kept(),
        Builds(OSError(28, "No space left on device"), Unavailable("the store is away"), RuntimeError("?"), RESULT),
    )
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert builds.begun == 4
    log = await kept.log()
    for words in ("No space left on device", "the store is away", "internal error"):
        assert f"the platform failed ({words}); the build is tried again in 0 s" in log
    assert "?" not in log


@pytest.mark.fault(11)
async def test_the_platforms_failures_are_bounded() -> None:
    kept, builds = Kept(), Builds(OSError(28, "No space left on device"))
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    assert builds.begun == 5
    problem = (await kept.report()).problem
    assert problem is not None
    assert problem.reason == "PLATFORM"
    assert "failed 5 times" in problem.message


async def test_a_build_whose_builders_die_again_and_again_ends_too() -> None:
    kept, builds = Kept(), Builds(RESULT)
    await kept.queue(SOURCE)
    for _ in range(5):
        assert await kept.store.claim("killed", timedelta(seconds=-1)) is not None
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    assert builds.begun == 0


async def test_a_build_that_takes_too_long_is_stopped() -> None:
    kept, builds = Kept(), Builds(None)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds, limit=timedelta(milliseconds=50)).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    problem = (await kept.report()).problem
    assert problem is not None
    assert (problem.reason, builds.stopped) == ("BUILD_TIMEOUT", 1)


@pytest.mark.fault(13)
async def test_a_cancelled_build_is_stopped_and_its_lease_given_up() -> None:
    kept, builds = Kept(), Builds(None)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: builds.begun == 1)
        await kept.store.apply(Changes(2, deleted=(F1,)))
        await until(lambda: builds.stopped == 1)
        await until(lambda: may_be_removed(kept))


async def may_be_removed(kept: Kept) -> bool:
    return await kept.store.deletions() == [F1]


async def test_a_lost_lease_stops_the_work() -> None:
    kept, builds = Kept(), Builds(None)
    await kept.queue(SOURCE)
    quick = Lease(timedelta(seconds=5), timedelta(milliseconds=10), timedelta(seconds=1))
    async with running(kept.worker(builds, lease=quick).run()):
        await until(lambda: builds.begun == 1)
        kept.store._builds[V1].attempt += 1  # as another process's claim does
        kept.store._builds[V1].owner = "another"
        await until(lambda: builds.stopped == 1)
        assert await kept.state() is BuildState.BUILDING


class AwayStore(MemoryBuildStore):
    """A database that goes away."""

    away = False

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        self._check()
        await super().renew(claim, lease)

    async def finish(self, claim: Claim, end: Result | Problem, message: str, log: str) -> None:
        self._check()
        await super().finish(claim, end, message, log)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("the database cannot be reached now; try again")


async def test_work_stops_by_itself_before_a_lease_ends_that_cannot_be_renewed() -> None:
    kept, builds = Kept(), Builds(None)
    kept.store = store = AwayStore(kept.signals)
    await kept.queue(SOURCE)
    short = Lease(timedelta(milliseconds=800), timedelta(milliseconds=50), timedelta(milliseconds=500))
    async with running(kept.worker(builds, lease=short).run()):
        await until(lambda: builds.begun == 1)
        store.away = True
        await until(lambda: builds.stopped == 1)


async def test_a_result_waits_for_a_database_that_is_away() -> None:
    kept = Kept()
    kept.store = store = AwayStore(kept.signals)
    await kept.queue(SOURCE)
    store.away = True
    builds = Builds(RESULT)
    async with running(kept.worker(builds).run()):
        await until(lambda: builds.begun == 1)
        store.away = False
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert builds.begun == 1


async def test_a_worker_that_is_stopped_gives_its_build_back() -> None:
    kept, builds = Kept(), Builds(None)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: builds.begun == 1)
    assert (builds.stopped, await kept.state()) == (1, BuildState.PENDING)


class SlowStore(MemoryBuildStore):
    """A database whose answers take as long as a test wants."""

    claimed = False

    def __init__(self, signals: LocalSignals) -> None:
        super().__init__(signals)
        self.answer = asyncio.Event()

    async def claim(self, owner: str, lease: timedelta) -> Claim | None:
        claim = await super().claim(owner, lease)
        self.claimed = claim is not None
        await self.answer.wait()
        return claim


async def test_a_claim_that_is_answered_after_the_worker_was_stopped_is_given_back() -> None:
    kept, builds = Kept(), Builds(RESULT)
    kept.store = store = SlowStore(kept.signals)
    await kept.queue(SOURCE)
    task = asyncio.create_task(kept.worker(builds).run())
    await until(lambda: store.claimed)
    task.cancel()
    await asyncio.sleep(0)
    store.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (builds.begun, await kept.state()) == (0, BuildState.PENDING)


async def test_two_builds_run_at_once_and_no_more() -> None:
    kept, builds = Kept(), Builds(None)
    await kept.queue(*(source(number) for number in range(1, 5)))
    async with running(kept.worker(builds).run()):
        await until(lambda: builds.begun == 2)
        assert await kept.store.claim("another", timedelta(seconds=30)) is not None
        assert builds.begun == 2


def source(number: int) -> Source:
    return Source(VersionUid(f"v{number}"), FunctionUid(f"f{number}"), "ns", "x", 1, f"c{number}", "python3.11", "h.h")


# -- a build's log


async def claimed(kept: Kept) -> Claim:
    await kept.queue(SOURCE)
    claim = await kept.store.claim("me", timedelta(seconds=30))
    assert claim is not None
    return claim


async def test_a_log_is_bounded_and_its_end_is_told_all_the_same() -> None:
    kept = Kept()
    log = BuildLog(kept.store, await claimed(kept))
    for number in range(2_000):
        log.line(f"{number} " + "x" * 1_000)
    log.problem(Problem("X", "what went wrong"))
    await log.flush()
    text = await kept.log()
    assert len(text) <= MAX_LOG_BYTES + 20
    assert text.endswith("\n… truncated\n")
    assert log.end().endswith("error: what went wrong")
    assert len(log.end()) <= 2_000


async def test_lines_that_could_not_be_stored_are_stored_later() -> None:
    kept = Kept()
    log = BuildLog(kept.store, await claimed(kept))
    append = kept.store.append_log

    async def away(claim: Claim, text: str) -> None:
        raise Unavailable("away")

    kept.store.append_log = away  # type: ignore[method-assign]
    log.line("one")
    with pytest.raises(Unavailable):
        await log.flush()
    kept.store.append_log = append  # type: ignore[method-assign]
    log.line("two\x1b[1m")
    await log.flush()
    assert await kept.log() == "one\ntwo\ufffd[1m\n"


# -- the registry


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


@pytest.mark.fault(42)
async def test_a_report_is_sent_until_it_is_acknowledged_and_no_more() -> None:
    kept, registry = Kept(), FakeRegistry()
    claim = await claimed(kept)
    await kept.store.finish(claim, RESULT, "", "")
    registry.away = 3
    reporter = Reporter(owner="me", registry=registry, reports=kept.store, signals=kept.signals)
    async with running(reporter.run()):
        await until(lambda: bool(registry.reports))
        await until(lambda: nothing_unreported(kept))
    assert [(report.attempt, report.state) for report in registry.reports] == [(1, BuildState.BUILT)]


async def nothing_unreported(kept: Kept) -> bool:
    return not await kept.store.unreported("me")


@pytest.mark.parametrize("state", [BuildState.CANCELLED, None])
async def test_a_build_is_stopped_when_the_registry_does_not_want_it(state: BuildState | None) -> None:
    kept, registry, builds = Kept(), FakeRegistry(), Builds(None)
    registry.state = state
    await kept.queue(SOURCE)
    reporter = Reporter(owner="me", registry=registry, reports=kept.store, signals=kept.signals)
    async with running(kept.worker(builds).run(), reporter.run()):
        await until(lambda: builds.stopped == 1)
        await until(lambda: is_in(kept, BuildState.CANCELLED))


async def test_the_registry_is_followed_from_where_it_was_left() -> None:
    kept = Kept()
    registry = FakeRegistry(Changes(5, reset=True, wanted=((SOURCE, 0),), functions=frozenset({F1})), Changes(8))
    follower = Follower(registry=registry, queue=kept.store)
    async with running(follower.run()):
        await until(lambda: len(registry.watched_from) == 2)
    assert registry.watched_from == [None, 8]
    assert registry.acknowledged == [5, 8]
    assert await kept.state() is BuildState.PENDING


async def test_a_snapshot_in_parts_is_stored_whole() -> None:
    kept = Kept()
    gone, late = source(2), source(3)
    await kept.queue(SOURCE, gone)
    registry = FakeRegistry(
        Changes(0, reset=True, more=True, functions=frozenset({F1})),
        Changes(0, more=True, functions=frozenset({late.function_uid}), versions=frozenset({SOURCE.version_uid})),
        Changes(9, wanted=((late, 0),)),
        Changes(10, wanted=((source(4), 0),)),
    )
    async with running(Follower(registry=registry, queue=kept.store).run()):
        await until(lambda: len(registry.watched_from) == 2)
    assert registry.acknowledged == [9, 10]
    assert await kept.store.deletions() == [gone.function_uid]
    assert await kept.state() is BuildState.PENDING
    assert await kept.state(late.version_uid) is BuildState.PENDING
    assert await kept.state(VersionUid("v4")) is BuildState.PENDING
    await kept.store.trim()
    assert await kept.store.log(gone.version_uid, 0) is None, "a version that is in no part is kept no more"


# -- the clean-up


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


class MemorySink:
    """Where layers are."""

    def __init__(self, *digests: str) -> None:
        self.digests = set(digests)
        self.swept = 0

    async def has(self, digest: str) -> bool:
        return digest in self.digests

    async def put(self, digest: str, tar: Path) -> None:
        self.digests.add(digest)

    async def remove(self, digest: str) -> None:
        self.digests.discard(digest)

    async def sweep(self) -> None:
        self.swept += 1


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Cleaning:
    clock: Clock = field(default_factory=Clock)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    sink: MemorySink = field(default_factory=MemorySink)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    base: str = "layers/sha256/base"

    def __post_init__(self) -> None:
        signals = LocalSignals()
        self.store = MemoryBuildStore(signals, self.clock)
        self.cleaner = Cleaner(
            registry=self.registry,
            store=self.store,
            objects=self.objects,
            sink=self.sink,
            leftovers=(self.sink,),
            signals=signals,
            kept=lambda: frozenset({self.base}),
            may_sweep=lambda: True,
            layers_kept=timedelta(0),
        )

    async def built(self) -> None:
        await self.store.apply(Changes(1, wanted=((SOURCE, 0),)))
        claim = await self.store.claim("me", timedelta(seconds=30))
        assert claim is not None
        self.objects.keys |= {archive_key("c1"), self.base, "layers/sha256/code"}
        self.sink.digests |= {"sha256:base", "sha256:code"}
        await self.store.hold(claim, [self.base, "layers/sha256/code"], None)
        await self.store.finish(claim, RESULT, "", "")


async def test_a_deleted_functions_objects_go_before_it_is_reported_and_the_base_layer_stays() -> None:
    world = Cleaning()
    await world.built()
    await world.store.apply(Changes(2, deleted=(F1,)))
    await world.cleaner.clean()
    assert world.registry.finalized == [F1]
    assert world.objects.keys == {world.base}
    assert world.sink.digests == {"sha256:base"}
    assert await world.store.deletions() == []


async def test_a_deletion_is_reported_again_until_the_registry_has_it() -> None:
    world = Cleaning()
    await world.built()
    await world.store.apply(Changes(2, deleted=(F1,)))
    world.registry.away = 1
    with pytest.raises(Unavailable):
        await world.cleaner.clean()
    await world.cleaner.clean()
    assert world.registry.finalized == [F1]


async def test_objects_that_nothing_names_go_after_a_day_and_not_before() -> None:
    world = Cleaning()
    await world.built()
    named = set(world.objects.keys)
    world.objects.keys |= {"code/sha256/stray", "layers/sha256/stray", "other/thing"}
    world.sink.digests.add("sha256:stray")
    await world.store.begin_upload(uuid.uuid4(), F1, "code/sha256/uploading")
    world.objects.keys.add("code/sha256/uploading")
    await world.cleaner.sweep()
    world.clock.now += timedelta(hours=23)
    await world.cleaner.clean()
    assert "code/sha256/stray" in world.objects.keys
    world.clock.now += timedelta(hours=2)
    await world.cleaner.clean()
    assert world.objects.keys == named | {"other/thing", "code/sha256/uploading"}
    assert world.sink.digests == {"sha256:base", "sha256:code"}
    assert world.sink.swept == 1
    await world.cleaner.sweep()
    world.clock.now += timedelta(hours=25)
    await world.cleaner.clean()
    assert world.objects.keys == named | {"other/thing"}, "its upload was forgotten, and then the object was suspected"


async def test_an_object_that_gets_a_name_while_it_is_suspected_stays() -> None:
    world = Cleaning()
    world.objects.keys.add(archive_key("c1"))
    await world.cleaner.sweep()
    await world.store.apply(Changes(1, wanted=((SOURCE, 0),)))
    world.clock.now += timedelta(hours=25)
    await world.cleaner.clean()
    assert world.objects.keys == {archive_key("c1")}


# -- uploads


class UploadRegistry(FakeRegistry):
    """A registry that refuses new versions."""

    error: PlatformError

    async def function(self, target: Target) -> FunctionInfo:
        return FunctionInfo(F1, "python3.11", "handler.handle")

    async def create_version(self, version: NewVersion) -> CreatedVersion:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kept_named"),
    [(Unavailable("the registry is away"), True), (NotFound("there is no function 'hello'"), False)],
)
async def test_code_goes_only_when_the_registry_has_surely_refused_it(
    tmp_path: Path, error: PlatformError, kept_named: bool
) -> None:
    kept, registry, workspace = Kept(), UploadRegistry(), FolderWorkspace(tmp_path)
    registry.error = error
    workspace.open()
    objects = MemoryObjects()
    uploading = Uploading(
        registry=registry,
        uploads=kept.store,
        objects=objects,
        workspace=workspace,
        inspector=ArchiveInspector(ArchiveLimits(1 << 20, 1 << 20, 10, 100)),
        compiler=NoCompiler(),
        max_archive_bytes=1 << 20,
    )
    owner = Principal("sub", namespace="ns")
    with pytest.raises(type(error)):
        await uploading.upload(
            principal=owner, request=UploadRequest(Target("ns", "hello", 0)), parts=pieces(archives.handler())
        )
    (key,) = objects.keys
    async with kept.store.collect(key) as unnamed:
        assert unnamed is not kept_named
    workspace.close()


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 7):
        yield data[start : start + 7]


# -- work that comes to its end


async def test_a_cancellation_waits_for_work_that_cannot_be_stopped() -> None:
    go, done = asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(True)

    task = asyncio.create_task(to_its_end(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_a_thread_gives_its_result_and_its_error() -> None:
    assert await in_thread(lambda: 42) == 42
    with pytest.raises(LeaseLost):
        await in_thread(_lose)


def _lose() -> None:
    raise LeaseLost("x")
