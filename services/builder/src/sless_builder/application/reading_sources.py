"""GetSource: a version's files as they were uploaded, or the archive itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from sless_platform.identity import Principal, authorise
from sless_platform.objects import ObjectNotFound, ObjectStore

from sless_builder.application.finishing import in_thread
from sless_builder.application.storing import fetch
from sless_builder.domain.archive import Archive, ArchiveInspector, read
from sless_builder.domain.known import VersionInfo
from sless_builder.domain.layers import archive_key
from sless_builder.errors import SourceNotFound
from sless_builder.ports import Registry, Target, Workspace

_CHUNK_BYTES: Final = 256 * 1024
_BATCH: Final = 32
"""So many pieces are read at a time: a thread for each of 10,000 small files would take longer than reading them."""


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What is asked for. `number` 0: the version that serves, the newest while none does. `max_bytes` 0: all files.

    archive  the archive, byte for byte, instead of its files.
    """

    target: Target
    number: int = 0
    max_bytes: int = 0
    archive: bool = False


@dataclass(frozen=True, slots=True)
class SourceHead:
    """What the files belong to, how many there are, left out ones included, and the archive's size in bytes."""

    version: VersionInfo
    files: int
    archive_bytes: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file begins; its bytes follow."""

    path: str
    size: int
    executable: bool


SourcePart: TypeAlias = SourceHead | SourceFile | bytes


class Sources:
    """Reads sources. What a desktop system or an interpreter left in an archive is no part of them; nor is what a build made."""

    def __init__(
        self, *, registry: Registry, objects: ObjectStore, workspace: Workspace, inspector: ArchiveInspector
    ) -> None:
        self._registry = registry
        self._objects = objects
        self._workspace = workspace
        self._inspector = inspector

    async def read(self, *, principal: Principal, request: SourceRequest) -> AsyncGenerator[SourcePart, None]:
        """A head, then each file and its bytes, or the archive's bytes.

        With `max_bytes` a file whose content would go beyond it is left out, whole, and smaller ones after it may still come.
        Raises PermissionDenied, NotFound, SourceNotFound.
        """
        authorise(principal, request.target.namespace)
        version = await self._version(request)
        async with self._workspace.folder() as folder:
            path = folder / "code.zip"
            await self._fetch(version, path)
            with path.open("rb") as file:
                archive = await in_thread(self._inspector.contents, file)
                yield SourceHead(version, len(archive.files), path.stat().st_size)
                pieces = _archive(file) if request.archive else _files(file, archive, request.max_bytes)
                while batch := await in_thread(_taken, pieces):
                    for piece in batch:
                        yield piece

    async def _version(self, request: SourceRequest) -> VersionInfo:
        number = request.number or (await self._registry.function(request.target)).active_version
        return await self._registry.version(request.target, number)

    async def _fetch(self, version: VersionInfo, path: Path) -> None:
        try:
            await fetch(self._objects, archive_key(version.code_sha256), path)
        except ObjectNotFound:
            raise SourceNotFound(f"the source of version {version.number} is not kept any more") from None


def _taken(pieces: Iterator[SourcePart]) -> list[SourcePart]:
    return list(islice(pieces, _BATCH))


def _archive(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _files(file: BinaryIO, archive: Archive, max_bytes: int) -> Iterator[SourcePart]:
    left = max_bytes or archive.unpacked_bytes
    for item in archive.files:
        if item.size <= left:
            left -= item.size
            yield SourceFile(item.path, item.size, item.executable)
            yield from read(file, item)
