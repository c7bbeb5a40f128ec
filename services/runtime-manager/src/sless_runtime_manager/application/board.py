"""Which instances serve, told to every watcher: whole sets, coalesced, acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from datetime import timedelta

from sless_platform.errors import PlatformError, Unavailable
from sless_platform.logging import get_logger

from sless_runtime_manager.domain import InstanceBatch, InstanceSet
from sless_runtime_manager.errors import WatcherTooSlow

log = get_logger(__name__)


class Watcher:
    """One reader of the board. It has applied what it has acknowledged."""

    def __init__(self, board: Board, source: str) -> None:
        self.source = source
        """Tells this watcher from every other one of this process's life."""
        self.acknowledged = 0
        self._board = board
        self._waiting: dict[str, InstanceSet] | None = None
        self._changed = asyncio.Event()
        self._error: PlatformError | None = None
        self._ended = False

    async def batches(self) -> AsyncGenerator[InstanceBatch, None]:
        """All sets first, then what changes; of changes that the reader was too slow for, the last.

        Ends when the reader does. Raises what it was sent away with.
        """
        while True:
            await self._changed.wait()
            if self._error is not None:
                raise self._error
            if self._ended:
                return
            yield self._take()

    def acknowledge(self, revision: int) -> None:
        """The reader has applied every batch up to `revision`."""
        if revision > self.acknowledged:
            self.acknowledged = revision
            self._board.recheck()

    def begin(self) -> None:
        """The board is open: the reader can have all sets."""
        self._changed.set()

    def offer(self, changed: InstanceSet) -> None:
        """A set has changed. Before the first batch that needs no telling: it will have all."""
        if self._waiting is not None:
            self._waiting[changed.function_uid] = changed
            self._changed.set()

    def end(self) -> None:
        """The reader wants no more."""
        self._ended = True
        self._changed.set()

    def send_away(self, error: PlatformError) -> None:
        """It counts as connected no more."""
        self._error = error
        self._changed.set()

    def _take(self) -> InstanceBatch:
        self._changed.clear()
        first = self._waiting is None
        sets = self._board.sets() if self._waiting is None else tuple(self._waiting.values())
        self._waiting = {}
        return InstanceBatch(revision=self._board.revision, reset=first, sets=sets)


class Board:
    """The sets of all functions. Belongs to one event loop.

    Nothing is told before `open`: until instances that run already have been adopted, "none" would be a lie.
    """

    def __init__(self, patience: timedelta) -> None:
        """`patience`: how long a watcher may take to acknowledge before it is cut off and has to begin anew."""
        self.revision = 0
        self.opened = asyncio.Event()
        self._sets: dict[str, InstanceSet] = {}
        self._patience = patience
        self._watchers: dict[int, Watcher] = {}
        self._attached = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def open(self) -> None:
        """Let watchers have their first batch."""
        self.opened.set()
        for watcher in self._watchers.values():
            watcher.begin()

    def close(self) -> None:
        """Send every watcher away: the process is about to end."""
        for watcher in self._watchers.values():
            watcher.send_away(Unavailable("the runtime-manager is stopping: connect again"))

    def publish(self, changed: InstanceSet) -> int | None:
        """Make this the function's set; gives the revision in which it became so, None when it was so already.

        A set that says nothing is not kept.
        """
        known = self.told(changed.function_uid)
        if changed == known or (changed.is_empty and known.is_empty):
            return None
        self.revision += 1
        if changed.is_empty:
            self._sets.pop(changed.function_uid, None)
        else:
            self._sets[changed.function_uid] = changed
        for watcher in self._watchers.values():
            watcher.offer(changed)
        return self.revision

    def told(self, function_uid: str) -> InstanceSet:
        """The function's set."""
        return self._sets.get(function_uid, InstanceSet(function_uid=function_uid))

    def sets(self) -> tuple[InstanceSet, ...]:
        """Every set that says something."""
        return tuple(self._sets.values())

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """A watcher that counts as connected for the block."""
        self._attached += 1
        key = self._attached
        watcher = self._watchers[key] = Watcher(self, f"watcher-{key}")
        if self.opened.is_set():
            watcher.begin()
        try:
            yield watcher
        finally:
            self._watchers.pop(key, None)
            self.recheck()

    def is_applied(self, revision: int) -> bool:
        """Whether every connected watcher has applied that revision; with none connected there is nobody to mislead."""
        return all(watcher.acknowledged >= revision for watcher in self._watchers.values())

    async def applied(self, revision: int) -> None:
        """Returns when `is_applied(revision)`, at the latest after `patience`: whoever is late then is cut off."""
        if self.is_applied(revision):
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await waiter
        except TimeoutError:
            self._cut_off_late(revision)
        finally:
            self._waiting.remove(entry)

    def recheck(self) -> None:
        """An acknowledgement came, or a watcher went: wake who waited for that."""
        for revision, waiter in self._waiting:
            if not waiter.done() and self.is_applied(revision):
                waiter.set_result(None)

    def _cut_off_late(self, revision: int) -> None:
        late = [key for key, watcher in self._watchers.items() if watcher.acknowledged < revision]
        for key in late:
            watcher = self._watchers.pop(key)
            log.warning("watcher cut off", acknowledged=watcher.acknowledged, wanted=revision)
            watcher.send_away(WatcherTooSlow("what was sent has not been acknowledged in time: connect again"))
        self.recheck()
