"""The instances of one function: which connection a call gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sless_calls import CallError, CallHead, Connection, InstanceAddress, InstanceSet, NotReachable

from tests.support.fake_instance import FakeInstance, fake_instance

HEAD = CallHead(id="c")


def address(instance: FakeInstance, name: str = "i") -> InstanceAddress:
    return InstanceAddress(name, instance.address, instance.max_concurrency)


@asynccontextmanager
async def instance_set(**options: Any) -> AsyncIterator[InstanceSet]:
    found = InstanceSet(role="gateway", open_timeout=timedelta(seconds=5), **options)
    try:
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def instances(folder: Path, count: int, **options: Any) -> AsyncIterator[list[FakeInstance]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(fake_instance(folder / f"i{number}", **options)) for number in range(count)
        ]


async def acquired(pool: InstanceSet) -> Connection:
    async with asyncio.timeout(10):
        connection = await pool.acquire_opening()
    assert connection is not None
    return connection


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_without_instances_there_is_none(tmp_path: Path) -> None:
    async with instance_set() as pool:
        assert pool.acquire() is None
        assert await pool.acquire_opening() is None


async def test_connections_are_opened_when_first_wanted_and_then_kept(tmp_path: Path) -> None:
    async with instances(tmp_path, 1) as (one,), instance_set() as pool:
        pool.update([address(one)])
        assert one.connections == []
        first = await acquired(pool)
        assert pool.acquire() is first
        assert len(one.connections) == 1


async def test_calls_spread_over_instances_least_loaded_first(tmp_path: Path) -> None:
    async with instances(tmp_path, 3, max_concurrency=2) as fakes, instance_set() as pool:
        pool.update([address(fake, f"i{number}") for number, fake in enumerate(fakes)])
        for _ in range(6):
            (await acquired(pool)).call(HEAD)
        assert pool.acquire() is None
        assert await pool.acquire_opening() is None
        await eventually(lambda: [len(fake.calls) for fake in fakes] == [2, 2, 2])
        fakes[1].calls[0].reply()
        await eventually(lambda: pool.in_flight == 5)
        assert (await acquired(pool)).address == fakes[1].address


async def test_room_is_told_when_a_call_is_over(tmp_path: Path) -> None:
    told: list[int] = []
    async with (
        instances(tmp_path, 1, max_concurrency=1) as (one,),
        instance_set(on_room=lambda: told.append(1)) as pool,
    ):
        pool.update([address(one)])
        call = (await acquired(pool)).call(HEAD)
        assert pool.acquire() is None
        told.clear()
        (await one.received(1))[0].reply()
        await call.reply()
        assert told
        assert pool.acquire() is not None


async def test_a_draining_instance_is_not_chosen_and_finishes(tmp_path: Path) -> None:
    async with instances(tmp_path, 2) as (one, other), instance_set() as pool:
        pool.update([address(one, "one"), address(other, "other")])
        connection = await acquired(pool)
        call = connection.call(HEAD)
        busy, free = (one, other) if connection.address == one.address else (other, one)
        busy.drain()
        await eventually(lambda: connection.draining)
        for _ in range(5):
            chosen = await acquired(pool)
            assert chosen.address == free.address
            chosen.call(HEAD)
        (await busy.received(1))[0].reply(body=b"done")
        assert await call.read() == b"done"
        await eventually(lambda: connection.closed)


async def test_a_removed_instance_finishes_its_calls_and_gets_no_new_one(tmp_path: Path) -> None:
    async with instances(tmp_path, 2) as (one, other), instance_set() as pool:
        pool.update([address(one, "one")])
        connection = await acquired(pool)
        call = connection.call(HEAD)
        pool.update([address(other, "other")])
        assert (await acquired(pool)).address == other.address
        assert pool.in_flight == 1
        (await one.received(1))[0].reply(body=b"done")
        assert await call.read() == b"done"
        await eventually(lambda: connection.closed)


async def test_an_instance_removed_while_its_connection_opens_is_let_go(tmp_path: Path) -> None:
    async with instances(tmp_path, 1) as (one,), instance_set() as pool:
        pool.update([address(one)])
        assert pool.acquire() is None
        pool.update([])
        assert await pool.acquire_opening() is None
        await eventually(lambda: all(transport.is_closing() for transport in one.connections))


async def test_an_unreachable_instance_is_told_and_others_serve(tmp_path: Path) -> None:
    faults: list[tuple[str, type]] = []

    def unreachable(who: InstanceAddress, why: CallError) -> None:
        faults.append((who.instance_id, type(why)))

    async with instances(tmp_path, 1) as (one,), instance_set(on_unreachable=unreachable) as pool:
        gone = InstanceAddress("gone", f"unix:{tmp_path}/gone", 4)
        pool.update([gone])
        assert await pool.acquire_opening() is None
        assert faults == [("gone", NotReachable)]
        assert await pool.acquire_opening() is None
        assert len(faults) == 1, "it is not tried again at once"
        pool.update([gone, address(one, "one")])
        assert (await acquired(pool)).address == one.address


async def test_an_unreachable_instance_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    async with instance_set() as pool:
        pool.update([InstanceAddress("late", f"unix:{tmp_path}/late", 4)])
        assert await pool.acquire_opening() is None
        async with fake_instance(tmp_path / "late"):
            async with asyncio.timeout(10):
                while (connection := await pool.acquire_opening()) is None:
                    await asyncio.sleep(0.01)
            assert connection.address.endswith("late")


async def test_a_lost_connection_is_opened_anew(tmp_path: Path) -> None:
    async with instances(tmp_path, 1) as (one,), instance_set() as pool:
        pool.update([address(one)])
        first = await acquired(pool)
        one.connections[0].abort()
        await eventually(lambda: first.closed)
        async with asyncio.timeout(10):
            while (second := await pool.acquire_opening()) is None:
                await asyncio.sleep(0.01)
        assert second is not first


async def test_an_instance_that_moved_gets_a_new_connection(tmp_path: Path) -> None:
    async with instances(tmp_path, 2) as (old, new), instance_set() as pool:
        pool.update([address(old, "same")])
        first = await acquired(pool)
        pool.update([address(new, "same")])
        assert (await acquired(pool)).address == new.address
        await eventually(lambda: first.closed)


async def test_more_concurrency_means_more_room(tmp_path: Path) -> None:
    async with instances(tmp_path, 1, max_concurrency=1) as (one,), instance_set() as pool:
        pool.update([address(one)])
        (await acquired(pool)).call(HEAD)
        assert pool.acquire() is None
        pool.update([InstanceAddress("i", one.address, 2)])
        assert pool.acquire() is not None


async def test_close_leaves_nothing(tmp_path: Path) -> None:
    async with instances(tmp_path, 1) as (one,):
        pool = InstanceSet(role="gateway", open_timeout=timedelta(seconds=5))
        pool.update([address(one)])
        call = (await acquired(pool)).call(HEAD)
        await pool.close()
        with pytest.raises(NotReachable):
            await call.reply()
        assert (pool.in_flight, len(pool)) == (0, 0)
        pool.update([address(one)])
        assert await pool.acquire_opening() is None
