"""Workers: what becomes of a build, whatever it meets."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sless_builder.adapters.memory_store import MemoryBuildStore
from sless_builder.adapters.signals import LocalSignals
from sless_builder.application.working import Lease
from sless_builder.domain.build import (
    BuildState,
    Claim,
    Problem,
    Result,
    UserError,
)
from sless_builder.ports import Changes
from sless_platform.errors import Unavailable

from tests.support.builds import (
    F1,
    RESULT,
    SOURCE,
    V1,
    Builds,
    Kept,
    is_in,
    running,
    source,
    until,
)


async def test_a_build_that_succeeds_is_stored_with_its_log() -> None:
    kept, builds = Kept(), Builds(RESULT)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert (await kept.report()).result == RESULT
    assert await kept.log() == f"attempt 1\nbuilt: {RESULT.image_ref}\n"


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
async def test_the_platforms_failures_are_tried_again_however_many_they_are() -> None:
    faults = (OSError(28, "No space left on device"), Unavailable("the store is away"), RuntimeError("?"))
    kept, builds = Kept(), Builds(*faults * 4, RESULT)
    await kept.queue(SOURCE)
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert builds.begun == 13
    log = await kept.log()
    for words in ("the disk is full", "the store is away", "internal error"):
        assert f"the platform failed ({words}); the build is tried again in 0 s" in log
    assert "?" not in log
    assert (await kept.report()).message == ""


@pytest.mark.fault(11)
async def test_a_build_that_waits_for_the_platform_says_for_what() -> None:
    kept, builds = Kept(), Builds(OSError(122, "Disk quota exceeded"))
    await kept.queue(SOURCE)
    async with running(kept.worker(builds, pause=timedelta(seconds=30)).run()):
        await until(lambda: is_in(kept, BuildState.PENDING))
        await until(lambda: builds.begun == 1)
        await until(lambda: waits(kept))
    report = await kept.report()
    assert (report.attempt, report.state, report.problem) == (1, BuildState.PENDING, None)
    assert report.message == "waiting to try again: the disk is full (attempt 2, next in 30 s)"
    assert report.started_at is not None
    assert report.finished_at is None


async def waits(kept: Kept) -> bool:
    return any(report.state is BuildState.PENDING for report in await kept.store.unreported("me"))


@pytest.mark.fault(11)
async def test_a_platform_that_fails_for_too_long_ends_the_build_in_its_own_name() -> None:
    kept, builds = Kept(), Builds(Unavailable("the store is away"))
    await kept.queue(SOURCE)
    async with running(kept.worker(builds, patience=timedelta(milliseconds=50)).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    assert builds.begun > 1
    problem = (await kept.report()).problem
    assert problem is not None
    assert problem.reason == "PLATFORM_FAILED"
    assert "last: the store is away" in problem.message


async def test_a_build_whose_builders_die_again_and_again_ends_too() -> None:
    kept, builds = Kept(), Builds(RESULT)
    await kept.queue(SOURCE)
    for _ in range(6):
        assert await kept.store.claim("killed", timedelta(seconds=-1)) is not None
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.FAILED))
    assert builds.begun == 0
    problem = (await kept.report()).problem
    assert problem is not None
    assert problem.reason == "BUILD_ABANDONED"


async def test_failures_and_lost_builders_are_counted_apart() -> None:
    kept, builds = Kept(), Builds(*[Unavailable("the store is away")] * 6, RESULT)
    await kept.queue(SOURCE)
    for _ in range(4):
        assert await kept.store.claim("killed", timedelta(seconds=-1)) is not None
    async with running(kept.worker(builds).run()):
        await until(lambda: is_in(kept, BuildState.BUILT))
    assert builds.begun == 7


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
