"""How many instances may be starting at once, shared fairly."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta


class StartSlots:
    """A bound on starts that are under way, so that many cold functions at once do not slow each other down.

    Those who wait get their turn by owner, round robin: a hundred starts of one owner delay another's by one. A start that takes
    longer than `patience` gives its slot up: it is busy waiting, or would keep everyone waiting.
    """

    def __init__(self, at_once: int, patience: timedelta) -> None:
        self.free = at_once
        """Slots that nobody holds."""
        self._patience = patience
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the block, or for `patience`."""
        await self._take(owner)
        give_back = _Once(self._give_back)
        timer = asyncio.get_running_loop().call_later(self._patience.total_seconds(), give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _take(self, owner: str) -> None:
        if self.free > 0:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._give_back()  # the turn came in the same moment
            raise

    def _give_back(self) -> None:
        while self._waiting:
            owner, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns  # to the end: the others first
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class _Once:
    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()
