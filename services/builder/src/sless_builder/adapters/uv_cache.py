"""uv's caches: one that steps share which run nobody's code, and one for each build that may run some."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sless_builder.application.finishing import in_thread

_CACHE: Final = "uv"
_LOCK: Final = ".lock"
_OLD: Final = "old-"


class UvCache:
    """Below `root`, which nobody but the platform may enter. What goes beyond `most_bytes` is all removed once nobody uses it."""

    def __init__(self, root: Path, *, most_bytes: int) -> None:
        self._root = root
        self._most_bytes = most_bytes

    def open(self) -> None:
        """Make the folder. Raises OSError."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._root / _CACHE).mkdir(exist_ok=True)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Path]:
        """The cache of all namespaces, for the block: for a step that runs nobody's code."""
        with (self._root / _LOCK).open("w") as lock:
            await in_thread(fcntl.flock, lock, fcntl.LOCK_SH)
            yield self._root / _CACHE

    async def sweep(self) -> None:
        """See Leftovers."""
        await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        """Begin anew when there is too much, and nobody has the cache just now."""
        for left in self._root.glob(_OLD + "*"):
            shutil.rmtree(left, ignore_errors=True)
        if _size(self._root / _CACHE) <= self._most_bytes:
            return
        with (self._root / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            old = Path(tempfile.mkdtemp(prefix=_OLD, dir=self._root))
            (self._root / _CACHE).rename(old / _CACHE)
            (self._root / _CACHE).mkdir()
        shutil.rmtree(old, ignore_errors=True)


@asynccontextmanager
async def private_cache(folder: Path) -> AsyncIterator[Path]:
    """A cache below a build's own folder, which goes with it."""
    cache = folder / "cache"
    await in_thread(cache.mkdir, exist_ok=True)
    yield cache


async def folder_size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return await asyncio.to_thread(_size, folder)


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue  # somebody removed it meanwhile
    return total
