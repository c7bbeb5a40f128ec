"""Follows the registry: which versions wait for a build, which nobody wants any more, which functions are deleted."""

from __future__ import annotations

import asyncio

from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger

from sless_builder.ports import Changes, Feed, Queue, Registry, Snapshot

log = get_logger(__name__)


class Follower:
    """Turns the registry's changes into rows. A change is acknowledged only when its row is committed."""

    def __init__(self, *, registry: Registry, queue: Queue) -> None:
        self._registry = registry
        self._queue = queue
        self.connected = False
        """Whether changes arrive: what they have not told yet may be missing here."""

    async def run(self) -> None:
        """Follow until cancelled; connect again, with pauses, after every failure."""
        pauses = Backoff().delays()
        while True:
            try:
                await self._follow()
            except PlatformError as error:
                log.warning("the registry's changes do not arrive", error=error.message)
            if self.connected:
                pauses = Backoff().delays()
            self.connected = False
            await asyncio.sleep(next(pauses).total_seconds())

    async def _follow(self) -> None:
        async with self._registry.watch(await self._queue.revision()) as feed:
            snapshot: Snapshot | None = None
            async for changes in feed:
                self.connected = True
                if changes.reset:
                    snapshot = Snapshot()
                if snapshot is not None:
                    snapshot = snapshot.with_changes(changes)
                await self._store(changes, feed, snapshot)
                if not changes.more:
                    snapshot = None

    async def _store(self, changes: Changes, feed: Feed, snapshot: Snapshot | None) -> None:
        await self._queue.apply(changes, whole=None if changes.more else snapshot)
        if changes.wanted:
            fault_point("builder.queue.after_insert")
        if not changes.more:
            await feed.acknowledge(changes.revision)
