from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from sless_platform.errors import Unavailable
from sless_runtime_manager.application.board import Board, Watcher
from sless_runtime_manager.domain import InstanceBatch, InstanceSet, ServingInstance
from sless_runtime_manager.errors import WatcherTooSlow

from tests.support.virtual_time import run_in_virtual_time

PATIENCE = timedelta(seconds=15)


def a_set(uid: str, *instances: str, failure: str = "") -> InstanceSet:
    return InstanceSet(
        function_uid=uid,
        generation=1,
        instances=tuple(
            ServingInstance(instance_id=one, address=f"unix:/{one}", max_concurrency=1, version=1) for one in instances
        ),
        failure=failure,
    )


async def _next(batches: AsyncGenerator[InstanceBatch, None]) -> InstanceBatch:
    async with asyncio.timeout(1):
        return await anext(batches)


def test_nothing_is_told_before_the_board_opens_and_then_everything() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        with board.watching() as watcher:
            batches = watcher.batches()
            first = asyncio.ensure_future(anext(batches))
            board.publish(a_set("f", "i-1"))
            await asyncio.sleep(10)
            assert not first.done()
            board.open()
            batch = await first
            assert (batch.reset, batch.sets) == (True, (a_set("f", "i-1"),))
            await batches.aclose()

    run_in_virtual_time(scenario())


def test_a_slow_reader_gets_the_last_of_many_changes() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        with board.watching() as watcher:
            batches = watcher.batches()
            await _next(batches)
            for number in range(100):
                board.publish(a_set("f", f"i-{number}"))
            board.publish(a_set("g", "i-g"))
            batch = await _next(batches)
            assert batch == InstanceBatch(revision=101, reset=False, sets=(a_set("f", "i-99"), a_set("g", "i-g")))
            await batches.aclose()

    run_in_virtual_time(scenario())


def test_a_set_that_is_as_it_was_is_no_news() -> None:
    board = Board(PATIENCE)
    assert board.publish(a_set("f", "i-1")) == 1
    assert board.publish(a_set("f", "i-1")) is None
    assert board.publish(a_set("unknown")) is None
    assert board.publish(a_set("f")) == 2
    assert board.sets() == ()


def test_a_revision_is_applied_once_every_watcher_has_acknowledged_it() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        await board.applied(0)
        with board.watching() as one, board.watching() as other:
            revision = board.publish(a_set("f", "i-1")) or 0
            applied = asyncio.ensure_future(board.applied(revision))
            one.acknowledge(revision)
            await asyncio.sleep(1)
            assert not applied.done()
            other.acknowledge(revision)
            await asyncio.wait_for(applied, 1)

    run_in_virtual_time(scenario())


def test_a_watcher_that_disconnects_is_waited_for_no_more() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        with board.watching():
            revision = board.publish(a_set("f", "i-1")) or 0
            applied = asyncio.ensure_future(board.applied(revision))
            await asyncio.sleep(1)
            assert not applied.done()
        await asyncio.wait_for(applied, 1)

    run_in_virtual_time(scenario())


def test_a_watcher_that_connects_late_has_to_acknowledge_what_was_before() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        revision = board.publish(a_set("f", "i-1")) or 0
        with board.watching() as watcher:
            assert not board.is_applied(revision)
            batch = await _next(watcher.batches())
            watcher.acknowledge(batch.revision)
            assert board.is_applied(revision)

    run_in_virtual_time(scenario())


def test_a_watcher_that_does_not_acknowledge_is_sent_away() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        loop = asyncio.get_running_loop()
        with board.watching() as silent:
            batches = silent.batches()
            await _next(batches)
            revision = board.publish(a_set("f", "i-1")) or 0
            await board.applied(revision)
            assert loop.time() == PATIENCE.total_seconds()
            with pytest.raises(WatcherTooSlow):
                await _next(batches)

    run_in_virtual_time(scenario())


def test_closing_sends_watchers_away_and_a_reader_that_ends_is_let_go() -> None:
    async def scenario() -> None:
        board = Board(PATIENCE)
        board.open()
        with board.watching() as one, board.watching() as other:
            other.end()
            assert [batch async for batch in other.batches()] == []
            board.close()
            with pytest.raises(Unavailable):
                await _next(one.batches())

    run_in_virtual_time(scenario())


def test_watchers_are_told_apart() -> None:
    board = Board(PATIENCE)
    sources: list[Watcher] = []
    for _ in range(2):
        with board.watching() as watcher:
            sources.append(watcher)
    assert sources[0].source != sources[1].source
