"""Acknowledgements and the feed: who waits is woken exactly when it should be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sless_platform.errors import Unavailable
from sless_registry.adapters.memory import MemoryStore
from sless_registry.adapters.sealing import AesGcmSealer
from sless_registry.application.acknowledgements import Acknowledgements
from sless_registry.application.feed import Feed
from sless_registry.application.housekeeping import Housekeeping
from sless_registry.application.means import Means, Policy
from sless_registry.domain.record import changes
from sless_registry.ports import Span

from tests.support.registry_domain import NOW, a_record

AT_ONCE = timedelta(0)


async def test_a_revision_holds_once_every_connected_watcher_has_applied_it() -> None:
    known = Acknowledgements("invoker")
    assert not await known.reached(0, AT_ONCE)
    with known.watching("invoker") as first, known.watching("invoker") as second:
        first.acknowledge(5)
        assert not known.holds(5)
        second.acknowledge(4)
        assert known.holds(4)
        assert not await known.reached(5, AT_ONCE)
        second.acknowledge(9)
        assert await known.reached(5, None)
        second.acknowledge(1)
        assert known.holds(5)


async def test_who_waits_passes_when_the_last_watcher_that_is_behind_goes_away() -> None:
    known = Acknowledgements("invoker")
    with known.watching("invoker") as first:
        first.acknowledge(5)
        with known.watching("invoker"):
            waiting = asyncio.create_task(known.reached(5, None))
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting


async def test_when_the_last_watcher_goes_away_nothing_passes() -> None:
    known = Acknowledgements("invoker")
    with known.watching("invoker") as first:
        first.acknowledge(5)
    assert not await known.reached(5, AT_ONCE)


async def test_other_services_watchers_do_not_count() -> None:
    known = Acknowledgements("invoker")
    with known.watching("builder") as builder:
        builder.acknowledge(5)
        assert not known.holds(1)
        with known.watching("invoker") as invoker:
            invoker.acknowledge(7)
            assert known.holds(7)


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[None]:
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def write(store: MemoryStore, uid: str = "a", times: int = 1) -> None:
    """Write a function so often."""
    for n in range(times):
        record = a_record(uid=uid, name=uid)
        changed = record.with_function(replace(record.function, message=str(n)))
        async with store.transaction() as transaction:
            await transaction.write(changes(None, changed))


async def test_only_followers_of_what_changed_are_told() -> None:
    store = MemoryStore()
    feed = Feed(store, store.wakes)
    await write(store, "c")
    async with running(feed), asyncio.timeout(5):
        await feed.after(0)
        with feed.following("a") as a, feed.following("b") as b:
            await write(store, "a")
            await a.wait()
            assert not b.is_set()


async def test_who_looked_before_the_feed_began_is_told() -> None:
    store = MemoryStore()
    feed = Feed(store, store.wakes)
    with feed.following("a") as a:
        await write(store, "a")
        async with running(feed), asyncio.timeout(5):
            await a.wait()


async def test_whoever_is_behind_goes_on_at_once_and_whoever_is_not_waits() -> None:
    store = MemoryStore()
    await write(store, times=3)
    feed = Feed(store, store.wakes)
    async with running(feed), asyncio.timeout(5):
        await feed.after(2)
        waiting = asyncio.create_task(feed.after(3))
        await asyncio.sleep(0)
        assert not waiting.done()
        await write(store)
        await waiting


async def test_a_feed_that_missed_what_was_trimmed_tells_everyone() -> None:
    store = MemoryStore()
    feed = Feed(store, store.wakes)
    await write(store, "a")
    async with running(feed), asyncio.timeout(5):
        await feed.after(0)
    await write(store, "b", times=9)
    await store.trim(events_kept=2, answers_before=a_record().function.created_at)
    with feed.following("a") as a:
        async with running(feed), asyncio.timeout(5):
            await feed.after(9)
            assert a.is_set()


async def test_a_closed_feed_sends_everyone_away() -> None:
    store = MemoryStore()
    feed = Feed(store, store.wakes)
    with feed.following("a") as a:
        waiting = asyncio.create_task(feed.after(0))
        change = asyncio.create_task(feed.next_change(a, asyncio.get_running_loop().time() + 60))
        await asyncio.sleep(0)
        feed.close()
        for task in (waiting, change):
            with pytest.raises(Unavailable, match="the registry is stopping"):
                await task


async def test_housekeeping_forgets_what_the_policy_keeps_no_longer() -> None:
    store = MemoryStore()
    await write(store, times=9)
    policy = Policy(functions_per_namespace=1, versions_kept=1, events_kept=4)
    means = Means(
        store, AesGcmSealer([bytes(32)]), Feed(store, store.wakes), policy, now=lambda: NOW, new_uid=lambda: "uid"
    )

    await Housekeeping(means).trim()

    assert await store.span() == Span(floor=5, head=9)
