"""Events between the launcher and a reader who may be slow."""

from __future__ import annotations

import asyncio

from sless_runtime_manager.adapters.happenings import PENDING_CHARACTERS, Happenings
from sless_runtime_manager.adapters.local.commands import allowance_mb
from sless_runtime_manager.adapters.rules import explain_end
from sless_runtime_manager.ports import InstanceEnded, InstanceOutput


def ended(instance_id: str) -> InstanceEnded:
    return InstanceEnded(instance_id, 0, None, "stopped", "")


async def test_events_come_in_their_order() -> None:
    happenings = Happenings()
    happenings.put_output("i-1", "stdout", "a", 0)
    happenings.put_end(ended("i-1"))
    happenings.put_output("i-2", "stderr", "b", 3)
    assert [await happenings.get() for _ in range(3)] == [
        InstanceOutput("i-1", "stdout", "a"),
        ended("i-1"),
        InstanceOutput("i-2", "stderr", "b", 3),
    ]


async def test_a_reader_waits_for_the_first() -> None:
    happenings = Happenings()
    reading = asyncio.create_task(happenings.get())
    await asyncio.sleep(0)
    happenings.put_end(ended("i-1"))
    assert await reading == ended("i-1")


async def test_output_nobody_reads_is_dropped_and_counted_but_no_end_is() -> None:
    happenings = Happenings()
    chunk = "ü" * (PENDING_CHARACTERS // 4)
    for _ in range(6):
        happenings.put_output("i-1", "stdout", chunk, 1)
    for number in range(2000):
        happenings.put_end(ended(f"i-{number + 2}"))
    read = [await happenings.get() for _ in range(4 + 2000)]
    happenings.put_output("i-1", "stdout", "again", 1)
    assert [event for event in read if isinstance(event, InstanceOutput)] == [
        InstanceOutput("i-1", "stdout", chunk, 1)
    ] * 4
    assert await happenings.get() == InstanceOutput("i-1", "stdout", "again", 2 * (2 * len(chunk) + 1) + 1)


def test_the_allowance_grows_with_the_threads_that_calls_need() -> None:
    assert allowance_mb(64) - allowance_mb(16) == 48 * 8


def test_how_a_process_ended_is_a_sentence() -> None:
    assert explain_end(0, None, asked=True) == "stopped"
    assert explain_end(1, None, asked=False) == "the process ended by itself with exit code 1"
    assert explain_end(None, 9, asked=False) == "the process was killed (SIGKILL), probably because memory ran out"
    assert explain_end(None, 11, asked=False) == "the process crashed (SIGSEGV)"
    assert explain_end(None, 64, asked=False).startswith("the process crashed (")
