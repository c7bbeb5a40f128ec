"""The caller's side against real instances of the Python runtime: bodies, lines, many at once."""

import asyncio
import json
import resource
from datetime import timedelta

import pytest
from sless_calls import (
    CallHead,
    LogLine,
)

from runtimes.contract.instances import Instances
from tests.support.instance_calls import MIB, answer, connected, head, send, until, until_idle

BOTH = pytest.mark.parametrize("name", ["echo", "async_echo"])


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
