"""What every BuildStore must do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from sless_builder.adapters.memory_store import MemoryBuildStore
from sless_builder.adapters.postgres_store import PostgresBuildStore
from sless_builder.adapters.signals import LocalSignals, PostgresSignals
from sless_builder.domain.build import BuildState, Claim, FunctionUid, Problem, Result, Source, VersionUid
from sless_builder.domain.layers import Layer, archive_key, object_key
from sless_builder.errors import LeaseLost
from sless_builder.ports import CLEANUP, QUEUE, REPORTS, BuildStore, Changes, Counters, Signals, Snapshot, build_topic
from sless_platform.postgres import create_pool

from tests.support.postgres import ServiceDatabase

LEASE = timedelta(seconds=30)
EXPIRED = timedelta(milliseconds=-1)
RESULT = Result(("sha256:base", "sha256:code"), "sless/ns/fn@sha256:image", cached=False)
PROBLEM = Problem("SYNTAX_ERROR", "handler.py line 1: invalid syntax", "handler.py", 1, quote="x x")


class Kept:
    """A store and its signals."""

    def __init__(self, store: BuildStore, signals: Signals) -> None:
        self.store = store
        self.signals = signals


@pytest.fixture(params=["memory", "postgres"])
async def kept(request: pytest.FixtureRequest, service_database: ServiceDatabase) -> AsyncIterator[Kept]:
    if request.param == "memory":
        signals = LocalSignals()
        yield Kept(MemoryBuildStore(signals), signals)
        return
    dsn = await service_database("builder", Path(str(files("sless_builder") / "migrations")))
    async with AsyncExitStack() as stack:
        pool = await create_pool(dsn, schema="sless_builder")
        stack.push_async_callback(pool.close)
        listening = PostgresSignals(dsn)
        task = asyncio.create_task(listening.run())
        stack.callback(task.cancel)
        with listening.listen("probe") as probe:  # it wakes everyone once it listens
            assert await probe.wait(timedelta(seconds=20))
        yield Kept(PostgresBuildStore(pool), listening)


@pytest.fixture
def store(kept: Kept) -> BuildStore:
    return kept.store


def source(version: str = "v1", function: str = "f1", code: str = "c1") -> Source:
    return Source(
        VersionUid(version),
        FunctionUid(function),
        "sless-0",
        "hello",
        int(version[1:]),
        code,
        "python3.11",
        "handler.handle",
        traceparent=f"00-of-{version}",
    )


async def queue(store: BuildStore, *sources: Source, revision: int = 1) -> None:
    await store.apply(Changes(revision, wanted=tuple((item, 0) for item in sources)))


async def claimed(store: BuildStore, owner: str = "w1", lease: timedelta = LEASE) -> Claim:
    claim = await store.claim(owner, lease)
    assert claim is not None
    return claim


async def state_of(store: BuildStore, version: str = "v1") -> BuildState:
    part = await store.log(VersionUid(version), 0)
    assert part is not None
    return part.state


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.01)


async def due(store: BuildStore, key: str) -> bool:
    return key in await store.garbage()


async def named(store: BuildStore, key: str) -> bool:
    async with store.collect(key) as unnamed:
        return not unnamed


# -- the queue


@pytest.mark.fault(14)
async def test_a_version_is_queued_once_however_often_it_is_heard_of(store: BuildStore) -> None:
    await queue(store, source())
    await queue(store, source())
    claim = await claimed(store)
    assert await store.claim("w2", LEASE) is None
    await store.finish(claim, RESULT, "", "")
    await queue(store, source())
    assert await store.claim("w2", LEASE) is None


async def test_revision_is_stored_with_its_changes_and_not_inside_a_snapshot(store: BuildStore) -> None:
    assert await store.revision() is None
    await store.apply(Changes(7, reset=True, more=True, wanted=((source(), 0),)))
    assert await store.revision() is None
    await store.apply(Changes(7))
    assert await store.revision() == 7


async def test_the_oldest_build_comes_first_with_all_that_is_known_of_it(store: BuildStore) -> None:
    await queue(store, source("v2", code="c2"))
    await queue(store, source("v1"))
    claim = await claimed(store)
    assert (claim.source, claim.attempt, claim.failures, claim.owner) == (source("v2", code="c2"), 1, 0, "w1")


async def test_attempts_go_on_after_those_that_the_registry_has_heard_of(store: BuildStore) -> None:
    await store.apply(Changes(1, wanted=((source(), 3),)))
    assert (await claimed(store)).attempt == 4


async def test_two_builds_of_the_same_code_do_not_run_at_once(store: BuildStore) -> None:
    await queue(store, source("v1", "f1"), source("v2", "f2"), source("v3", "f3", "other"))
    first, other = await claimed(store, "w1"), await claimed(store, "w2")
    assert (first.source.number, other.source.number) == (1, 3)
    assert await store.claim("w3", LEASE) is None
    await store.finish(first, RESULT, "", "")
    assert (await claimed(store, "w3")).source.number == 2


async def test_parallel_claims_take_each_build_once(store: BuildStore) -> None:
    await queue(store, *(source(f"v{n}", f"f{n}", f"c{n % 5}") for n in range(1, 21)))
    claims = [claim for claim in await asyncio.gather(*(store.claim(f"w{n}", LEASE) for n in range(8))) if claim]
    assert len(claims) == 5
    assert len({claim.source.code_sha256 for claim in claims}) == 5


@pytest.mark.fault(42)
async def test_an_expired_lease_is_taken_over_as_a_new_attempt_and_the_old_one_can_do_nothing(
    store: BuildStore,
) -> None:
    await queue(store, source())
    old = await claimed(store, "w1", EXPIRED)
    new = await claimed(store, "w2")
    assert (new.attempt, new.failures, new.takeovers) == (2, 0, 1)
    acts: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: store.renew(old, LEASE),
        lambda: store.count_run(old),
        lambda: store.hold(old, ["k"], None),
        lambda: store.append_log(old, "x\n"),
        lambda: store.finish(old, RESULT, "", ""),
        lambda: store.retry(old, timedelta(0), "", ""),
    )
    for act in acts:
        with pytest.raises(LeaseLost):
            await act()
    await store.release(old)
    assert await state_of(store) is BuildState.BUILDING
    await store.finish(new, RESULT, "", "")
    assert await state_of(store) is BuildState.BUILT


async def test_a_renewed_lease_is_not_taken_over(store: BuildStore) -> None:
    await queue(store, source())
    claim = await claimed(store, "w1", EXPIRED)
    await store.renew(claim, LEASE)
    assert await store.claim("w2", LEASE) is None


@pytest.mark.fault(11)
async def test_a_platform_failure_is_tried_again_after_its_pause_and_counted(store: BuildStore) -> None:
    await queue(store, source())
    await store.retry(await claimed(store), LEASE, "waiting", "disk full\n")
    assert await store.claim("w1", LEASE) is None
    assert await state_of(store) is BuildState.PENDING
    await queue(store, source("v2", code="c2"))
    await store.retry(await claimed(store), timedelta(0), "waiting", "")
    second = await claimed(store)
    assert (second.failures, second.takeovers) == (1, 0)
    assert timedelta(0) <= second.failing < timedelta(minutes=1)
    await store.retry(second, timedelta(0), "waiting", "")
    third = await claimed(store)
    assert (third.attempt, third.failures) == (3, 2)
    assert third.failing >= second.failing


@pytest.mark.fault(11)
async def test_a_build_that_waits_to_be_tried_again_is_reported_with_its_reason_until_it_is(store: BuildStore) -> None:
    await queue(store, source())
    claim = await claimed(store)
    (building,) = await store.unreported("w1")
    await store.acknowledge(building, BuildState.BUILDING)
    await store.retry(claim, timedelta(0), "the disk is full", "")
    (waiting,) = await store.unreported("w1")
    assert (waiting.attempt, waiting.state, waiting.message) == (claim.attempt, BuildState.PENDING, "the disk is full")
    assert waiting.finished_at is None
    await store.acknowledge(waiting, BuildState.BUILDING)
    assert await store.unreported("w1") == []
    again = await claimed(store)
    (building,) = await store.unreported("w1")
    assert (building.attempt, building.state, building.message) == (again.attempt, BuildState.BUILDING, "")


async def test_a_released_build_waits_again_without_a_failure(store: BuildStore) -> None:
    await queue(store, source())
    await store.release(await claimed(store))
    again = await claimed(store)
    assert (again.attempt, again.failures) == (2, 0)


async def test_a_finished_build_does_not_change_any_more(store: BuildStore) -> None:
    await queue(store, source())
    claim = await claimed(store)
    await store.finish(claim, PROBLEM, "end of log", "error\n")
    with pytest.raises(LeaseLost):
        await store.finish(claim, RESULT, "", "")
    await store.apply(Changes(2, cancelled=(VersionUid("v1"),)))
    assert await state_of(store) is BuildState.FAILED


@pytest.mark.fault(13)
async def test_a_cancelled_build_is_neither_run_nor_finished(store: BuildStore) -> None:
    await queue(store, source(), source("v2", code="c2"))
    running = await claimed(store)
    await store.apply(Changes(2, cancelled=(VersionUid("v1"), VersionUid("v2"))))
    with pytest.raises(LeaseLost):
        await store.renew(running, LEASE)
    with pytest.raises(LeaseLost):
        await store.finish(running, RESULT, "", "")
    assert await store.claim("w1", LEASE) is None
    assert await state_of(store) is BuildState.CANCELLED


async def test_counters_tell_claims_runs_and_layers(store: BuildStore) -> None:
    assert await store.counters(VersionUid("v1")) is None
    await queue(store, source(), source("v2", code="c2"))
    claim = await claimed(store)
    await store.count_run(claim)
    await store.hold(claim, ["k"], Layer("key-1", "sha256:aa", 10))
    assert await store.counters(VersionUid("v1")) == Counters(attempts=1, runs=1, layers=1)
    other = await claimed(store)
    await store.hold(other, ["k"], Layer("key-2", "sha256:aa", 10))
    assert await store.counters(VersionUid("v2")) == Counters(attempts=1, runs=0, layers=0)


# -- layers


async def test_a_layer_is_found_by_what_it_was_made_from(store: BuildStore) -> None:
    await queue(store, source(), source("v2", code="c2"))
    made = Layer("key", "sha256:aa", 10, (PROBLEM,))
    await store.hold(await claimed(store), [object_key("sha256:aa")], made)
    found = await store.layer("key")
    assert found == made
    assert found.broken[0].quote == "x x"
    assert await store.layer("other") is None
    await store.hold(await claimed(store), [object_key("sha256:bb")], Layer("key", "sha256:bb", 20))
    assert await store.layer("key") == Layer("key", "sha256:bb", 20)


# -- logs


async def test_log_is_read_on_from_where_it_was_left(store: BuildStore) -> None:
    assert await store.log(VersionUid("v1"), 0) is None
    await queue(store, source())
    claim = await claimed(store)
    await store.append_log(claim, "one\n")
    await store.append_log(claim, "zwö\n")
    first = await store.log(VersionUid("v1"), 0)
    assert first is not None
    assert first.text == "one\nzwö\n"
    await store.finish(claim, RESULT, "", "three\n")
    rest = await store.log(VersionUid("v1"), first.position)
    assert rest is not None
    assert (rest.text, rest.state) == ("three\n", BuildState.BUILT)
    end = await store.log(VersionUid("v1"), rest.position)
    assert end is not None
    assert (end.text, end.position) == ("", rest.position)


async def test_log_of_earlier_attempts_is_kept_and_counted(store: BuildStore) -> None:
    await queue(store, source())
    await store.append_log(await claimed(store, lease=EXPIRED), "ä\n")
    claim = await claimed(store)
    assert claim.log_bytes == 3
    await store.finish(claim, PROBLEM, "", "second\n")
    part = await store.log(VersionUid("v1"), 0)
    assert part is not None
    assert part.text == "ä\nsecond\n"


# -- reports


@pytest.mark.fault(42)
async def test_a_state_is_reported_until_it_is_acknowledged(store: BuildStore) -> None:
    await queue(store, source())
    assert await store.unreported("w1") == []
    claim = await claimed(store)
    for _ in range(2):
        (building,) = await store.unreported("w1")
        assert (building.attempt, building.state) == (1, BuildState.BUILDING)
        assert building.started_at is not None
        assert building.finished_at is None
    await store.acknowledge(building, BuildState.BUILDING)
    assert await store.unreported("w1") == []
    await store.finish(claim, RESULT, "", "")
    (built,) = await store.unreported("w1")
    assert building.traceparent == built.traceparent == "00-of-v1"
    assert (built.state, built.result, built.problem) == (BuildState.BUILT, RESULT, None)
    assert built.finished_at is not None
    await store.acknowledge(built, BuildState.BUILT)
    assert await store.unreported("w1") == []


async def test_a_late_acknowledgement_does_not_hide_what_came_after(store: BuildStore) -> None:
    await queue(store, source())
    claim = await claimed(store)
    (building,) = await store.unreported("w1")
    await store.finish(claim, PROBLEM, "end of log", "")
    await store.acknowledge(building, BuildState.BUILDING)
    (failed,) = await store.unreported("w1")
    assert (failed.state, failed.problem, failed.message) == (BuildState.FAILED, PROBLEM, "end of log")


async def test_reports_are_their_owners_at_first(store: BuildStore) -> None:
    await queue(store, source())
    await claimed(store, "w1")
    assert await store.unreported("w2") == []


@pytest.mark.parametrize("answer", [BuildState.CANCELLED, None])
async def test_a_build_that_the_registry_does_not_want_is_cancelled(
    store: BuildStore, answer: BuildState | None
) -> None:
    await queue(store, source())
    claim = await claimed(store)
    (building,) = await store.unreported("w1")
    await store.acknowledge(building, answer)
    with pytest.raises(LeaseLost):
        await store.renew(claim, LEASE)


# -- uploads and garbage


async def test_an_objects_name_goes_from_the_upload_to_the_build(store: BuildStore) -> None:
    key, upload = archive_key("c1"), uuid.uuid4()
    await store.begin_upload(upload, FunctionUid("f1"), key)
    assert await named(store, key)
    await store.end_upload(upload, kept=True)
    assert await named(store, key)
    await queue(store, source())
    await store.forget_uploads(timedelta(0))
    assert await named(store, key)


async def test_an_upload_that_ends_after_its_build_is_there_leaves_no_name(store: BuildStore) -> None:
    key, upload = archive_key("c1"), uuid.uuid4()
    await store.begin_upload(upload, FunctionUid("f1"), key)
    await queue(store, source())
    await store.end_upload(upload, kept=True)
    await store.remove_function(FunctionUid("f1"))
    assert not await named(store, key)


async def test_a_failed_upload_makes_its_object_garbage(store: BuildStore) -> None:
    key, upload = archive_key("c1"), uuid.uuid4()
    await store.begin_upload(upload, FunctionUid("f1"), key)
    await store.end_upload(upload, kept=False)
    assert await store.garbage() == [key]
    assert not await named(store, key)
    assert await store.garbage() == []


async def test_the_upload_of_a_killed_builder_is_forgotten_in_the_end(store: BuildStore) -> None:
    key = archive_key("c1")
    await store.begin_upload(uuid.uuid4(), FunctionUid("f1"), key)
    await store.forget_uploads(timedelta(hours=1))
    assert await named(store, key)
    await store.forget_uploads(timedelta(0))
    await store.suspect([key], timedelta(hours=1))
    assert await store.garbage() == []
    await store.suspect(["layers/other"], timedelta(0))
    await until(lambda: due(store, "layers/other"))


async def test_what_a_build_names_is_no_suspect(store: BuildStore) -> None:
    await queue(store, source())
    await store.suspect([archive_key("c1"), "stray"], timedelta(0))
    await until(lambda: due(store, "stray"))
    assert await store.garbage() == ["stray"]


async def test_failed_and_cancelled_builds_keep_their_archive_alone(store: BuildStore) -> None:
    await queue(store, source(), source("v2", code="c2"), source("v3", code="c3"))
    for end in (PROBLEM, RESULT):
        claim = await claimed(store)
        await store.hold(claim, [f"layer-{claim.source.number}", "shared"], None)
        await store.finish(claim, end, "", "")
    running = await claimed(store)
    await store.hold(running, ["layer-3", "shared"], None)
    await store.apply(Changes(2, cancelled=(VersionUid("v3"),)))
    await store.trim()
    assert await store.garbage() == ["layer-1", "shared"], "the cancelled one may still be writing"
    await store.release(running)
    await store.trim()
    assert set(await store.garbage()) == {"layer-1", "layer-3", "shared"}
    assert await named(store, "shared")
    assert await named(store, archive_key("c3"))
    assert not await named(store, "layer-3")


async def test_nobody_names_an_object_while_it_is_removed(store: BuildStore) -> None:
    await queue(store, source())
    claim = await claimed(store)
    async with store.collect("layers/sha256/aa") as unnamed:
        assert unnamed
        holding = asyncio.create_task(store.hold(claim, ["layers/sha256/aa"], None))
        done, _ = await asyncio.wait([holding], timeout=0.1)
        assert not done
    await holding
    assert await named(store, "layers/sha256/aa")


async def test_a_removed_layer_is_no_longer_found(store: BuildStore) -> None:
    await queue(store, source())
    layer = Layer("key", "sha256:aa", 10)
    await store.hold(await claimed(store), [object_key(layer.digest)], layer)
    assert await named(store, object_key(layer.digest))
    assert await store.layer("key") == layer
    await store.remove_function(FunctionUid("f1"))
    assert not await named(store, object_key(layer.digest))
    assert await store.layer("key") is None


async def test_garbage_stays_garbage_when_its_removal_fails(store: BuildStore) -> None:
    await store.suspect(["stray"], timedelta(0))
    await until(lambda: due(store, "stray"))
    with pytest.raises(OSError, match="disk"):
        async with store.collect("stray"):
            raise OSError("disk")
    assert await store.garbage() == ["stray"]


# -- deletions


@pytest.mark.fault(13)
async def test_a_deleted_function_is_cleaned_up_after_once_its_build_has_stopped(store: BuildStore) -> None:
    await queue(store, source(), source("v2", code="c2"), source("v3", "f2", "c2"))
    running = await claimed(store)
    await store.hold(running, ["layer-1"], None)
    await store.apply(Changes(2, deleted=(FunctionUid("f1"),)))
    with pytest.raises(LeaseLost):
        await store.renew(running, LEASE)
    assert await store.deletions() == []
    await store.release(running)
    assert await store.deletions() == ["f1"]
    await store.remove_function(FunctionUid("f1"))
    assert await store.log(VersionUid("v1"), 0) is None
    assert set(await store.garbage()) == {archive_key("c1"), archive_key("c2"), "layer-1"}
    assert await named(store, archive_key("c2")), "another function has the same code"
    await store.end_deletion(FunctionUid("f1"))
    assert await store.deletions() == []


async def test_layers_of_a_deleted_function_may_be_kept_for_a_while(store: BuildStore) -> None:
    await queue(store, source(), source("v2", code="c2"))
    for end, layer in ((RESULT, "layers/1"), (PROBLEM, "layers/2")):
        claim = await claimed(store)
        await store.hold(claim, [layer, "images/1"], Layer(layer, layer, 1))
        await store.finish(claim, end, "", "")
    await store.apply(Changes(2, deleted=(FunctionUid("f1"),)))

    await store.remove_function(FunctionUid("f1"), layers_kept=timedelta(hours=1))

    assert set(await store.garbage()) == {archive_key("c1"), archive_key("c2"), "images/1", "layers/2"}
    found = await store.layer("layers/1")
    assert found is not None, "it is found by what it was made from as long as it is there"


async def test_a_killed_builders_lease_holds_a_deletion_up_no_longer_than_it_runs(store: BuildStore) -> None:
    await queue(store, source())
    await claimed(store, lease=EXPIRED)
    await store.apply(Changes(2, deleted=(FunctionUid("f1"),)))
    assert await store.deletions() == ["f1"]


async def test_a_deleted_functions_versions_are_not_queued(store: BuildStore) -> None:
    await store.apply(Changes(1, deleted=(FunctionUid("f1"),)))
    await queue(store, source())
    assert await store.claim("w1", LEASE) is None


async def test_a_deletion_that_was_missed_shows_in_the_next_snapshot(store: BuildStore) -> None:
    await queue(store, source(), source("v2", "f2", "c2"))
    whole = Snapshot(frozenset({FunctionUid("f2")}), frozenset({VersionUid("v1"), VersionUid("v2")}))
    await store.apply(Changes(9, reset=True), whole=whole)
    assert await store.deletions() == ["f1"]
    assert await state_of(store, "v1") is BuildState.CANCELLED
    assert await state_of(store, "v2") is BuildState.PENDING


async def test_purged_functions_matter_only_if_they_left_something(store: BuildStore) -> None:
    await queue(store, source())
    await store.apply(Changes(2, purged=(FunctionUid("f1"), FunctionUid("f9"))))
    assert await store.deletions() == ["f1"]


# -- versions that are kept no more


async def test_a_dropped_version_goes_with_what_it_alone_names(store: BuildStore) -> None:
    await queue(store, source(), source("v2"))
    for number in ("1", "2"):
        claim = await claimed(store)
        await store.hold(claim, ["layer-base", f"layer-{number}"], None)
        await store.append_log(claim, "x\n")
        await store.finish(claim, RESULT, "", "")

    await store.apply(Changes(2, dropped=(VersionUid("v1"), VersionUid("v9"))))
    await store.trim()

    assert await store.log(VersionUid("v1"), 0) is None
    assert await state_of(store, "v2") is BuildState.BUILT
    assert set(await store.garbage()) == {archive_key("c1"), "layer-base", "layer-1"}
    assert [await named(store, key) for key in (archive_key("c1"), "layer-base", "layer-1")] == [True, True, False]


async def test_a_dropped_versions_build_is_stopped_before_it_goes(store: BuildStore) -> None:
    await queue(store, source())
    running = await claimed(store)

    await store.apply(Changes(2, dropped=(VersionUid("v1"),)))
    await store.trim()

    assert await state_of(store) is BuildState.CANCELLED
    with pytest.raises(LeaseLost):
        await store.renew(running, LEASE)
    await store.release(running)
    await store.trim()
    assert await store.log(VersionUid("v1"), 0) is None
    assert await store.garbage() == [archive_key("c1")]


async def test_that_a_version_was_dropped_shows_in_the_next_snapshot(store: BuildStore) -> None:
    await queue(store, source(), source("v2"))

    whole = Snapshot(frozenset({FunctionUid("f1")}), frozenset({VersionUid("v2"), VersionUid("v3")}))
    await store.apply(Changes(9, reset=True, wanted=((source("v3"), 0),)), whole=whole)
    await store.trim()

    assert await store.log(VersionUid("v1"), 0) is None
    assert [await state_of(store, version) for version in ("v2", "v3")] == [BuildState.PENDING] * 2
    assert await store.deletions() == []


# -- signals


async def test_signals_wake_who_waits_for_them(kept: Kept) -> None:
    store, limit = kept.store, timedelta(seconds=10)
    with (
        kept.signals.listen(QUEUE) as queued,
        kept.signals.listen(REPORTS) as reports,
        kept.signals.listen(CLEANUP) as cleanup,
        kept.signals.listen(build_topic(VersionUid("v1"))) as build,
    ):
        await queue(store, source())
        assert await queued.wait(limit)
        claim = await claimed(store)
        assert await reports.wait(limit)
        await store.append_log(claim, "x\n")
        assert await build.wait(limit)
        await store.apply(Changes(2, deleted=(FunctionUid("f1"),)))
        assert await build.wait(limit)
        assert await cleanup.wait(limit)


async def test_a_listener_that_hears_nothing_returns_at_its_limit(kept: Kept) -> None:
    with kept.signals.listen("nothing") as listener:
        assert not await listener.wait(timedelta(milliseconds=10))
