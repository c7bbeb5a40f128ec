"""Finds calls whose last frame never comes, with one timer a connection instead of one a call."""

import asyncio
import math
from collections.abc import Callable, Mapping

from sless_calls.call import Call


class Guard:
    """Calls `overdue(call)` for each of `calls` whose `due` has passed.

    A call that ends in time costs nothing here: the timer stands at the earliest `due` it was told of, and
    when it fires too early it looks for the next one.
    """

    __slots__ = ("_at", "_calls", "_loop", "_overdue", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, calls: Mapping[int, Call], overdue: Callable[[Call], None]
    ) -> None:
        self._loop = loop
        self._calls = calls
        self._overdue = overdue
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, call: Call) -> None:
        """Take note of the call's `due`."""
        if call.due < self._at:
            self._set(call.due)

    def stop(self) -> None:
        """Watch nothing any more."""
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at: float) -> None:
        self.stop()
        self._at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._at = math.inf
        self._timer = None
        now = self._loop.time()
        for call in [call for call in self._calls.values() if call.due <= now]:
            self._overdue(call)
        if self._calls:
            self._set(min(call.due for call in self._calls.values()))
