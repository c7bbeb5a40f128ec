"""Functions' logs as files: one a function, bounded, written by whoever receives lines of it.

A line is `2026-11-30T12:00:00.000Z SOURCE STREAM TEXT`: SOURCE is the request id of the call that printed it, or the
instance for what no call printed; STREAM is `stdout` or `stderr`. TEXT has no line break.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
"""A log that has grown to this becomes `NAME.log.1`, and the one that had that name goes."""


def format_line(at: datetime, source: str, stream: str, text: str) -> str:
    """One line, with its end. `at` is aware."""
    moment = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
    return f"{moment} {source} {stream} {_one_line(text)}\n"


class FunctionLogFiles:
    """The logs in one folder. Several processes may append to one log: each write is one append of whole lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, function_uid: str) -> Path:
        """Where a function's log is."""
        return self._folder / f"{function_uid}.log"

    def append(self, function_uid: str, lines: Iterable[str]) -> None:
        """Append lines made by `format_line`. Raises OSError."""
        data = "".join(lines).encode("utf-8", "replace")
        if not data:
            return
        path = self.path(function_uid)
        target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(target, data)
            size = os.fstat(target).st_size
        finally:
            os.close(target)
        if size > MAX_FILE_BYTES:
            path.replace(path.with_suffix(".log.1"))

    def remove(self, function_uid: str) -> None:
        """Remove a function's log; no error when there is none. Raises OSError."""
        for path in (self.path(function_uid), self.path(function_uid).with_suffix(".log.1")):
            path.unlink(missing_ok=True)


def _one_line(text: str) -> str:
    return text.rstrip("\n").replace("\r", "\\r").replace("\n", "\\n")
