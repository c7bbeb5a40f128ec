"""Many writers at once on PostgreSQL: revisions without gaps, each change seen once, one winner a race."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import Aborted, AlreadyExists, NotFound, PlatformError
from sless_registry.adapters.postgres.wakes import POLL
from sless_registry.main import MIGRATIONS

from tests.support.postgres import ServiceDatabase
from tests.support.registry import (
    EVERYTHING,
    FUNCTIONS,
    NAMESPACE,
    RunningRegistry,
    Watching,
    a_function,
    on_postgres,
)

WRITERS = 16
EACH = 8


def update(name: str = "hello", etag: str = "", **fields: Any) -> pb.UpdateFunctionRequest:
    return pb.UpdateFunctionRequest(
        function=a_function(name, **fields), update_mask=FieldMask(paths=list(fields)), etag=etag
    )


async def outcomes(*calls: Awaitable[Any]) -> list[Any]:
    """What each of the calls gave or raised; only errors of the API are let by."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, PlatformError):
            raise result
    return results


async def follow(watch: Watching, last: int) -> list[pb.WatchResponse]:
    """All batches up to a revision."""
    batches = [await watch.read()]
    while batches[-1].revision < last:
        batches.append(await watch.read())
    return batches


async def write(registry: RunningRegistry, writer: int) -> None:
    """Some functions, each written twice."""
    for n in range(EACH):
        name = f"w{writer}-{n}"
        await registry.create(name)
        await registry.user().UpdateFunction(update(name, memory_mb=256))


@pytest.mark.fault(31)
async def test_parallel_writers_leave_no_gap_and_watchers_see_each_change_once(
    postgres_registry: RunningRegistry,
) -> None:
    registry, total = postgres_registry, WRITERS * EACH * 2
    start = pb.WatchStart(resource_types=FUNCTIONS, revision=0)
    async with registry.watching("builder", start) as first, registry.watching("invoker", start) as second:
        following = [asyncio.create_task(follow(watch, total)) for watch in (first, second)]
        await asyncio.gather(*(write(registry, writer) for writer in range(WRITERS)))
        batches, also = await asyncio.gather(*following)

    events = await registry.store.events(after=0, limit=total * 2)
    assert [event.revision for event in events] == list(range(1, total + 1))
    for told in (batches, also):
        revisions = [batch.revision for batch in told]
        assert revisions == sorted(set(revisions))
        functions = [change.function for batch in told for change in batch.changes]
        assert [function.revision for function in functions] == sorted(function.revision for function in functions)
        assert max(Counter(function.revision for function in functions).values()) == 1
        for before, batch in zip([0, *revisions], told, strict=False):
            assert all(before < change.function.revision <= batch.revision for change in batch.changes)
        newest = {function.name: function for function in functions}
        assert len(newest) == WRITERS * EACH
        assert all(function.memory_mb == 256 for function in newest.values())


@pytest.mark.fault(29)
async def test_of_racing_updates_with_one_etag_exactly_one_wins(postgres_registry: RunningRegistry) -> None:
    registry = postgres_registry
    before = await registry.create()

    results = await outcomes(
        *(registry.user().UpdateFunction(update(etag=before.etag, memory_mb=64 + n)) for n in range(WRITERS))
    )

    won = [result.function for result in results if not isinstance(result, PlatformError)]
    assert won == [await registry.get()]
    assert [type(each) for each in results if isinstance(each, PlatformError)] == [Aborted] * (WRITERS - 1)


async def test_racing_updates_of_different_fields_all_hold(postgres_registry: RunningRegistry) -> None:
    registry = postgres_registry
    await registry.create()

    await asyncio.gather(
        registry.user().UpdateFunction(update(memory_mb=256)),
        registry.user().UpdateFunction(update(description="new")),
        registry.user().UpdateFunction(update(labels={"a": "b"})),
        registry.user().UpdateFunction(update(env_vars={"A": "1"})),
    )

    after = await registry.get()
    assert (after.memory_mb, after.description, after.generation) == (256, "new", 5)
    assert (dict(after.labels), dict(after.env_vars)) == ({"a": "b"}, {"A": "1"})


@pytest.mark.fault(31)
async def test_of_racing_creates_exactly_one_wins(postgres_registry: RunningRegistry) -> None:
    registry = postgres_registry

    results = await outcomes(*(registry.create() for _ in range(40)))

    assert sum(isinstance(result, pb.Function) for result in results) == 1
    assert sum(isinstance(result, AlreadyExists) for result in results) == 39


@pytest.mark.fault(2)
async def test_racing_creates_and_deletes_leave_at_most_one_live_function(
    postgres_registry: RunningRegistry,
) -> None:
    registry = postgres_registry
    delete = pb.DeleteFunctionRequest(namespace=NAMESPACE, name="hello")

    async def churn() -> list[pb.Function]:
        made = []
        for _ in range(EACH):
            results = await outcomes(registry.create(), registry.user().DeleteFunction(delete))
            made += [result for result in results if isinstance(result, pb.Function)]
        return made

    async with registry.invoker():
        made = [function for some in await asyncio.gather(*(churn() for _ in range(4))) for function in some]
        live = (await registry.user().ListFunctions(pb.ListFunctionsRequest(namespace=NAMESPACE))).functions

    assert len({function.uid for function in made}) == len(made) > 0
    assert len(live) <= 1
    for function in made:
        at = await registry.store.function_by_uid(function.uid)
        assert at.function is not None
        assert (at.function.deleted_at is None) == (function.uid in {each.uid for each in live})


async def test_what_is_created_while_its_namespace_is_deleted_lives_in_a_namespace(
    postgres_registry: RunningRegistry,
) -> None:
    registry = postgres_registry
    await registry.create("first")
    delete = pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE)

    async with registry.invoker():
        await outcomes(
            *(registry.create(f"f-{n}") for n in range(WRITERS)),
            registry.user().DeleteNamespace(delete),
            *(registry.create(f"g-{n}") for n in range(WRITERS)),
        )
        live = (await registry.user().ListFunctions(pb.ListFunctionsRequest(namespace=NAMESPACE))).functions
        for function in live:
            request = pb.GetWorkloadRequest(function_uid=function.uid)
            workload = (await registry.service("runtime-manager").GetWorkload(request)).workload
            assert workload.namespace_number > 0


async def test_updates_that_race_with_a_delete_hold_or_are_told(postgres_registry: RunningRegistry) -> None:
    registry = postgres_registry
    function = await registry.create()
    delete = pb.DeleteFunctionRequest(namespace=NAMESPACE, name="hello")

    async with registry.invoker():
        results = await outcomes(
            *(registry.user().UpdateFunction(update(memory_mb=64 + n)) for n in range(8)),
            registry.user().DeleteFunction(delete),
            *(registry.user().UpdateFunction(update(memory_mb=164 + n)) for n in range(8)),
        )

    held = sum(isinstance(result, pb.UpdateFunctionResponse) for result in results)
    assert sum(isinstance(result, NotFound) for result in results) == 16 - held
    at = await registry.store.function_by_uid(function.uid)
    assert at.function is not None
    assert at.function.generation == 1 + held


async def test_reports_that_race_with_uploads_keep_what_must_hold(postgres_registry: RunningRegistry) -> None:
    """Builds are reported while newer code comes: the last one serves, whatever the order."""
    registry = postgres_registry
    function = await registry.create()

    async def upload(n: int) -> None:
        await registry.built((await registry.upload(code=str(n))).version)

    async with registry.invoker():
        await asyncio.gather(*(upload(n) for n in range(WRITERS)))
        newest = await registry.user().GetVersion(pb.GetVersionRequest(namespace=NAMESPACE, name="hello"))
        assert await registry.report(function)
        after = await registry.get()

    assert after.phase == pb.PHASE_READY
    assert newest.version.version == WRITERS
    assert after.active_version == after.desired_version == WRITERS


async def test_a_watcher_at_another_registry_is_woken(service_database: ServiceDatabase) -> None:
    """Commits are noticed by LISTEN and NOTIFY, long before the poll."""
    dsn = await service_database("registry", MIGRATIONS)
    start = pb.WatchStart(resource_types=EVERYTHING, revision=0)
    async with on_postgres(dsn) as here, on_postgres(dsn) as there, there.watching("builder", start) as watch:
        await here.create("first")
        assert (await watch.read()).revision == 1
        for revision in (2, 3):
            reading = asyncio.create_task(watch.read())
            await here.create(f"f-{revision}")
            assert (await asyncio.wait_for(reading, POLL.total_seconds() / 2)).revision == revision
