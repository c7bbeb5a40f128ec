"""The platform's log: what every child writes, line by line, in one rotated file, and the last lines of each in memory."""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from sless_cli.embedded.loop import Loop

MAX_BYTES = 10 * 1024 * 1024
KEPT = 3
_LAST_LINES = 15
_LONGEST_LINE = 64 * 1024


class PlatformLog:
    """Appends lines to a file, which is rotated when it is opened and when it has grown to MAX_BYTES; KEPT older ones stay."""

    def __init__(self, path: Path, *, echo: bool = False) -> None:
        self._path = path
        self._echo = echo
        self._rotate()
        self._file = self._open()
        self._size = 0
        self.lost = 0
        """Lines that could not be written since the last one that could."""

    def line(self, source: str, text: str) -> None:
        """One line of this source. A JSON line tells its source itself and stays as it is."""
        entry = (text if text.startswith("{") else f"{source} | {text}") + "\n"
        data = entry.encode(errors="replace")
        try:
            self._append(data)
        except OSError:
            # A full disk costs lines, counted, and nothing that runs.
            self.lost += 1
        if self._echo:
            with suppress(OSError):
                sys.stderr.write(entry)

    def _append(self, data: bytes) -> None:
        if self.lost:
            missing = f"supervisor | {self.lost} lines could not be written and are lost\n".encode()
            self._file.write(missing)
            self.lost = 0
        if self._size and self._size + len(data) > MAX_BYTES:
            self._reopen()
        self._file.write(data)
        self._size += len(data)

    def event(self, text: str) -> None:
        """A line of the supervisor itself."""
        self.line("supervisor", f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> FileIO:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "ab", buffering=0)

    def _reopen(self) -> None:
        self._rotate()
        before, self._file = self._file, self._open()
        before.close()
        self._size = 0

    def _rotate(self) -> None:
        """platform.log → platform.log.1 → platform.log.2 …; an empty one is used on."""
        if not self._path.exists() or self._path.stat().st_size == 0:
            return
        for number in range(KEPT, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")


class Outlet:
    """The pipe into which one child writes: its lines go to the log, and the last ones are remembered."""

    def __init__(self, loop: Loop, log: PlatformLog, source: str) -> None:
        self._loop = loop
        self._log = log
        self._source = source
        self._partial = b""
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        loop.watch(self._reader, self._readable)

    def child_started(self) -> None:
        """The child has its end now; ours is closed so that the pipe ends with the child."""
        os.close(self.writer)

    def drain(self) -> None:
        """Take what the child has written before it ended, and give the pipe up."""
        if self._reader >= 0:
            while self._pump():
                continue
        self._end()

    def _readable(self) -> None:
        self._pump()

    def _pump(self) -> bool:
        """Whether there may be more."""
        if self._reader < 0:
            return False
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines, self._partial = [*lines, self._partial], b""
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self.last_lines.append(text)
            self._log.line(self._source, text)

    def _end(self) -> None:
        if self._reader < 0:
            return
        self._take(self._partial)
        self._partial = b""
        self._loop.unwatch(self._reader)
        os.close(self._reader)
        self._reader = -1
