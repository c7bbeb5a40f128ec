"""Workspace: temporary files and folders that outlive no process for long."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from sless_platform.errors import Unavailable

_LOCK = ".lock"


class FolderWorkspace:
    """A folder below `root` that is this process's as long as it lives: it holds a lock in it.

    Folders without a living holder are removed when one is opened, and by `sweep`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own: Path | None = None
        self._lock: IO[Any] | None = None

    def open(self) -> None:
        """Make this process's folder. Raises OSError."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(dir=self._root))
        self._lock = (own / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._own = own
        self.remove_abandoned()

    def close(self) -> None:
        """Remove this process's folder. May be called twice."""
        own, self._own = self._own, None
        if own is not None and self._lock is not None:
            shutil.rmtree(own, ignore_errors=True)
            self._lock.close()

    async def sweep(self) -> None:
        """See Leftovers."""
        await asyncio.to_thread(self.remove_abandoned)

    def remove_abandoned(self) -> None:
        """Remove what killed processes left."""
        for folder in self._root.iterdir():
            if folder != self._own and folder.is_dir() and _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def path(self) -> Path:
        """This process's folder."""
        assert self._own is not None, "the workspace is not open"  # noqa: S101
        return self._own

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[FileSpool]:
        """See Workspace."""
        file = cast(BinaryIO, tempfile.TemporaryFile(dir=self.path()))  # noqa: SIM115 - closed below
        try:
            yield FileSpool(file)
        finally:
            file.close()

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """See Workspace."""
        path = Path(tempfile.mkdtemp(dir=self.path()))
        try:
            yield path
        finally:
            await asyncio.to_thread(_remove, path)


class FileSpool:
    """A temporary file without a name."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    async def write(self, data: bytes) -> None:
        """See Spool."""
        try:
            await asyncio.to_thread(self._write, data)
        except OSError as error:
            raise Unavailable(f"the platform can't store the upload now ({os.strerror(error.errno or 0)})") from error

    def _write(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()  # so that a full disk shows here


def _remove(folder: Path) -> None:
    """Remove a folder; code that nobody trusts may have made some in it that their owner may not enter."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                path.chmod(0o700)
    shutil.rmtree(folder)


def _abandoned(folder: Path) -> bool:
    """Whether nobody holds the folder's lock. One that has no lock yet is being made, and empty: it is let be."""
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
