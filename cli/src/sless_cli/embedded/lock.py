"""The lock on a data folder: one platform at a time, and a note of who holds it for `status` and `down`."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from sless_cli.errors import StartFailed


@dataclass(frozen=True, slots=True)
class Holder:
    """The supervisor that holds a lock: its pid, its run folder, and its endpoint once that is known."""

    pid: int
    run: str
    endpoint: str = ""


class DataLock:
    """Held from `take` until this process ends or `release` is called."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path, holder: Holder) -> DataLock:
        """Take the lock. Raises StartFailed, naming the holder, when another process has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StartFailed(_refusal(path)) from None
        lock = cls(descriptor)
        lock.note(holder)
        return lock

    def note(self, holder: Holder) -> None:
        """Write down who holds it."""
        text = json.dumps(asdict(holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    def release(self) -> None:
        """Let go; the file stays, as removing it would let two processes lock two files of one name."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock now; None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def _read(path: Path) -> Holder:
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        # Between its lock and its note.
        return Holder(pid=0, run="")


def _refusal(path: Path) -> str:
    holder = _read(path)
    where = f" at {holder.endpoint}" if holder.endpoint else ""
    return (
        f"a platform already runs on {path.parent} (pid {holder.pid}{where}): "
        f"use it, stop it with `sless down --data {path.parent}`, or give this one another --data"
    )
