"""LayerSink for one machine: each layer a folder, `LAYERS/<hex digest>/`, from which instances are started.

Any user may read what is in a layer; LAYERS itself lies where only the platform's user comes in.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import tarfile
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from sless_builder.adapters.workspace import FolderWorkspace
from sless_builder.domain.layers import DIGEST_PREFIX

_REMOVED: Final = ".removed"
_UNPACKING: Final = ".unpacking"
_KEEP: Final = timedelta(minutes=20)
"""How long a removed layer's files stay: a call that was running when its function was deleted may still import from them."""
_SYNC_EACH: Final = 32
_CHUNK_BYTES: Final = 1 << 20


class FolderLayerSink:
    """Layers below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unpacking = FolderWorkspace(root / _UNPACKING)

    def open(self) -> None:
        """Make the folders. Raises OSError."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._root / _REMOVED).mkdir(exist_ok=True)
        self._unpacking.open()

    def close(self) -> None:
        """Remove what was under way. May be called twice."""
        self._unpacking.close()

    async def has(self, digest: str) -> bool:
        """See LayerSink."""
        return await asyncio.to_thread(self._folder(digest).is_dir)

    async def put(self, digest: str, tar: Path) -> None:
        """See LayerSink."""
        await asyncio.to_thread(self._put, self._folder(digest), tar)

    async def remove(self, digest: str) -> None:
        """See LayerSink."""
        await asyncio.to_thread(self._remove, self._folder(digest))

    async def sweep(self) -> None:
        """See Leftovers."""
        await asyncio.to_thread(self._sweep, time.time() - _KEEP.total_seconds())

    def _folder(self, digest: str) -> Path:
        return self._root / digest.removeprefix(DIGEST_PREFIX)

    def _put(self, folder: Path, tar: Path) -> None:
        if folder.is_dir():
            return
        unpacked = Path(tempfile.mkdtemp(dir=self._unpacking.path()))
        try:
            _unpack(tar, unpacked)
            unpacked.chmod(0o755)
            unpacked.rename(folder)
        except FileExistsError:
            pass  # somebody else made the same layer
        except OSError:
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)
        _sync(self._root)

    def _remove(self, folder: Path) -> None:
        if folder.is_dir():
            removed = Path(tempfile.mkdtemp(dir=self._root / _REMOVED))
            folder.rename(removed / folder.name)

    def _sweep(self, before: float) -> None:
        self._unpacking.remove_abandoned()
        for removed in (self._root / _REMOVED).iterdir():
            if removed.stat().st_mtime < before:
                shutil.rmtree(removed, ignore_errors=True)


def _unpack(tar: Path, folder: Path) -> None:
    """Write a layer's files and see to it that they are on disk; the tar was made by this service."""
    files: list[Path] = []
    with tarfile.open(tar, "r:") as layer:
        for member in layer:
            path = folder / member.name
            if member.isdir():
                path.mkdir()
                path.chmod(0o755)
                continue
            content = layer.extractfile(member)
            assert content is not None, "a layer has files and folders alone"  # noqa: S101
            with path.open("xb") as file:
                shutil.copyfileobj(content, file, _CHUNK_BYTES)
                if len(files) < _SYNC_EACH:
                    os.fsync(file.fileno())
            path.chmod(member.mode)
            files.append(path)
    if len(files) > _SYNC_EACH:
        _sync_file_system(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(folder: Path) -> None:
    """One wait for all files instead of one for each (syncfs(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)
