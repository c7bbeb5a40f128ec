"""What takes access away is answered once it holds everywhere, and Ready is told only when the next call succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import NotFound, Unavailable
from sless_registry.application import means

from tests.support.registry import (
    FUNCTIONS,
    NAMESPACE,
    VERSIONS,
    RunningRegistry,
    Watching,
    a_function,
)

REQUEST_ID = "0199e325-1cdf-7cda-9319-e5302a85e291"
SOON = 0.5
"""A deadline, in seconds, of calls that are meant to meet it."""
OFF = pb.Replicas(min=0, max=0, concurrency=16)
ON = pb.Replicas(min=0, max=1, concurrency=16)
TAIL = pb.WatchStart(resource_types=FUNCTIONS, tail=True)


async def delete(registry: RunningRegistry, within: float | None = None, **fields: Any) -> None:
    request = pb.DeleteFunctionRequest(namespace=NAMESPACE, name="hello", **fields)
    await registry.user().DeleteFunction(request, timeout=within)


async def update(registry: RunningRegistry, within: float | None = None, **fields: Any) -> pb.Function:
    request_id = fields.pop("request_id", "")
    request = pb.UpdateFunctionRequest(
        function=a_function(**fields), update_mask=FieldMask(paths=list(fields)), request_id=request_id
    )
    return (await registry.user().UpdateFunction(request, timeout=within)).function


async def pending(call: Coroutine[Any, Any, Any]) -> Unavailable:
    """The error of a call that is stored but not confirmed."""
    with pytest.raises(Unavailable, match="is not yet confirmed everywhere; repeat the request") as refused:
        await call
    assert refused.value.reason == "FENCE_PENDING"
    assert refused.value.retry_after is not None
    return refused.value


async def read_until(watch: Watching, revision: int) -> None:
    """Read, without acknowledging, until this revision was sent."""
    while (await watch.read()).revision < revision:
        pass


@pytest.mark.fault(1)
async def test_a_delete_is_answered_after_the_invoker_has_applied_it(registry: RunningRegistry) -> None:
    await registry.create()
    async with registry.watching("invoker", TAIL) as invoker:
        await invoker.read()
        deleting = asyncio.create_task(delete(registry))
        await read_until(invoker, 2)
        assert not deleting.done()

        await invoker.acknowledge(2)

        await deleting


@pytest.mark.fault(1)
async def test_a_delete_that_is_not_confirmed_is_stored_and_says_so(registry: RunningRegistry) -> None:
    await registry.create()

    error = await pending(delete(registry, SOON))

    assert error.message == "'hello' is deleted, but it is not yet confirmed everywhere; repeat the request"
    with pytest.raises(NotFound):
        await registry.get()


@pytest.fixture
def at_the_fence(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a call begins to wait for a fence."""
    reached = asyncio.Event()

    def fault_point(name: str) -> None:
        assert name == "registry.before_fence"
        reached.set()

    monkeypatch.setattr(means, "fault_point", fault_point)
    return reached


@pytest.mark.parametrize("request_id", ["", REQUEST_ID])
async def test_a_delete_that_is_repeated_waits_on_and_succeeds(
    registry: RunningRegistry, request_id: str, at_the_fence: asyncio.Event
) -> None:
    await registry.create()
    await pending(delete(registry, SOON, request_id=request_id))
    at_the_fence.clear()

    deleting = asyncio.create_task(delete(registry, request_id=request_id))
    await at_the_fence.wait()
    async with registry.invoker():
        await deleting


async def test_a_confirmed_delete_that_is_repeated_is_not_found(registry: RunningRegistry) -> None:
    await registry.create()
    async with registry.invoker():
        await delete(registry)
        with pytest.raises(NotFound):
            await delete(registry)


async def test_a_namespaces_delete_that_is_repeated_waits_on_and_succeeds(
    registry: RunningRegistry, at_the_fence: asyncio.Event
) -> None:
    await registry.create()
    request = pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE)

    async def delete_namespace(within: float | None = None) -> None:
        await registry.user().DeleteNamespace(request, timeout=within)

    await pending(delete_namespace(SOON))
    at_the_fence.clear()
    deleting = asyncio.create_task(delete_namespace())
    await at_the_fence.wait()
    async with registry.invoker():
        await deleting
        with pytest.raises(NotFound):
            await delete_namespace()


async def test_every_connected_invoker_must_have_applied_it(registry: RunningRegistry) -> None:
    await registry.create()
    async with registry.invoker(), registry.watching("invoker", TAIL) as second:
        await second.read()
        await pending(delete(registry, SOON))
        await second.acknowledge(2)
        with pytest.raises(NotFound):
            await delete(registry)


async def test_only_an_invoker_that_follows_functions_counts(registry: RunningRegistry) -> None:
    await registry.create()
    others = pb.WatchStart(resource_types=VERSIONS, tail=True)
    async with registry.watching("builder", TAIL) as builder, registry.watching("invoker", others):
        await builder.read()
        deleting = asyncio.create_task(pending(delete(registry, SOON)))
        await read_until(builder, 2)
        await builder.acknowledge(2)
        await deleting


async def test_an_invoker_that_resumes_has_applied_what_came_before(registry: RunningRegistry) -> None:
    await registry.create()
    await pending(delete(registry, SOON))

    start = pb.WatchStart(resource_types=FUNCTIONS, revision=1)
    async with registry.watching("invoker", start) as behind:
        await read_until(behind, 2)
        await pending(delete(registry, SOON))
    start.revision = 2
    async with registry.watching("invoker", start):
        await delete_or_gone(registry)


async def test_an_invoker_that_begins_with_nothing_has_nothing_outdated(registry: RunningRegistry) -> None:
    await registry.create()
    await pending(delete(registry, SOON))

    async with registry.watching("invoker", TAIL):
        await delete_or_gone(registry)


async def delete_or_gone(registry: RunningRegistry) -> None:
    """Once the fence has passed, a repeated delete succeeds, or finds nothing when the watch was quicker."""
    try:
        await delete(registry)
    except NotFound:
        return


async def test_an_invoker_with_a_snapshot_must_apply_it_first(registry: RunningRegistry) -> None:
    await registry.create()
    start = pb.WatchStart(resource_types=FUNCTIONS, snapshot=True)
    async with registry.watching("invoker", start) as invoker:
        assert (await invoker.read()).revision == 1
        await pending(delete(registry, SOON))
        await read_until(invoker, 2)
        await invoker.acknowledge(2)
        await delete_or_gone(registry)


async def test_access_that_is_taken_away_waits_and_other_changes_do_not(registry: RunningRegistry) -> None:
    await registry.create()
    assert (await update(registry, memory_mb=256)).generation == 2

    await pending(update(registry, SOON, access=pb.ACCESS_AUTHENTICATED))

    assert (await registry.get()).access == pb.ACCESS_AUTHENTICATED
    await pending(update(registry, SOON, access=pb.ACCESS_AUTHENTICATED))
    assert (await update(registry, memory_mb=512)).generation == 4
    assert (await update(registry, access=pb.ACCESS_PUBLIC)).generation == 5
    async with registry.invoker():
        closed = await update(registry, access=pb.ACCESS_AUTHENTICATED)
        assert (closed.access, closed.generation) == (pb.ACCESS_AUTHENTICATED, 6)
        assert await update(registry, access=pb.ACCESS_AUTHENTICATED) == closed


async def test_switched_off_is_ready_after_the_fence_without_a_deployment(registry: RunningRegistry) -> None:
    async with registry.invoker():
        function = await registry.deployed()

        off = await update(registry, replicas=OFF)

        assert (off.phase, off.message) == (pb.PHASE_READY, "switched off: replicas is 0")
        assert off.observed_generation == off.generation == 3
        assert await registry.get() == off
        assert not await registry.report(function)
        on = await update(registry, replicas=ON)
        assert (on.phase, on.observed_generation) == (pb.PHASE_DEPLOYING, 3)
        assert await registry.report(function)
        assert (await registry.get()).phase == pb.PHASE_READY


async def test_switching_off_is_settled_when_the_invoker_comes_later(registry: RunningRegistry) -> None:
    async with registry.invoker():
        await registry.deployed()
    await pending(update(registry, SOON, replicas=OFF, request_id=REQUEST_ID))
    waiting = await registry.get()
    assert (waiting.phase, waiting.message) == (pb.PHASE_DEPLOYING, "switching off: replicas is 0")

    async with registry.invoker():
        settled = await outcome(registry)
        again = await update(registry, replicas=OFF, request_id=REQUEST_ID)

    assert settled.phase == pb.PHASE_READY
    assert again == settled


async def test_code_that_is_built_while_switched_off_is_ready_after_the_fence(registry: RunningRegistry) -> None:
    async with registry.invoker():
        await registry.create(replicas=OFF)
        await registry.built((await registry.upload()).version)

        function = await outcome(registry)

    assert (function.phase, function.desired_version, function.active_version) == (pb.PHASE_READY, 1, 0)


async def outcome(registry: RunningRegistry) -> pb.Function:
    """The function once its outcome is known."""
    request = pb.WaitFunctionRequest(namespace=NAMESPACE, name="hello")
    request.wait.seconds = 20
    function = (await registry.user().WaitFunction(request, timeout=30)).function
    assert function.observed_generation == function.generation
    return function


@pytest.mark.fault(3)
async def test_ready_is_stored_after_the_invoker_has_applied_what_was_asked_for(registry: RunningRegistry) -> None:
    async with registry.watching("invoker", TAIL) as invoker:
        await invoker.read()
        function = await registry.create()
        await registry.built((await registry.upload()).version)
        await read_until(invoker, 3)
        reporting = asyncio.create_task(registry.report(function))
        await invoker.acknowledge(2)
        assert (await registry.get()).phase == pb.PHASE_DEPLOYING
        assert not reporting.done()

        await invoker.acknowledge(3)

        assert await reporting
        assert (await registry.get()).phase == pb.PHASE_READY


@pytest.mark.fault(3)
async def test_ready_is_not_stored_without_an_invoker(registry: RunningRegistry) -> None:
    function = await registry.create()
    await registry.built((await registry.upload()).version)
    request = pb.ReportStatusRequest(function_uid=function.uid, generation=2, version=1, phase=pb.PHASE_READY)

    async def report() -> None:
        await registry.service("runtime-manager").ReportStatus(request, timeout=SOON)

    error = await pending(report())

    assert error.message.startswith("version 1 of 'hello' serves, but")
    assert (await registry.get()).phase == pb.PHASE_DEPLOYING


async def test_failed_is_stored_without_a_fence(registry: RunningRegistry) -> None:
    function = await registry.create()
    await registry.built((await registry.upload()).version)

    assert await registry.report(function, pb.PHASE_FAILED, message="exit code 1")
