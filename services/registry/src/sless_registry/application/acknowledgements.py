"""Which revisions the watchers have applied, and waiting until all of the fencing service's have applied one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta


class Watcher:
    """One watch stream's place in the acknowledgements."""

    def __init__(self, service: str, owner: Acknowledgements) -> None:
        self.service = service
        self.acknowledged = 0
        self._owner = owner

    def acknowledge(self, revision: int) -> None:
        """Every revision up to this one is applied. A lower one than before changes nothing."""
        if revision > self.acknowledged:
            self.acknowledged = revision
            self._owner.moved()


@dataclass(eq=False)
class _Waiter:
    revision: int
    passed: asyncio.Future[None]


class Acknowledgements:
    """Kept in memory: a watcher that resumes says by where it resumes what it has applied.

    A revision holds everywhere once every connected watcher of `fencing` has applied it, and there is one. While none is connected
    nothing is known: its cache may still serve what it knew.
    """

    def __init__(self, fencing: str) -> None:
        self._fencing = fencing
        self._watchers: set[Watcher] = set()
        self._waiters: set[_Waiter] = set()

    @contextmanager
    def watching(self, service: str) -> Iterator[Watcher]:
        """A place for one stream, from its start to its end."""
        watcher = Watcher(service, self)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            self.moved()

    def holds(self, revision: int) -> bool:
        """Whether the revision holds everywhere."""
        return revision <= self._lowest()

    async def reached(self, revision: int, within: timedelta | None) -> bool:
        """Wait until the revision holds everywhere, at most so long (None: without end). False when it does not by then."""
        if self.holds(revision):
            return True
        waiter = _Waiter(revision, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(None if within is None else within.total_seconds()):
                await waiter.passed
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def moved(self) -> None:
        """Let those pass whose revision holds now; called by the watchers."""
        lowest = self._lowest()
        for waiter in self._waiters:
            if waiter.revision <= lowest and not waiter.passed.done():
                waiter.passed.set_result(None)

    def _lowest(self) -> int:
        fencing = [watcher.acknowledged for watcher in self._watchers if watcher.service == self._fencing]
        return min(fencing, default=-1)
