"""Work that comes to its end."""

from __future__ import annotations

import asyncio

import pytest
from sless_builder.application.finishing import in_thread, to_its_end
from sless_builder.errors import LeaseLost


async def test_a_cancellation_waits_for_work_that_cannot_be_stopped() -> None:
    go, done = asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(True)

    task = asyncio.create_task(to_its_end(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_a_thread_gives_its_result_and_its_error() -> None:
    assert await in_thread(lambda: 42) == 42
    with pytest.raises(LeaseLost):
        await in_thread(_lose)


def _lose() -> None:
    raise LeaseLost("x")
