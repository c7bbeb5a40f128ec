"""A single-threaded loop over descriptors, signals and times.

The supervisor must not use asyncio: its children inherit its memory, and a forked event loop is not theirs.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType


@dataclass(order=True, slots=True)
class Timer:
    """A callback at a time; `cancel()` takes it back."""

    when: float
    order: int
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Have it not be called; no error when it was."""
        self.callback = None


class Loop:
    """Calls back for readable descriptors, for signals and after delays; one callback at a time."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._order = itertools.count()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.watch(self._wakeup[0], self._deliver_signals)

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back whenever the descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching."""
        self._selector.unregister(descriptor)

    def after(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `delay` seconds from now."""
        timer = Timer(time.monotonic() + delay, next(self._order), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def on_signals(self, numbers: Iterable[signal.Signals], callback: Callable[[signal.Signals], None]) -> None:
        """Call back, in the loop and not in the middle of anything, when one of these signals has come."""
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        for number in numbers:
            self._handlers[number] = _bound(callback, number)
            signal.signal(number, _noted)

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Run for as long as the condition holds; it is asked after each round of callbacks."""
        while condition():
            self._round()

    def close(self) -> None:
        """Let go of descriptors and signal handlers."""
        for number in self._handlers:
            signal.signal(number, signal.SIG_DFL)
        if self._handlers:
            signal.set_wakeup_fd(-1)
        self._selector.close()
        for descriptor in self._wakeup:
            os.close(descriptor)

    def _round(self) -> None:
        for key, _ in self._selector.select(self._wait_time()):
            # A callback of this round may have unwatched it.
            if key.fd in self._selector.get_map():
                key.data()
        self._fire_timers()

    def _wait_time(self) -> float | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0].when - time.monotonic()) if self._timers else None

    def _fire_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].when <= now:
            callback = heapq.heappop(self._timers).callback
            if callback is not None:
                callback()

    def _deliver_signals(self) -> None:
        for number in os.read(self._wakeup[0], 4096):
            handler = self._handlers.get(number)
            if handler is not None:
                handler()


def _bound(callback: Callable[[signal.Signals], None], number: signal.Signals) -> Callable[[], None]:
    return lambda: callback(number)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The wakeup descriptor has the number; without a Python handler the default action would be taken."""
