"""Lines that a call prints: kept apart by call, bounded, and sent in batches.

A `LineLog` belongs to one call, or (one an instance) to nobody. It never makes the printing code wait: what
the reader does not take in time is dropped, and the number of dropped lines is its last line.
"""

from __future__ import annotations

import os
import time
from _thread import RLock

from . import TYPE_CHECKING, frames, jsontext

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_BYTES = 64 * 1024
CALL_BYTES = 1024 * 1024
FLUSH_SEC = 0.25
"""How long a line waits for others before it is sent; the end of its call sends it sooner."""
_BATCH_BYTES = 16 * 1024
_LEVELS = {"stdout": "info", "stderr": "error"}


class LineLog:
    """Collects what is written and hands it out as LOG frames.

    `limit` bytes of text are taken in all. `on_lines` is called when lines begin to wait, with False, and when
    there are so many that they should go at once, with True; it must not block and take no lock.
    """

    def __init__(self, call_id: int, limit: int, on_lines: Callable[[bool], None]) -> None:
        self._call_id = call_id
        self._left = limit
        self._on_lines = on_lines
        # Reentrant: a finaliser or a signal handler may print while the same thread is in here.
        self._lock = RLock()
        self._partial = {"stdout": "", "stderr": ""}
        self._lines: list[dict[str, object]] = []
        self._waiting_bytes = 0
        self._dropped = 0
        self.since = float("inf")
        """Monotonic time of the oldest line that waits."""

    def write(self, stream: str, text: str) -> None:
        """Take text as it was written: lines in pieces, or many at once."""
        with self._lock:
            was_waiting = bool(self._lines)
            *whole, rest = (self._partial[stream] + text).split("\n")
            for line in whole:
                self._add(stream, line)
            while len(rest) > LINE_BYTES:
                self._add(stream, rest[:LINE_BYTES])
                rest = rest[LINE_BYTES:]
            self._partial[stream] = rest
            news, full = bool(self._lines) and not was_waiting, self.is_full
        if news or full:
            self._on_lines(full)

    @property
    def is_full(self) -> bool:
        """Enough lines wait to be sent at once."""
        return self._waiting_bytes >= _BATCH_BYTES

    def take(self) -> bytes:
        """LOG frames with all whole lines that wait."""
        with self._lock:
            return self._frames()

    def drop(self) -> None:
        """The reader is too slow: the lines that wait are counted and forgotten."""
        with self._lock:
            self._dropped += len(self._lines)
            self._forget()

    def finish(self) -> bytes:
        """LOG frames with all that is left, unfinished lines and the number of dropped ones included."""
        with self._lock:
            self._close_partial()
            return self._frames()

    def spill(self) -> None:
        """Write all that is left to the file descriptors: no caller will come for it any more."""
        with self._lock:
            self._close_partial()
            lines = self._lines
            self._forget()
        for line in lines:
            os.write(1 if line["stream"] == "stdout" else 2, _utf8(f"{line['text']}\n"))

    def refill(self, limit: int) -> None:
        """A log without an end: allow `limit` bytes more and say how many lines were dropped before."""
        with self._lock:
            self._left = limit
            self._tell_dropped()

    def _close_partial(self) -> None:
        for stream, rest in self._partial.items():
            if rest:
                self._add(stream, rest)
                self._partial[stream] = ""
        self._tell_dropped()

    def _tell_dropped(self) -> None:
        if self._dropped:
            self._append("stderr", f"{self._dropped} lines dropped")
            self._dropped = 0

    def _add(self, stream: str, line: str) -> None:
        """One line, split where it is longer than a line may be."""
        raw = _utf8(line)
        while len(raw) > LINE_BYTES:
            piece = raw[:LINE_BYTES].decode("utf-8", "ignore")
            self._count(stream, piece)
            raw = raw[len(_utf8(piece)) :]
        self._count(stream, raw.decode())

    def _count(self, stream: str, line: str) -> None:
        size = len(_utf8(line))
        if size > self._left:
            self._left = 0
            self._dropped += 1
            return
        self._left -= size
        self._waiting_bytes += size + 64
        self._append(stream, line)

    def _append(self, stream: str, line: str) -> None:
        if not self._lines:
            self.since = time.monotonic()
        level = _LEVELS[stream]
        self._lines.append({"ts": time.time_ns() // 1_000_000, "stream": stream, "level": level, "text": line})

    def _frames(self) -> bytes:
        if not self._lines:
            return b""
        found, batch, size = [], [], 0
        for line in self._lines:
            batch.append(line)
            size += len(_utf8(str(line["text"]))) + 64
            if size >= _BATCH_BYTES:
                found.append(self._frame(batch))
                batch, size = [], 0
        if batch:
            found.append(self._frame(batch))
        self._forget()
        return b"".join(found)

    def _frame(self, batch: list[dict[str, object]]) -> bytes:
        return frames.frame(frames.LOG, self._call_id, jsontext.encoded(batch))

    def _forget(self) -> None:
        self._lines = []
        self._waiting_bytes = 0
        self.since = float("inf")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
