"""The caller's side against real instances of the Python runtime."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sless_calls import (
    AnswerCut,
    Call,
    CallHead,
    Connection,
    InstanceCrashed,
    InstanceSilent,
    LoadFailed,
    LogLine,
    NotReachable,
    NotSent,
    Refused,
)

from runtimes.contract.harness import Instance
from runtimes.contract.instances import Instances

SOON = timedelta(seconds=20)
BOTH = pytest.mark.parametrize("name", ["echo", "async_echo"])
SLOW = pytest.mark.parametrize("name", ["slow", "async_slow"])
MIB = 1024 * 1024


def head(**members: Any) -> CallHead:
    return CallHead(id="c", headers=[("content-type", "application/json")], **members)


def send(connection: Connection, event: object, **members: Any) -> Call:
    return connection.call(head(**members), json.dumps(event).encode())


async def answer(connection: Connection, event: object, **members: Any) -> Any:
    call = send(connection, event, **members)
    assert (await call.reply()).status == 200
    return json.loads(await call.read())


@asynccontextmanager
async def connected(instance: Instance, role: str = "gateway", **options: Any) -> AsyncIterator[Connection]:
    connection = await Connection.open(instance.address, role=role, open_timeout=SOON, **options)
    try:
        yield connection
    finally:
        await connection.close()


async def until(condition: Any) -> None:
    """Wait until an awaitable condition holds."""
    async with asyncio.timeout(15):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_hello(instances: Instances) -> None:
    async with connected(instances.shared("echo")) as connection:
        hello = connection.hello
        assert (hello.function, hello.version, hello.max_concurrency) == ("fixture", 7, 16)
        assert await connection.ping() > timedelta(0)


@pytest.mark.fault(31)
@BOTH
async def test_forty_writers_and_thirty_readers_at_once_each_get_their_own_answer(
    instances: Instances, name: str
) -> None:
    instance = instances.fresh(name, concurrency=100)
    async with connected(instance) as one, connected(instance) as other:

        async def writer(number: int) -> None:
            for turn in range(5):
                event = {"writer": number, "turn": turn, "filling": "x" * (number * 1000)}
                found = await answer((one, other)[turn % 2], event)
                assert {key: found["event"][key] for key in event} == event

        async def reader(number: int) -> None:
            for _ in range(5):
                found = await answer((one, other)[number % 2], None, path=f"/{number}", method="GET")
                assert found["event"] is None
                assert found["context"]["path"] == f"/{number}"

        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(writer(number))
            for number in range(30):
                group.create_task(reader(number))
        assert (one.in_flight, other.in_flight) == (0, 0)


@pytest.mark.fault(31)
async def test_seventy_five_calls_that_raise_among_good_ones(instances: Instances) -> None:
    instance = instances.fresh("errors", concurrency=200)
    async with connected(instance) as connection:
        bad = [send(connection, {"kind": kind}) for kind in ("value", "exit", "base") * 25]
        good = [send(connection, {"kind": "none"}) for _ in range(30)]
        assert [(await call.reply()).status for call in bad] == [500] * 75
        assert [(await call.reply()).status for call in good] == [200] * 30


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


@BOTH
async def test_large_bodies_go_and_come(instances: Instances, name: str) -> None:
    text = "漢" * (4 * MIB)
    async with connected(instances.shared(name)) as connection:
        call = connection.call(head(), json.dumps({"text": text}, ensure_ascii=False).encode())
        assert json.loads(await call.read())["event"]["text"] == text


@BOTH
async def test_a_body_that_is_sent_piece_by_piece(instances: Instances, name: str) -> None:
    async with connected(instances.shared(name)) as connection:
        call = connection.call(CallHead(id="c", headers=[("content-type", "text/plain")]), b"<", end=False)
        for _ in range(30):
            await call.send(b"x" * 100_000)
        call.end()
        assert len(json.loads(await call.read())["event"]["body"]) == 3_000_001


@pytest.mark.parametrize("name", ["stream", "async_stream"])
async def test_a_hundred_megabytes_are_read_slowly_within_bounded_memory(instances: Instances, name: str) -> None:
    instance = instances.fresh(name)
    async with connected(instance) as connection, connected(instance) as other:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        call = send(connection, {"count": 1600, "size": 65536})
        size = 0
        async for piece in call.body():
            size += len(piece)
            if size % (20 * MIB) < 65536:
                assert (await answer(other, {"do": "state"}))["made"] <= size // 65536 + 40
        assert size == 100 * MIB
        assert rss_kib(instance.process.pid) < 80 * 1024
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 * 1024


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1])


async def test_a_reader_that_stops_holds_up_no_other_call(instances: Instances) -> None:
    async with connected(instances.shared("async_stream")) as connection:
        with send(connection, {"do": "whole", "size": 50 * MIB}) as stopped:
            await stopped.reply()
            for _ in range(20):
                call = send(connection, {"do": "whole", "size": 300_000})
                assert len(await call.read()) == 300_000
        await until_idle(connection)


async def until_idle(connection: Connection) -> None:
    async def idle() -> bool:
        return connection.in_flight == 0

    await until(idle)


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


async def test_lines_reach_their_call_and_the_rest_the_runtime_manager(instances: Instances) -> None:
    instance = instances.fresh("print")
    own: list[LogLine] = []
    async with connected(instance, role="runtime-manager", on_log=own.extend) as connection:
        call = send(connection, {"do": "lines", "lines": ["a", "b"]})
        await call.reply()
        assert [line.text for line in call.logs] == ["a", "b"]
        taken: list[LogLine] = []
        call = connection.call(head(), b'{"do": "lines", "lines": ["c"]}', on_log=taken.extend)
        await call.reply()
        assert ([line.text for line in taken], call.logs) == (["c"], [])

        async def told() -> bool:
            return [line.text for line in own] == ["at start", "error at start"]

        await until(told)


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
