"""What the registry is told, and what it tells."""

from __future__ import annotations

import pytest
from sless_builder.application.following import Follower
from sless_builder.application.reporting import Reporter
from sless_builder.domain.build import (
    BuildState,
    VersionUid,
)
from sless_builder.ports import Changes

from tests.support.builds import (
    F1,
    RESULT,
    SOURCE,
    Builds,
    FakeRegistry,
    Kept,
    claimed,
    is_in,
    running,
    source,
    until,
)


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
