"""Between messages and the application's types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from sless.builder.v1 import builder_pb2 as pb

from sless_builder.application.reading_sources import SourceFile, SourcePart, SourceRequest
from sless_builder.application.uploading import UploadRequest
from sless_builder.domain.known import ConfigChange
from sless_builder.errors import UploadMalformed
from sless_builder.ports import CreatedVersion, Target

MAX_CHUNK_BYTES: Final = 1 << 20


def upload_request(first: pb.UploadCodeRequest | None) -> UploadRequest:
    """What the stream's first message says. Raises UploadMalformed."""
    if first is None or first.WhichOneof("message") != "head":
        raise UploadMalformed("an upload begins with its head: send UploadHead first, then the archive in pieces")
    head = first.head
    return UploadRequest(Target(head.namespace, head.name, head.kind), head.etag, head.request_id, head.build_only)


async def parts(messages: AsyncIterator[pb.UploadCodeRequest]) -> AsyncIterator[bytes | ConfigChange]:
    """The archive's pieces, and configuration. Raises UploadMalformed for anything else, and for a stream that was cut."""
    configured = False
    async for message in messages:
        what = message.WhichOneof("message")
        if what == "end":
            return
        if what == "chunk":
            yield _chunk(message.chunk)
        elif what == "config" and not configured:
            configured = True
            yield _config(message.config)
        else:
            raise UploadMalformed("after its head an upload has pieces of the archive, and configuration once at most")
    raise UploadMalformed("the upload broke off before the archive's end: send it again")


def upload_response(created: CreatedVersion) -> pb.UploadCodeResponse:
    """The registry's CreateVersionResponse, which has the same fields by number and type (a test compares them)."""
    return pb.UploadCodeResponse.FromString(created.answer)


def source_request(request: pb.GetSourceRequest) -> SourceRequest:
    """What is asked for of a source."""
    target = Target(request.namespace, request.name, request.kind)
    return SourceRequest(target, max(request.version, 0), max(request.max_bytes, 0), request.archive)


def source_response(part: SourcePart) -> pb.GetSourceResponse:
    """A part of a source."""
    if isinstance(part, bytes):
        return pb.GetSourceResponse(chunk=part)
    if isinstance(part, SourceFile):
        return pb.GetSourceResponse(file=pb.SourceFile(path=part.path, size=part.size, executable=part.executable))
    version = part.version
    return pb.GetSourceResponse(
        head=pb.SourceHead(
            version=version.number,
            runtime=version.runtime,
            entrypoint=version.entrypoint,
            files=part.files,
            version_uid=version.uid,
            archive_bytes=part.archive_bytes,
        )
    )


def _chunk(chunk: bytes) -> bytes:
    if len(chunk) > MAX_CHUNK_BYTES:
        raise UploadMalformed(f"a piece of {len(chunk):,} bytes is too large: send 1 MiB at most")
    return chunk


def _config(message: pb.UploadConfig) -> ConfigChange:
    fields = tuple(message.config_mask.paths)
    if not fields:
        raise UploadMalformed("config_mask must name at least one field of config")
    entrypoint = message.config.entrypoint if not {"entrypoint", "*"}.isdisjoint(fields) else None
    return ConfigChange(message.config.SerializeToString(), fields, entrypoint)


def log_target(request: pb.GetBuildLogRequest) -> Target:
    """The function whose log is asked for."""
    return Target(request.namespace, request.name, request.kind)
