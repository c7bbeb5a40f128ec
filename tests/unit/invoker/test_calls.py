"""Calls: waiting in line, going elsewhere, and telling the truth about how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sless_calls.pool import InstanceAddress
from sless_invoker.application.admission import NamespaceAdmission
from sless_invoker.application.body import Body
from sless_invoker.application.calls import Bounds, Calls
from sless_invoker.application.changes import Changes
from sless_invoker.application.instances import Instances, ServingSet
from sless_invoker.application.routes import Routes
from sless_invoker.domain import Call, Kind, LogLine, Reply, Target, Trigger
from sless_invoker.errors import (
    FunctionCrashed,
    FunctionDisabled,
    FunctionNotFound,
    InstancesUnavailable,
    InstanceTimeout,
    NotReady,
    TokenRequired,
    TooManyRequests,
    UrlDisabled,
)
from sless_invoker.ports import Lookup
from sless_platform.errors import FailedPrecondition, Unavailable

from tests.support.fake_instance import FakeInstance, ReceivedCall, fake_instance

CALL = Call(
    namespace="sless-a",
    name="hello",
    kind=None,
    trigger=Trigger.HTTP,
    method="POST",
    path="/a%20b",
    query="x=1&x=2",
    headers=(("X-A", "1"), ("x-a", "2")),
    request_id="r1",
    invocation_id="01J",
    owner_authenticated=False,
)
TARGET = Target(
    uid="u1",
    namespace="sless-a",
    name="hello",
    kind=Kind.SERVICE,
    access_public=True,
    timeout=timedelta(seconds=30),
    max_replicas=2,
    concurrency=16,
    idempotent=False,
    served=True,
    message="",
    revision=1,
)


@dataclass
class World:
    """An invoker's application with fakes around it."""

    targets: dict[str, Target] = field(default_factory=lambda: {"hello": TARGET})
    ensured: list[tuple[str, int]] = field(default_factory=list)
    ensure_error: Exception | None = None
    lines: list[tuple[str, str, str]] = field(default_factory=list)
    bounds: Bounds = field(default_factory=lambda: Bounds(timedelta(seconds=20), 2))
    namespace_calls: int = 100

    def __post_init__(self) -> None:
        self.instances = Instances(self)
        self.routes = Routes(self)
        self.changes = Changes(self.routes, self.instances)
        self.calls = Calls(
            routes=self.routes,
            instances=self.instances,
            namespaces=NamespaceAdmission(self.namespace_calls),
            log=self,
            bounds=self.bounds,
        )

    async def find(self, namespace: str, name: str) -> Lookup:
        return Lookup(self.targets.get(name), 1)

    async def ensure(self, function_uid: str, concurrency: int) -> None:
        self.ensured.append((function_uid, concurrency))
        if self.ensure_error is not None:
            raise self.ensure_error

    def write(self, function_uid: str, request_id: str, lines: Sequence[LogLine]) -> None:
        self.lines += [(function_uid, request_id, line.text) for line in lines]

    def serve(self, *instances: FakeInstance, failure: str = "") -> None:
        """Says that these instances take calls."""
        addresses = tuple(
            InstanceAddress(f"i-{number}", instance.address, instance.max_concurrency)
            for number, instance in enumerate(instances)
        )
        self.instances.apply([ServingSet("u1", addresses, failure)], reset=False)

    async def call(self, call: Call = CALL, body: Body | None = None) -> tuple[Reply, bytes]:
        """One call to its end."""
        target = await self.calls.admit(call)
        head: Reply | None = None
        got = b""
        async with aclosing(self.calls.invoke(call, target, body or whole(b""))) as parts:
            async for part in parts:
                if isinstance(part, Reply):
                    head, got = part, part.first
                else:
                    got += part
        assert head is not None
        return head, got


def whole(data: bytes) -> Body:
    """A body that is there at once."""
    return Body(data, complete=True, rest=_nothing())


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.instances.close()


def echo(call: ReceivedCall) -> None:
    """Answers with what came."""
    call.reply(200, call.body)


async def until(condition: object) -> None:
    """Waits until a condition holds."""
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_call_reaches_the_instance_unchanged(world: World, tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "i", version=7) as instance:
        world.serve(instance)
        calling = asyncio.create_task(world.call(body=whole(b"abc")))
        call = (await instance.received(1))[0]
        call.log("hi")
        echo(call)

        head, body = await calling

    assert (head.status, body, head.version) == (200, b"abc", 7)
    sent = call.head
    assert sent["path"] == "/a%20b"
    assert sent["query"] == "x=1&x=2"
    assert sent["headers"] == [["X-A", "1"], ["x-a", "2"]]
    assert sent["deadline_ms"] == 30_000
    assert (sent["id"], sent["request_id"], sent.get("trigger", "http")) == ("01J", "r1", "http")
    assert world.lines == [("u1", "r1", "hi")]


async def test_calls_wait_in_line_and_are_served_in_their_order(world: World, tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "i", max_concurrency=1) as instance:
        world.serve(instance)
        calls = []
        for number in range(4):
            calls.append(asyncio.create_task(world.call(replace(CALL, invocation_id=str(number)))))
            if number == 0:
                await instance.received(1)
            else:
                await until(lambda number=number: len(world.ensured) >= 1)
        for number in range(4):
            (await instance.received(number + 1))[number].reply()
        await asyncio.gather(*calls)

    assert [call.head["id"] for call in instance.calls] == ["0", "1", "2", "3"]
    assert world.ensured[0][0] == "u1"


async def test_a_call_waits_for_the_first_instance_and_is_cold(world: World, tmp_path: Path) -> None:
    waiting = asyncio.create_task(world.call())
    await until(lambda: world.ensured == [("u1", 1)])
    async with fake_instance(tmp_path / "i") as instance:
        instance.answer = echo
        world.serve(instance)

        head, _ = await waiting
        warm, _ = await world.call()

    assert head.cold
    assert not warm.cold


async def test_the_line_is_bounded(world: World) -> None:
    waiting = [asyncio.create_task(world.call()) for _ in range(4)]
    await until(lambda: world.instances.of("u1").waiting == 4)

    with pytest.raises(TooManyRequests) as refusal:
        await world.call()

    assert refusal.value.retry_after is not None
    for call in waiting:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert world.instances.of("u1").waiting == 0


async def test_nobody_waits_longer_than_the_bound() -> None:
    world = World(bounds=Bounds(timedelta(milliseconds=50), 2))

    with pytest.raises(InstanceTimeout):
        await world.call()

    await world.instances.close()


async def test_who_waits_is_told_at_once_when_no_instance_can_be_had(world: World) -> None:
    world.ensure_error = FailedPrecondition("hello can't start: no module named x")

    with pytest.raises(InstancesUnavailable, match="no module named x"):
        await world.call(replace(CALL, owner_authenticated=True))


async def test_why_a_function_does_not_run_is_told_to_its_owner_alone(world: World) -> None:
    world.ensure_error = FailedPrecondition("hello can't start: line 7 of its code")
    with pytest.raises(InstancesUnavailable) as unavailable:
        await world.call()

    world.targets["hello"] = replace(TARGET, served=False, message="line 7 of its code")
    world.changes.missed()
    with pytest.raises(NotReady) as never_ready:
        await world.call()
    with pytest.raises(NotReady, match="line 7"):
        await world.call(replace(CALL, trigger=Trigger.INVOKE, owner_authenticated=True))

    assert "line 7" not in unavailable.value.message + never_ready.value.message


async def test_who_waits_goes_on_waiting_while_the_runtime_manager_is_away(world: World, tmp_path: Path) -> None:
    world.ensure_error = Unavailable("away")
    waiting = asyncio.create_task(world.call())
    await until(lambda: world.ensured)
    async with fake_instance(tmp_path / "i") as instance:
        instance.answer = echo
        world.serve(instance)
        head, _ = await waiting

    assert head.status == 200


@pytest.mark.fault(1)
async def test_who_waits_for_a_deleted_function_is_told_so_and_nobody_reaches_it_again(world: World) -> None:
    waiting = asyncio.create_task(world.call())
    await until(lambda: world.ensured)

    del world.targets["hello"]
    world.changes.changed([(TARGET, True)], 5)

    with pytest.raises(FunctionNotFound):
        await waiting
    with pytest.raises(FunctionNotFound):
        await world.call()


async def test_a_refused_call_goes_elsewhere(world: World, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        full = await stack.enter_async_context(fake_instance(tmp_path / "full"))
        free = await stack.enter_async_context(fake_instance(tmp_path / "free"))
        refused: list[ReceivedCall] = []

        def refuse(call: ReceivedCall) -> None:
            refused.append(call)
            call.reply(503, retry=True)
            world.serve(free)

        full.answer, free.answer = refuse, echo
        world.serve(full)
        head, body = await world.call(body=whole(b"once"))

    assert (head.status, body, len(refused)) == (200, b"once", 1)


async def test_a_streamed_body_is_whole_after_a_refusal(world: World, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"b" * 1000, b"c" * 1000):
            yield piece

    async with AsyncExitStack() as stack:
        full = await stack.enter_async_context(fake_instance(tmp_path / "full"))
        free = await stack.enter_async_context(fake_instance(tmp_path / "free"))
        world.serve(full)
        calling = asyncio.create_task(world.call(body=Body(b"a", complete=False, rest=pieces())))
        call = (await full.received(1))[0]
        await call.ended.wait()
        world.serve(free)
        call.reply(503, retry=True)
        again = (await free.received(1))[0]
        await again.ended.wait()
        again.reply(200, b"ok")
        await calling

    assert again.body == b"a" + b"b" * 1000 + b"c" * 1000


@pytest.mark.fault(31)
async def test_an_instance_that_dies_costs_its_own_calls_only(world: World, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        dying = await stack.enter_async_context(fake_instance(tmp_path / "dying"))
        world.serve(dying)
        calls = [asyncio.create_task(world.call()) for _ in range(3)]
        for call in await dying.received(3):
            call.crash()

        ended = await asyncio.gather(*calls, return_exceptions=True)
        fresh = await stack.enter_async_context(fake_instance(tmp_path / "fresh"))
        fresh.answer = echo
        world.serve(fresh)
        head, _ = await world.call()

    assert [type(error) for error in ended] == [FunctionCrashed] * 3
    assert head.status == 200
    assert len(dying.calls) == 3


async def test_an_idempotent_call_is_sent_once_more_after_a_crash(world: World, tmp_path: Path) -> None:
    world.targets["hello"] = replace(TARGET, idempotent=True)
    async with AsyncExitStack() as stack:
        dying = await stack.enter_async_context(fake_instance(tmp_path / "dying"))
        fresh = await stack.enter_async_context(fake_instance(tmp_path / "fresh"))
        fresh.answer = echo
        world.serve(dying)
        calling = asyncio.create_task(world.call())
        call = (await dying.received(1))[0]
        world.serve(fresh)
        call.crash()

        head, _ = await calling

    assert head.status == 200


async def test_a_crash_after_the_head_is_told_and_not_repeated(world: World, tmp_path: Path) -> None:
    world.targets["hello"] = replace(TARGET, idempotent=True)
    async with fake_instance(tmp_path / "i") as instance:
        world.serve(instance)
        calling = asyncio.create_task(world.call())
        call = (await instance.received(1))[0]
        call.reply(200, b"half", end=False)
        call.crash()

        with pytest.raises(FunctionCrashed):
            await calling

    assert len(instance.calls) == 1


async def test_a_caller_that_goes_away_stops_the_call(world: World, tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "i") as instance:
        world.serve(instance)
        calling = asyncio.create_task(world.call())
        call = (await instance.received(1))[0]

        calling.cancel()

        async with asyncio.timeout(5):
            await call.cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_an_answer_streams_as_it_comes(world: World, tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "i") as instance:
        world.serve(instance)
        async with aclosing(world.calls.invoke(CALL, TARGET, whole(b""))) as parts:
            first = asyncio.ensure_future(anext(parts))
            call = (await instance.received(1))[0]
            call.reply(200, b"one", end=False)
            assert isinstance(await first, Reply)
            assert await anext(parts) == b"one"
            call.more(b"two")
            assert await anext(parts) == b"two"
            call.end()
            with pytest.raises(StopAsyncIteration):
                await anext(parts)


async def test_a_namespace_has_so_many_calls_at_once_and_another_is_not_touched(tmp_path: Path) -> None:
    world = World(namespace_calls=1)
    async with fake_instance(tmp_path / "i") as instance:
        world.serve(instance)
        running = asyncio.create_task(world.call())
        call = (await instance.received(1))[0]

        with pytest.raises(TooManyRequests):
            await world.call()
        other = replace(TARGET, namespace="sless-b", uid="u1")
        world.targets["other"] = other
        calling = asyncio.create_task(world.call(replace(CALL, namespace="sless-b", name="other")))
        (await instance.received(2))[1].reply()
        assert (await calling)[0].status == 200

        call.reply()
        await running
    await world.instances.close()


REFUSALS = [
    (replace(TARGET, kind=Kind.FUNCTION), CALL, FunctionNotFound),
    (replace(TARGET, max_replicas=0), CALL, UrlDisabled),
    (replace(TARGET, max_replicas=0), replace(CALL, trigger=Trigger.INVOKE), FunctionDisabled),
    (replace(TARGET, served=False, message="Building"), CALL, NotReady),
    (replace(TARGET, access_public=False), CALL, TokenRequired),
    (TARGET, replace(CALL, kind=Kind.FUNCTION), FunctionNotFound),
    (TARGET, replace(CALL, name="other"), FunctionNotFound),
]


@pytest.mark.parametrize(("target", "call", "error"), REFUSALS)
async def test_a_call_that_may_not_be_made_is_refused_with_the_reason(
    world: World, target: Target, call: Call, error: type[Exception]
) -> None:
    world.targets["hello"] = target

    with pytest.raises(error):
        await world.calls.admit(call)


ADMITTED = [
    (replace(TARGET, access_public=False), replace(CALL, owner_authenticated=True)),
    (replace(TARGET, access_public=False), replace(CALL, trigger=Trigger.INVOKE, owner_authenticated=True)),
    (replace(TARGET, kind=Kind.FUNCTION), replace(CALL, trigger=Trigger.INVOKE)),
]


@pytest.mark.parametrize(("target", "call"), ADMITTED)
async def test_a_call_that_may_be_made_is_admitted(world: World, target: Target, call: Call) -> None:
    world.targets["hello"] = target

    assert await world.calls.admit(call) == target


async def test_activity_is_the_most_calls_at_once_and_idle_functions_are_forgotten(
    world: World, tmp_path: Path
) -> None:
    async with fake_instance(tmp_path / "i") as instance:
        world.serve(instance)
        calls = [asyncio.create_task(world.call()) for _ in range(3)]
        for call in await instance.received(3):
            call.reply()
        await asyncio.gather(*calls)

        assert world.instances.take_activity() == [("u1", 3)]
        assert world.instances.take_activity() == []

        world.serve()
        world.instances.take_activity()
        assert len(world.instances) == 0
