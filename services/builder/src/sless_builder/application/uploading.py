"""UploadCode: from a stream of bytes to a version."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from sless_contracts import catalog
from sless_platform.errors import Kind, PlatformError, Unavailable
from sless_platform.faults import fault_point
from sless_platform.identity import Principal, authorise
from sless_platform.logging import get_logger
from sless_platform.objects import ObjectStore

from sless_builder.domain.archive import MAGIC_BYTES, ArchiveInspector, check_magic
from sless_builder.domain.known import ConfigChange, FunctionInfo
from sless_builder.domain.layers import archive_key
from sless_builder.errors import ArchiveTooLarge
from sless_builder.ports import Compiler, CreatedVersion, NewVersion, Registry, Spool, Target, Uploads, Workspace

_CHUNK_BYTES: Final = 1 << 20
_INSPECTIONS: Final = 2
_UNKNOWN_OUTCOME: Final = (Kind.UNAVAILABLE, Kind.DEADLINE_EXCEEDED, Kind.CANCELLED, Kind.INTERNAL)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """What a caller says of an upload before its bytes; etag and request_id are "" when there is none."""

    target: Target
    etag: str = ""
    request_id: str = ""
    build_only: bool = False


@dataclass(frozen=True, slots=True)
class _Received:
    sha256: str
    size: int
    config: ConfigChange | None


class Uploading:
    """Takes archives. The bytes go to disk, never into memory as a whole."""

    def __init__(
        self,
        *,
        registry: Registry,
        uploads: Uploads,
        objects: ObjectStore,
        workspace: Workspace,
        inspector: ArchiveInspector,
        compiler: Compiler,
        max_archive_bytes: int,
    ) -> None:
        self._registry = registry
        self._uploads = uploads
        self._objects = objects
        self._workspace = workspace
        self._inspector = inspector
        self._compiler = compiler
        self._max_archive_bytes = max_archive_bytes
        # Each keeps one core busy.
        self._inspections = asyncio.Semaphore(_INSPECTIONS)

    async def upload(
        self, *, principal: Principal, request: UploadRequest, parts: AsyncIterator[bytes | ConfigChange]
    ) -> CreatedVersion:
        """Check, store, and record an archive, with the configuration among its parts; answers once the registry has the version.

        Raises PermissionDenied, NotFound (before it reads a byte), ArchiveInvalid, ArchiveTooLarge, and what the registry
        refuses the version with.
        """
        authorise(principal, request.target.namespace)
        function = await self._registry.function(request.target)
        self._compiler.prepare()
        async with self._workspace.spool() as spool:
            received = await self._receive(spool, parts)
            async with self._inspections:
                await asyncio.to_thread(self._inspector.inspect, spool.file, _entrypoint(function, received.config))
            return await self._record(spool, received, function, request, principal.subject)

    async def _receive(self, spool: Spool, parts: AsyncIterator[bytes | ConfigChange]) -> _Received:
        digest, size, head, config = hashlib.sha256(), 0, b"", None
        async for chunk in parts:
            if isinstance(chunk, ConfigChange):
                config = chunk
                continue
            size += len(chunk)
            if size > self._max_archive_bytes:
                raise ArchiveTooLarge(f"code is larger than {self._max_archive_bytes:,} bytes, the most a zip may have")
            if len(head) < MAGIC_BYTES:
                head += chunk[: MAGIC_BYTES - len(head)]
                if len(head) == MAGIC_BYTES:
                    check_magic(head)
            digest.update(chunk)
            await spool.write(chunk)
        check_magic(head)
        return _Received(digest.hexdigest(), size, config)

    async def _record(
        self, spool: Spool, received: _Received, function: FunctionInfo, request: UploadRequest, created_by: str
    ) -> CreatedVersion:
        """Name the object, store it, make the version: in this order, so that a crash leaves nothing that nobody finds."""
        upload_id, key = uuid.uuid4(), archive_key(received.sha256)
        await self._uploads.begin_upload(upload_id, function.uid, key)
        try:
            await self._store(key, spool)
            fault_point("builder.upload.after_store")
            created = await self._registry.create_version(_new_version(received, request, created_by))
        except PlatformError as error:
            # An unknown outcome keeps the object: the version may be there after all.
            if error.kind not in _UNKNOWN_OUTCOME:
                await self._end(upload_id, kept=False)
            raise
        fault_point("builder.upload.after_create_version")
        await self._end(upload_id, kept=True)
        return created

    async def _store(self, key: str, spool: Spool) -> None:
        if await self._objects.exists(key):
            return
        try:
            await self._objects.put(key, _chunks(spool.file))
        except OSError as error:
            raise Unavailable(f"the platform can't store the upload now ({error.strerror})") from error

    async def _end(self, upload_id: uuid.UUID, *, kept: bool) -> None:
        """The answer stands whether or not this can be written now: the clean-up forgets old uploads."""
        try:
            await self._uploads.end_upload(upload_id, kept=kept)
        except PlatformError as error:
            log.warning("upload's end not noted", error=error.message)


def _entrypoint(function: FunctionInfo, config: ConfigChange | None) -> str | None:
    """What the archive must have; None for what can't be an entrypoint, which the registry refuses as it does everywhere."""
    entrypoint = function.entrypoint
    if config is not None and config.entrypoint is not None:
        entrypoint = config.entrypoint
    return entrypoint if catalog.ENTRYPOINT_PATTERN.fullmatch(entrypoint) else None


def _new_version(received: _Received, request: UploadRequest, created_by: str) -> NewVersion:
    return NewVersion(
        target=request.target,
        code_sha256=received.sha256,
        size_bytes=received.size,
        created_by=created_by,
        build_only=request.build_only,
        etag=request.etag,
        request_id=request.request_id,
        config=received.config,
    )


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield chunk
