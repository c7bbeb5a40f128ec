"""How calls and connections to real instances end: errors, crashes, cancellation, deadlines, DRAIN."""

import asyncio
import json
from datetime import timedelta

import pytest
from sless_calls import (
    AnswerCut,
    Connection,
    InstanceCrashed,
    InstanceSilent,
    LoadFailed,
    NotReachable,
    NotSent,
    Refused,
)

from runtimes.contract.instances import Instances
from tests.support.instance_calls import SOON, answer, connected, send, until, until_idle

SLOW = pytest.mark.parametrize("name", ["slow", "async_slow"])


@pytest.mark.fault(31)
async def test_seventy_five_calls_that_crash_their_instance_all_end_and_others_notice_nothing(
    instances: Instances,
) -> None:
    crashing = [instances.fresh("exit", concurrency=40) for _ in range(2)]
    async with (
        connected(instances.shared("echo")) as bystander,
        connected(crashing[0]) as one,
        connected(crashing[1]) as other,
    ):
        calls = [send((one, other)[number % 2], {"code": 1}) for number in range(75)]
        alive = [send(bystander, {"n": number}) for number in range(10)]
        ends = await asyncio.gather(*(call.reply() for call in calls), return_exceptions=True)
        assert {type(end) for end in ends} == {InstanceCrashed}
        assert [(await call.reply()).status for call in alive] == [200] * 10
        for connection in (one, other):
            assert (connection.closed, connection.in_flight) == (True, 0)
            with pytest.raises(NotSent):
                send(connection, {})


async def test_a_crash_after_the_head_ends_the_body_with_an_error(instances: Instances) -> None:
    instance = instances.fresh("stream")
    async with connected(instance) as connection:
        call = send(connection, {"count": 1000, "size": 100_000})
        body = call.body()
        assert await anext(body)
        instance.process.kill()
        with pytest.raises(InstanceCrashed):
            async for _ in body:
                pass


@SLOW
async def test_a_cancelled_task_cancels_its_call_in_the_instance(instances: Instances, name: str) -> None:
    instance = instances.fresh(name)
    async with connected(instance) as connection:

        async def running() -> bool:
            return bool((await answer(connection, {"do": "state"}))["running"] == 1)

        call = send(connection, {"do": "wait", "name": "a"})
        task = asyncio.create_task(call.reply())
        await until(running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(connection)
        await send(connection, {"do": "release"}).reply()
        if name == "async_slow":
            assert (await answer(connection, {"do": "state"}))["cancelled"] == ["a"]


@SLOW
async def test_a_full_instance_refuses(instances: Instances, name: str) -> None:
    instance = instances.fresh(name, concurrency=1)
    async with connected(instance) as connection:
        with send(connection, {"do": "wait"}), pytest.raises(Refused):
            await send(connection, {"do": "state"}).reply()


@SLOW
async def test_a_deadline_is_answered_by_the_instance(instances: Instances, name: str) -> None:
    async with connected(instances.fresh(name)) as connection:
        call = send(connection, {"do": "wait"}, deadline_ms=150)
        reply = await call.reply()
        assert reply.status == 504
        assert json.loads(call.first_body)["code"] == "FUNCTION_TIMEOUT"
        assert connection.in_flight == 0


async def test_a_stopped_instance_counts_as_silent_five_seconds_after_the_deadline(
    instances: Instances,
) -> None:
    instance = instances.fresh("slow")
    async with connected(instance) as connection:
        instance.process.send_signal(19)  # SIGSTOP
        started = asyncio.get_running_loop().time()
        call = send(connection, {"do": "state"}, deadline_ms=50)
        with pytest.raises(InstanceSilent):
            await call.reply()
        assert 5.0 <= asyncio.get_running_loop().time() - started < 8
        assert connection.draining
        assert connection.in_flight == 0


@SLOW
async def test_drain_is_told_and_what_runs_is_finished(instances: Instances, name: str) -> None:
    instance = instances.fresh(name)
    drained, closed = asyncio.Event(), asyncio.Event()
    async with connected(instance, on_drain=lambda _: drained.set(), on_close=lambda _: closed.set()) as connection:
        call = send(connection, {"do": "sleep", "seconds": 0.5, "name": "a"})
        await connection.ping()
        instance.terminate()
        async with asyncio.timeout(15):
            await drained.wait()
            assert connection.draining
            with pytest.raises(NotSent):
                send(connection, {})
            assert json.loads(await call.read()) == {"name": "a"}
            await closed.wait()
    assert await asyncio.to_thread(instance.wait) == 0


async def test_retiring_a_connection_finishes_its_calls_and_closes_it(instances: Instances) -> None:
    closed = asyncio.Event()
    async with connected(instances.shared("slow"), on_close=lambda _: closed.set()) as connection:
        call = send(connection, {"do": "sleep", "seconds": 0.1, "name": "a"})
        connection.retire()
        with pytest.raises(NotSent):
            send(connection, {})
        assert json.loads(await call.read()) == {"name": "a"}
        async with asyncio.timeout(15):
            await closed.wait()


async def test_an_instance_that_cannot_load_says_why(instances: Instances) -> None:
    instance = instances.fresh("", entrypoint="echo.missing")
    with pytest.raises(LoadFailed, match=r"echo\.py has no 'missing'"):
        await Connection.open(instance.address, role="runtime-manager", open_timeout=SOON)


async def test_nothing_there_is_not_reachable(instances: Instances) -> None:
    instance = instances.fresh("echo")
    instance.process.kill()
    await asyncio.to_thread(instance.wait)
    for address in (instance.address, "unix:/nowhere/at/all", "127.0.0.1:1"):
        with pytest.raises(NotReachable):
            await Connection.open(address, role="gateway", open_timeout=timedelta(seconds=2))


async def test_an_instance_that_is_still_loading_is_waited_for_within_the_timeout(
    instances: Instances,
) -> None:
    instance = instances.fresh("echo")
    instance.process.send_signal(19)  # SIGSTOP
    with pytest.raises(NotReachable, match=r"HELLO within 0\.2 s"):
        await Connection.open(instance.address, role="gateway", open_timeout=timedelta(milliseconds=200))
    instance.process.send_signal(18)  # SIGCONT
    async with connected(instance) as connection:
        assert connection.hello.instance


@pytest.mark.parametrize("name", ["errors", "async_errors"])
async def test_a_handler_that_fails_half_way_cuts_the_answer(instances: Instances, name: str) -> None:
    async with connected(instances.shared(name)) as connection:
        call = send(connection, {"kind": "value", "stream": True})
        body = call.body()
        assert await anext(body) == b"first"
        with pytest.raises(AnswerCut, match="bad value") as caught:
            await anext(body)
        assert caught.value.type == "ValueError"


async def test_closing_a_connection_fails_its_calls_and_stops_them(instances: Instances) -> None:
    instance = instances.fresh("async_slow")
    async with connected(instance) as other:
        async with connected(instance) as connection:
            call = send(connection, {"do": "wait", "name": "a"})
            await connection.ping()
        with pytest.raises(NotReachable):
            await call.reply()

        async def cancelled() -> bool:
            return bool((await answer(other, {"do": "state"}))["cancelled"] == ["a"])

        await until(cancelled)
