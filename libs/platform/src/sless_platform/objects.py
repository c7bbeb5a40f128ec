"""Objects: immutable-by-habit byte strings under keys, behind one port; here the port and its adapter on a folder of files."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO, Protocol

from sless_platform.errors import FailedPrecondition, InvalidArgument, NotFound

CHUNK_BYTES = 256 * 1024
MAX_KEY_CHARACTERS = 512
_SEGMENT = re.compile(r"[A-Za-z0-9_=:@+-][A-Za-z0-9._=:@+-]{0,199}", re.ASCII)


class ObjectNotFound(NotFound):
    """There is no object under this key."""

    reason = "OBJECT_NOT_FOUND"


class ObjectStore(Protocol):
    """Where objects are kept. Every adapter passes the suite in tests/contract.

    A key is at most 512 characters of `/`-separated segments of letters, digits and `._=:@+-`, none of them beginning with a dot;
    anything else is InvalidArgument. A key is never a folder of another key. A store that does not answer raises Unavailable.
    """

    async def put(self, key: str, chunks: AsyncIterator[bytes] | bytes) -> int:
        """Store an object, whole or not at all, durable when this returns; replaces the one that was there. Gives its size in bytes.

        An error of `chunks` is passed on and leaves what was there before.
        """
        ...

    def get(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes in chunks of at most 256 KiB: `async for chunk in store.get(key)`. Raises ObjectNotFound at the first step."""
        ...

    async def read(self, key: str) -> bytes:
        """The object's bytes at once, for small ones. Raises ObjectNotFound."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether there is an object under this key."""
        ...

    async def delete(self, key: str) -> None:
        """Take the object away; no error when it is not there. A read that has begun goes on to its end."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[str]:
        """The keys that begin with `prefix`, sorted: `async for key in store.list("uploads/")`. The prefix need not end at a `/`."""
        ...

    async def size(self, key: str) -> int:
        """The object's size in bytes. Raises ObjectNotFound."""
        ...


def check_key(key: str) -> None:
    """Raise InvalidArgument unless this can be a key in every store."""
    segments = key.split("/")
    if len(key) > MAX_KEY_CHARACTERS or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise InvalidArgument(
            f"object key {key[:100]!r} is not allowed: use letters, digits and ._=:@+- in segments parted by /"
        )


class FileObjectStore:
    """Objects as files below a root folder; what is being written lies in `root/.tmp` until it is whole and on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tmp = root / ".tmp"

    async def put(self, key: str, chunks: AsyncIterator[bytes] | bytes) -> int:
        """See ObjectStore."""
        path = self._path(key)
        file = await asyncio.to_thread(self._open_temporary)
        try:
            size = 0
            async for chunk in _iterated(chunks):
                size += await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(self._publish, file, path)
        except BaseException:
            # Also when the task is cancelled: nothing half written may stay.
            _discard(file)
            raise
        return size

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """See ObjectStore."""
        file = await asyncio.to_thread(self._open, key)
        with file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk

    async def read(self, key: str) -> bytes:
        """See ObjectStore."""
        return await asyncio.to_thread(self._read, key)

    async def exists(self, key: str) -> bool:
        """See ObjectStore."""
        return await asyncio.to_thread(self._path(key).is_file)

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await asyncio.to_thread(self._delete, self._path(key))

    async def list(self, prefix: str = "") -> AsyncIterator[str]:
        """See ObjectStore."""
        for key in await asyncio.to_thread(self._keys, prefix):
            yield key

    async def size(self, key: str) -> int:
        """See ObjectStore."""
        return await asyncio.to_thread(self._size, key)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key

    def _open_temporary(self) -> IO[bytes]:
        self._tmp.mkdir(parents=True, exist_ok=True)
        return tempfile.NamedTemporaryFile(dir=self._tmp, delete=False)

    def _publish(self, file: IO[bytes], path: Path) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._rename(Path(file.name), path)
        _sync_folder(path.parent)

    def _rename(self, source: Path, path: Path) -> None:
        for _ in range(10):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                source.replace(path)
                return
            except FileNotFoundError:
                continue  # a delete of the folder's last object took the folder between the two steps
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                break
        key = path.relative_to(self._root)
        raise FailedPrecondition(
            f"object key '{key}' cannot be used: a part of it is an object, or it is the folder of one"
        )

    def _open(self, key: str) -> IO[bytes]:
        try:
            return self._path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _not_found(key) from None

    def _read(self, key: str) -> bytes:
        with self._open(key) as file:
            return file.read()

    def _size(self, key: str) -> int:
        with self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    def _delete(self, path: Path) -> None:
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        for folder in path.relative_to(self._root).parents[:-1]:
            try:
                (self._root / folder).rmdir()
            except OSError:
                return  # not empty, or already gone

    def _keys(self, prefix: str) -> Sequence[str]:
        folder = self._root / prefix.rpartition("/")[0]
        if ".." in folder.parts:
            return []
        keys = (
            (Path(parent) / name).relative_to(self._root).as_posix()
            for parent, _, names in os.walk(folder)
            if Path(parent) != self._tmp
            for name in names
        )
        return sorted(key for key in keys if key.startswith(prefix))


async def _iterated(chunks: AsyncIterator[bytes] | bytes) -> AsyncIterator[bytes]:
    if isinstance(chunks, bytes):
        yield chunks
        return
    async for chunk in chunks:
        yield chunk


def _discard(file: IO[bytes]) -> None:
    file.close()
    Path(file.name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # deleted again by somebody else: nothing to keep
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_found(key: str) -> ObjectNotFound:
    return ObjectNotFound(f"there is no object {key!r}")
