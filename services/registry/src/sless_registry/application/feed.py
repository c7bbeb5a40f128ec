"""What was committed, told within this process to those who wait for it: one small query a wake-up, however many wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from sless_platform.errors import Unavailable

from sless_registry.ports import Store, Wakes

_PAGE = 1_000


class Feed:
    """Follows the store's events. `run` must run, or nobody is told anything."""

    def __init__(self, store: Store, wakes: Wakes) -> None:
        self._store = store
        self._wakes = wakes
        self._head = 0
        self._moved = asyncio.Event()
        self._followers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._closed = False

    async def run(self) -> None:
        """Follow without end. Raises Unavailable when the store is away; may be run again."""
        if not self._head:
            self._move(await self._store.revision())
            self._tell_everyone()  # what changed since they looked is not known
        while not self._closed:
            await self._wakes.wait()
            await self._catch_up()

    def close(self) -> None:
        """Send all away who wait: the process is about to end."""
        self._closed = True
        self._move(self._head)
        self._tell_everyone()

    async def after(self, revision: int) -> None:
        """Return once something newer than the revision is committed. Raises Unavailable when the feed is closed."""
        while self._head <= revision:
            self._check_open()
            await self._moved.wait()
        self._check_open()

    @contextmanager
    def following(self, uid: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the resource has changed, and when the feed is closed."""
        changed = asyncio.Event()
        self._followers[uid].add(changed)
        try:
            yield changed
        finally:
            self._followers[uid].discard(changed)
            if not self._followers[uid]:
                del self._followers[uid]

    async def next_change(self, changed: asyncio.Event, deadline: float) -> bool:
        """Wait until an event given by `following` is set, and clear it; False at the deadline (the loop's time).

        Raises Unavailable when the feed is closed.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            return False
        self._check_open()
        changed.clear()
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the registry is stopping; try again")

    async def _catch_up(self) -> None:
        while events := await self._store.events(after=self._head, limit=_PAGE):
            if events[0].revision > self._head + 1:
                self._tell_everyone()  # revisions have no gaps: what was between is trimmed already
            for event in events:
                self._tell(event.uid)
            self._move(events[-1].revision)
            if len(events) < _PAGE:
                return

    def _move(self, head: int) -> None:
        self._head = head
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _tell(self, uid: str) -> None:
        for changed in self._followers.get(uid, ()):
            changed.set()

    def _tell_everyone(self) -> None:
        for uid in self._followers:
            self._tell(uid)
