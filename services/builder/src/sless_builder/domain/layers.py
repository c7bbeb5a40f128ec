"""Layers: deterministic tars, named by what is in them.

The same files give the same bytes: entries are sorted, times and owners are zero, modes are 0644 and 0755
(reproducible-builds.org/docs/archives). A layer's digest is that of the uncompressed tar, OCI's DiffID.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from sless_builder.domain.build import Problem
from sless_builder.domain.paths import folders_of

LAYOUT: Final = "1"
"""Changes whenever the same code would be laid out in another way."""

DIGEST_PREFIX: Final = "sha256:"
OBJECT_FOLDERS: Final = ("code/sha256/", "layers/sha256/", "images/sha256/")
"""Where the builder's objects lie: archives, layers, images' documents."""

_FILE_MODE: Final = 0o644
_EXECUTABLE_MODE: Final = 0o755


@dataclass(frozen=True, slots=True)
class LayerFile:
    """One file of a layer; `content` gives its `size` bytes anew each time it is called."""

    path: str
    size: int
    executable: bool
    content: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that was made.

    key     what it was made from; one layer a key.
    digest  "sha256:" and 64 hexadecimal digits of the uncompressed tar.
    size    of the tar, in bytes.
    broken  the source files in it that can't be compiled, and why.
    facts   what is known of its content, as JSON has it.
    """

    key: str
    digest: str
    size: int
    broken: tuple[Problem, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)


def code_key(code_sha256: str, runtime: str) -> str:
    """What a code layer is made from: hexadecimal SHA-256 of the archive, the runtime, and this builder's way to lay code out."""
    return hashlib.sha256(f"code\n{LAYOUT}\n{runtime}\n{code_sha256}\n".encode()).hexdigest()


def object_key(digest: str) -> str:
    """Where a layer's tar lies in the object store."""
    return f"layers/sha256/{digest.removeprefix(DIGEST_PREFIX)}"


def archive_key(code_sha256: str) -> str:
    """Where an uploaded archive lies in the object store."""
    return f"code/sha256/{code_sha256}"


def write_layer(out: BinaryIO, files: Iterable[LayerFile]) -> tuple[str, int]:
    """Write the tar of these files; gives its digest and its size."""
    writer = _HashingWriter(out)
    by_path = {file.path: file for file in files}
    folders = {folder for path in by_path for folder in folders_of(path)}
    with tarfile.open(fileobj=writer, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path in sorted(folders | set(by_path)):
            if path in folders:
                tar.addfile(_member(path, _EXECUTABLE_MODE, tarfile.DIRTYPE))
            else:
                _add_file(tar, by_path[path])
    return DIGEST_PREFIX + writer.hash.hexdigest(), writer.tell()


def _add_file(tar: tarfile.TarFile, file: LayerFile) -> None:
    member = _member(file.path, _EXECUTABLE_MODE if file.executable else _FILE_MODE, tarfile.REGTYPE)
    member.size = file.size
    tar.addfile(member, io.BufferedReader(_ChunkReader(iter(file.content()))))


def _member(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.mode, member.type = mode, kind
    return member


class _HashingWriter:
    """A file that is written to its end, hashed on the way."""

    def __init__(self, out: BinaryIO) -> None:
        self.hash = hashlib.sha256()
        self._out = out
        self._size = 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self._size += len(data)
        return self._out.write(data)

    def tell(self) -> int:
        return self._size


class _ChunkReader(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
