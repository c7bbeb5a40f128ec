"""Watch: nothing is skipped, nothing comes twice, and who was away goes on where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import InvalidArgument, Unavailable
from sless_registry.application import watching
from sless_registry.application.means import Policy
from sless_registry.domain.record import changes
from sless_registry.ports import Store

from tests.support.registry import (
    EVERYTHING,
    FUNCTIONS,
    NAMESPACE,
    VERSIONS,
    RunningRegistry,
    Watching,
    running_registry,
)
from tests.support.registry_domain import a_record


def since(revision: int, types: list[pb.ResourceType.ValueType] = EVERYTHING) -> pb.WatchStart:
    return pb.WatchStart(resource_types=types, revision=revision)


SNAPSHOT = pb.WatchStart(resource_types=EVERYTHING, snapshot=True)
TAIL = pb.WatchStart(resource_types=EVERYTHING, tail=True)


def seen(batch: pb.WatchResponse) -> list[str]:
    """What a batch brings: names of functions, name/number of versions, and the identity of what is gone."""
    told = []
    for change in batch.changes:
        resource = change.WhichOneof("resource")
        if resource == "function":
            told.append(change.function.name + ("-" if change.function.HasField("deleted_at") else ""))
        elif resource == "version":
            told.append(f"{change.version.name}/{change.version.version}")
        else:
            told.append(change.purged_function_uid or change.purged_version_uid)
    return told


async def until(watch: Watching, met: Callable[[list[pb.WatchResponse]], bool]) -> list[pb.WatchResponse]:
    """The batches of a watch until a condition is met."""
    batches: list[pb.WatchResponse] = []
    while not met(batches):
        batches.append(await watch.read())
    return batches


async def test_a_tail_tells_the_present_revision_then_every_change(registry: RunningRegistry) -> None:
    await registry.create("before")
    async with registry.watching("builder", TAIL) as watch:
        first = await watch.read()
        await registry.create("after")
        second = await watch.read()

    assert (first.revision, first.reset, seen(first)) == (1, False, [])
    assert (second.revision, second.reset, seen(second)) == (2, False, ["after"])


async def test_a_change_comes_with_the_whole_resource(registry: RunningRegistry) -> None:
    async with registry.watching("builder", since(0)) as watch:
        await registry.create(env_vars={"A": "1"})
        batch = await watch.read()

    assert batch.changes[0].function == await registry.get()


async def test_who_was_away_gets_what_changed_meanwhile_newest_state_only(registry: RunningRegistry) -> None:
    await registry.create("a")
    await registry.create("b")
    version = (await registry.upload("a")).version
    await registry.built(version)

    async with registry.watching("runtime-manager", since(1)) as watch:
        batch = await watch.read()

    assert (batch.revision, batch.reset, seen(batch)) == (4, False, ["b", "a", "a/1"])
    assert batch.changes[1].function.desired_version == 1
    assert batch.changes[2].version.state == pb.VERSION_STATE_BUILT


async def test_a_watcher_gets_only_the_resources_it_asked_for(registry: RunningRegistry) -> None:
    async with (
        registry.watching("builder", since(0, VERSIONS)) as versions,
        registry.watching("invoker", since(0, FUNCTIONS)) as functions,
    ):
        await registry.create("a")
        await registry.upload("a")
        first = await versions.read()
        told = await until(functions, lambda batches: bool(batches) and batches[-1].revision == 2)

    assert (first.revision, seen(first)) == (2, ["a/1"])
    assert {name for batch in told for name in seen(batch)} == {"a"}


async def test_a_version_that_is_kept_no_more_is_told_to_who_follows_versions() -> None:
    policy = Policy(functions_per_namespace=9, versions_kept=1)
    async with running_registry(policy=policy) as registry, registry.watching("builder", since(0, VERSIONS)) as watch:
        await registry.create()
        first = (await registry.upload(code="1")).version
        await registry.built(first, state=pb.VERSION_STATE_FAILED, layers=[])
        await registry.upload(code="2")
        batches = await until(watch, lambda batches: bool(batches) and "hello/2" in seen(batches[-1]))

    assert seen(batches[-1]) == ["hello/2", first.uid]


async def test_a_deleted_function_is_told_twice_when_it_is_deleted_and_when_it_is_gone(
    registry: RunningRegistry,
) -> None:
    async with registry.invoker(), registry.watching("builder", since(0)) as watch:
        function = await registry.create()
        await registry.upload()
        await registry.user().DeleteFunction(pb.DeleteFunctionRequest(namespace=NAMESPACE, name="hello"))
        told = await until(watch, lambda batches: "hello-" in [name for batch in batches for name in seen(batch)])
        assert told[-1].changes[-1].version.state == pb.VERSION_STATE_CANCELLED
        for service in ("builder", "runtime-manager"):
            await registry.service(service).ReportFinalized(pb.ReportFinalizedRequest(function_uid=function.uid))
        assert seen(await watch.read()) == [function.uid]

    async with registry.watching("builder", since(0)) as late:
        assert seen(await late.read()) == [function.uid]


async def test_a_snapshot_has_everything_and_says_where_to_go_on(registry: RunningRegistry) -> None:
    await registry.create("a")
    await registry.create("b")
    await registry.upload("b")
    async with registry.invoker():
        await registry.user().DeleteFunction(pb.DeleteFunctionRequest(namespace=NAMESPACE, name="a"))

    async with registry.watching("builder", SNAPSHOT) as watch:
        batches = await until(watch, lambda batches: bool(batches) and not batches[-1].more)
        await registry.create("c")
        following = await watch.read()

    assert [batch.reset for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert sorted(name for batch in batches for name in seen(batch)) == ["a-", "b", "b/1"]
    assert batches[-1].revision == 4
    assert (seen(following), following.reset, following.revision) == (["c"], False, 5)


async def test_a_snapshot_of_nothing_is_one_batch(registry: RunningRegistry) -> None:
    async with registry.watching("builder", SNAPSHOT) as watch:
        batch = await watch.read()

    assert (batch.reset, batch.more, batch.revision, seen(batch)) == (True, False, 0, [])


async def test_a_large_snapshot_comes_in_batches_of_bounded_size(registry: RunningRegistry) -> None:
    names = [f"f-{n:02}" for n in range(60)]
    await asyncio.gather(
        *(registry.create(name, env_vars={"X": "é" * 16_000}, description="é" * 4_000) for name in names)
    )

    async with registry.watching("builder", SNAPSHOT) as watch:
        batches = await until(watch, lambda batches: bool(batches) and not batches[-1].more)

    assert len(batches) > 1
    assert all(batch.ByteSize() < 2 * 1024 * 1024 for batch in batches)
    assert sorted(name for batch in batches for name in seen(batch)) == names
    assert [batch.revision for batch in batches] == [0] * (len(batches) - 1) + [60]
    assert [batch.reset for batch in batches] == [True] + [False] * (len(batches) - 1)


async def test_a_large_revision_comes_in_parts_and_only_the_last_says_its_revision(registry: RunningRegistry) -> None:
    names = [f"f-{n:02}" for n in range(60)]
    await asyncio.gather(*(registry.create(name, env_vars={"X": "é" * 16_000}) for name in names))
    async with registry.invoker(), registry.watching("builder", since(60)) as watch:
        request = pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE)
        await registry.user().DeleteNamespace(request)
        batches = await until(watch, lambda batches: bool(batches) and batches[-1].revision == 61)

    assert len(batches) > 1
    assert {batch.revision for batch in batches[:-1]} == {60}
    assert sorted(name for batch in batches for name in seen(batch)) == [f"{name}-" for name in names]


async def fill(store: Store, count: int) -> None:
    """Many quick revisions."""
    record = a_record(name="filled")
    for n in range(count):
        changed = record.with_function(replace(record.function, message=str(n)))
        async with store.transaction() as transaction:
            await transaction.write(changes(None if n == 0 else record, changed))


@pytest.mark.parametrize("revision", [3, 99])
async def test_who_cannot_go_on_begins_anew(registry: RunningRegistry, revision: int) -> None:
    """Events of before were forgotten, or the watcher knows a future that this database never had."""
    await fill(registry.store, 10)
    await registry.store.trim(events_kept=5, answers_before=a_record().function.created_at)

    async with registry.watching("builder", since(revision)) as watch:
        batch = await watch.read()

    assert (batch.reset, batch.revision, seen(batch)) == (True, 10, ["filled"])


async def test_who_is_just_within_what_is_kept_goes_on(registry: RunningRegistry) -> None:
    await fill(registry.store, 10)
    await registry.store.trim(events_kept=5, answers_before=a_record().function.created_at)

    async with registry.watching("builder", since(5)) as watch:
        batch = await watch.read()

    assert (batch.reset, batch.revision, seen(batch)) == (False, 10, ["filled"])


async def test_a_long_way_is_gone_in_steps(registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_PAGE", 2)
    for name in "abcde":
        await registry.create(name)
        await registry.create(f"{name}2")

    async with registry.watching("builder", since(0)) as watch:
        batches = await until(watch, lambda batches: bool(batches) and batches[-1].revision == 10)

    assert [batch.revision for batch in batches] == [2, 4, 6, 8, 10]
    assert [name for batch in batches for name in seen(batch)] == [f"{n}{s}" for n in "abcde" for s in ("", "2")]


async def test_who_sees_nothing_for_long_is_told_how_far_it_is(
    registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SILENT_REVISIONS", 5)
    async with registry.watching("builder", since(0, VERSIONS)) as watch:
        await fill(registry.store, 5)
        batch = await watch.read()

    assert batch.revision >= 5
    assert seen(batch) == []


async def test_what_was_not_sent_cannot_be_acknowledged(registry: RunningRegistry) -> None:
    async with registry.watching("invoker", TAIL) as watch:
        await watch.read()
        await watch.acknowledge(7)
        with pytest.raises(InvalidArgument, match="revision 7 was acknowledged, but only 0 was sent"):
            await watch.read()


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([pb.WatchRequest(acknowledged_revision=1)], "start"),
        ([pb.WatchRequest()], "start"),
        ([pb.WatchRequest(start=pb.WatchStart(tail=True))], "resource_types"),
        ([pb.WatchRequest(start=pb.WatchStart(tail=True, resource_types=[9]))], "resource_types"),  # type: ignore[list-item]
        ([pb.WatchRequest(start=since(-1))], "revision"),
        ([pb.WatchRequest(start=TAIL), pb.WatchRequest(start=TAIL)], None),
    ],
)
async def test_a_watch_that_makes_no_sense_is_refused(
    registry: RunningRegistry, messages: list[pb.WatchRequest], field: str | None
) -> None:
    call: Any = registry.service("builder").Watch(iter(messages))
    with pytest.raises(InvalidArgument) as refused:
        async for _ in call:
            pass
    assert refused.value.field == field


async def test_a_watch_without_a_place_begins_with_a_snapshot(registry: RunningRegistry) -> None:
    await registry.create()
    async with registry.watching("builder", pb.WatchStart(resource_types=FUNCTIONS)) as watch:
        batch = await watch.read()

    assert (batch.reset, seen(batch)) == (True, ["hello"])


async def test_watches_and_waits_end_when_the_registry_stops() -> None:
    async with running_registry() as registry, registry.watching("builder", TAIL) as watch:
        await watch.read()
        registry.parts.feed.close()
        with pytest.raises(Unavailable, match="the registry is stopping"):
            await watch.read()


async def test_a_slow_watcher_holds_nobody_up_and_misses_nothing(registry: RunningRegistry) -> None:
    async with registry.watching("builder", since(0)) as slow, registry.watching("invoker", since(0)) as quick:
        for n in range(40):
            await registry.create(f"f-{n}", env_vars={"X": "x" * 30_000})
            while (await quick.read()).revision < n + 1:
                pass
        batches = await until(slow, lambda batches: bool(batches) and batches[-1].revision == 40)

    assert sorted(name for batch in batches for name in seen(batch)) == sorted(f"f-{n}" for n in range(40))


async def test_a_change_costs_each_watcher_one_look_and_silence_none(
    registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = registry.store.changes

    async def counted(types: Any, *, after: int, limit: int) -> Any:
        looks.append(after)
        return await look(types, after=after, limit=limit)

    monkeypatch.setattr(registry.store, "changes", counted)
    async with registry.watching("builder", TAIL) as first, registry.watching("gateway", TAIL) as second:
        await asyncio.gather(first.read(), second.read())
        assert looks == []
        for revision in (1, 2):
            await registry.create(f"f-{revision}")
            await asyncio.gather(first.read(), second.read())

    assert looks == [0, 0, 1, 1]
