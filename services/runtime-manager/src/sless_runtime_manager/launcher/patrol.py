"""Looks at what instances use (watchdog.py), about once a second, in a process of its own each time.

To look closely at an instance takes as long as it makes it take: hundreds of processes, gigabytes in small pieces. The launcher must not
stand still meanwhile.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping

from . import syscalls, watchdog
from .watchdog import Bounds

_LONGEST_LOOK_SEC = 30.0
_READ_BYTES = 64 << 10

Report = Callable[[int, str], None]
"""Told the first process of an instance, and what it uses too much of."""


class Patrol:
    """At most one look at a time. `helpers`: pids of its processes, which the launcher's loop reaps, are put there."""

    def __init__(self, selector: selectors.BaseSelector, helpers: set[int], report: Report) -> None:
        self._selector = selector
        self._helpers = helpers
        self._report = report
        self._next_at = 0.0
        self._look: tuple[int, int] | None = None
        self._told = b""

    def tend(self, now: float, watched: Mapping[int, Bounds]) -> float | None:
        """Look when it is time; `watched` are the first processes of instances. The monotonic time to do so again."""
        if self._look is None and not watched:
            return None
        if now >= self._next_at and self._look is None:
            begun = self._begin(watched)
            self._next_at = now + (_LONGEST_LOOK_SEC if begun else watchdog.LOOK_SEC)
        elif now >= self._next_at and self._look is not None:
            if self._look[0] in self._helpers:  # Else it has ended, and its pipe says so in a moment.
                os.kill(self._look[0], signal.SIGKILL)
            self._next_at = now + watchdog.LOOK_SEC
        return self._next_at

    def _begin(self, watched: Mapping[int, Bounds]) -> bool:
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            return False  # No process to be had.
        if pid == 0:
            _look(watched, writer)
        os.close(writer)
        os.set_blocking(reader, False)
        self._helpers.add(pid)
        self._look, self._told = (pid, reader), b""
        self._selector.register(reader, selectors.EVENT_READ, self._hear)
        return True

    def _hear(self) -> None:
        if self._look is None:
            return
        reader = self._look[1]
        chunk = os.read(reader, _READ_BYTES)
        self._told += chunk
        if chunk:
            return
        self._selector.unregister(reader)
        os.close(reader)
        self._look = None
        self._next_at = time.monotonic() + watchdog.LOOK_SEC
        for line in self._told.decode().splitlines():
            pid, exceeded = line.split()
            self._report(int(pid), exceeded)


def _look(watched: Mapping[int, Bounds], writer: int) -> None:
    """In the process that looks; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(writer, 0)
        syscalls.close_from(1)
        families = watchdog.families(watched)
        for pid, bounds in watched.items():
            exceeded = watchdog.exceeded(families[pid], bounds)
            if exceeded is not None:
                os.write(0, f"{pid} {exceeded}\n".encode())
    finally:
        os._exit(0)
