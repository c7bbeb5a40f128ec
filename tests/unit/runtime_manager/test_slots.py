from __future__ import annotations

import asyncio
from datetime import timedelta

from sless_runtime_manager.application.slots import StartSlots

from tests.support.virtual_time import run_in_virtual_time


async def _start(slots: StartSlots, owner: str, seconds: float, order: list[str]) -> None:
    async with slots.slot(owner):
        order.append(owner)
        await asyncio.sleep(seconds)


def test_no_more_start_at_once_than_there_are_slots() -> None:
    async def scenario() -> None:
        slots, order = StartSlots(2, timedelta(seconds=5)), list[str]()
        async with asyncio.TaskGroup() as tasks:
            for owner in "abcdef":
                tasks.create_task(_start(slots, owner, 1, order))
            await asyncio.sleep(0.5)
            assert len(order) == 2
            await asyncio.sleep(1)
            assert len(order) == 4
        assert sorted(order) == list("abcdef")

    run_in_virtual_time(scenario())


def test_a_hundred_starts_of_one_owner_delay_anothers_by_one() -> None:
    async def scenario() -> None:
        slots, order = StartSlots(1, timedelta(seconds=5)), list[str]()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(_start(slots, "many", 0.1, order))
            await asyncio.sleep(0.05)
            tasks.create_task(_start(slots, "one", 0.1, order))
        assert order.index("one") == 2

    run_in_virtual_time(scenario())


def test_a_start_that_hangs_gives_its_slot_up() -> None:
    async def scenario() -> None:
        slots, order = StartSlots(1, timedelta(seconds=5)), list[str]()
        async with asyncio.TaskGroup() as tasks:
            hanging = tasks.create_task(_start(slots, "hangs", 1_000, order))
            tasks.create_task(_start(slots, "waits", 0.1, order))
            await asyncio.sleep(4.9)
            assert order == ["hangs"]
            await asyncio.sleep(0.2)
            assert order == ["hangs", "waits"]
            hanging.cancel()
            async with slots.slot("next"):
                assert slots.free == 0
        assert slots.free == 1

    run_in_virtual_time(scenario())


def test_who_is_cancelled_while_waiting_leaves_no_hole() -> None:
    async def scenario() -> None:
        slots, order = StartSlots(1, timedelta(seconds=5)), list[str]()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_start(slots, "first", 1, order))
            given_up = tasks.create_task(_start(slots, "given up", 1, order))
            tasks.create_task(_start(slots, "last", 1, order))
            await asyncio.sleep(0.5)
            given_up.cancel()
        assert order == ["first", "last"]
        assert slots.free == 1

    run_in_virtual_time(scenario())
