"""One thread that looks after time: deadlines, calls that cannot be stopped, waiting lines, the end.

It sleeps until the earliest moment that it was told of. A call that ends in time costs it nothing: nothing is
taken back, it merely looks once too often.

It sleeps on a pipe, not on a lock: the interpreter's C signal handler writes to that pipe whatever the main thread
is doing, while a Python signal handler waits for the main thread, which may be blocked or about to be.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import time

from . import TYPE_CHECKING, logs

if TYPE_CHECKING:
    from .calls import Call
    from .connection import Connection
    from .instance import Instance

STUCK_SEC = 1.0
"""How long a handler may run on after its call has ended before the instance asks to be replaced."""
_LONGEST_SLEEP_SEC = 3600.0
_NEVER = float("inf")


class Overseer:
    """`notice` may be called from any thread; `run` is the thread's main."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._wakes_at = _NEVER
        """Monotonic time at which it looks next; only its own thread sets it."""
        self._noticed: list[float] = []
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._told_to_end = False

    def take_signals(self) -> None:
        """SIGTERM means drain from now on, and SIGINT of a terminal nothing. For the main thread."""
        _signal.signal(_signal.SIGTERM, self._on_sigterm)
        _signal.signal(_signal.SIGINT, _nothing)
        _signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def notice(self, at: float) -> None:
        """Something is due at this monotonic time. Takes no lock, so that any code may call it."""
        if at < self._wakes_at:
            self._noticed.append(at)
            self._ring()

    def close(self) -> None:
        """Give its pipe up, where it was never run."""
        os.close(self._reader)
        os.close(self._writer)

    def run(self) -> None:
        """Look after the instance until it has nothing left to do."""
        while not self._instance.finished(time.monotonic()):
            # While it looks it cannot know when it will sleep, so every notice counts.
            self._wakes_at = _NEVER
            self._wakes_at = self._look(time.monotonic())
            self._sleep()

    def _on_sigterm(self, *_: object) -> None:
        """Also says so when the user's code has taken the wake-up descriptor, as event loops do."""
        self._told_to_end = True
        self._ring()

    def _ring(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # The pipe is full: it will look anyway.

    def _sleep(self) -> None:
        """Until something is due; being told of something later makes the sleep no longer, only exact."""
        while True:
            while self._noticed:
                self._wakes_at = min(self._wakes_at, self._noticed.pop())
            left = self._wakes_at - time.monotonic()
            if self._told_to_end or left <= 0:
                return
            if self._poll.poll(min(left, _LONGEST_SLEEP_SEC) * 1000):
                self._hear(os.read(self._reader, 4096))

    def _hear(self, data: bytes) -> None:
        if _signal.SIGTERM in data:
            self._told_to_end = True

    def _look(self, now: float) -> float:
        """Do what is due; gives when to look next."""
        instance = self._instance
        if self._told_to_end:
            self._told_to_end = False
            instance.drain("it was told to end")
        due = min(instance.ends_at, instance.engine.unstick(now))
        for call in list(instance.busy):
            due = min(due, self._look_at_call(call, now))
        for connection in list(instance.connections):
            due = min(due, self._look_at_connection(connection, now))
        return min(due, self._look_at_lines(now))

    def _look_at_call(self, call: Call, now: float) -> float:
        if call.over:
            stuck_at = call.abandoned_at + STUCK_SEC
            if stuck_at <= now:
                self._instance.drain("a handler could not be stopped")
                return _NEVER
            return stuck_at
        if call.deadline <= now:
            limit = call.head.deadline_ms / 1000
            call.stop(504, "FUNCTION_TIMEOUT", f"the function did not answer within {limit:g} s")
            return now + STUCK_SEC
        lines_at = call.lines_since + logs.FLUSH_SEC
        if lines_at <= now or call.lines_full:
            call.connection.send_lines(call)
            return call.deadline
        return min(call.deadline, lines_at)

    def _look_at_connection(self, connection: Connection, now: float) -> float:
        if connection.close_at <= now:
            connection.hang_up()
            return _NEVER
        return connection.close_at

    def _look_at_lines(self, now: float) -> float:
        log = self._instance.log
        if (log.since + logs.FLUSH_SEC <= now or log.is_full) and not self._instance.send_lines():
            return _NEVER
        return log.since + logs.FLUSH_SEC


def _nothing(*_: object) -> None:
    """A handler and not SIG_IGN, which programs that the user's code starts would inherit."""
