"""Between messages and the application's types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from sless.builder.v1 import builder_pb2 as pb

from sless_builder.application.uploading import UploadRequest
from sless_builder.errors import UploadMalformed
from sless_builder.ports import CreatedVersion, Target

MAX_CHUNK_BYTES: Final = 1 << 20


def upload_request(first: pb.UploadCodeRequest | None) -> UploadRequest:
    """What the stream's first message says. Raises UploadMalformed."""
    if first is None or first.WhichOneof("message") != "head":
        raise UploadMalformed("an upload begins with its head: send UploadHead first, then the archive in pieces")
    head = first.head
    return UploadRequest(Target(head.namespace, head.name, head.kind), head.etag, head.request_id, head.build_only)


async def chunks(messages: AsyncIterator[pb.UploadCodeRequest]) -> AsyncIterator[bytes]:
    """The archive's pieces. Raises UploadMalformed for anything between them, and for a stream that was cut."""
    async for message in messages:
        if message.WhichOneof("message") == "end":
            return
        if message.WhichOneof("message") != "chunk":
            raise UploadMalformed("after its head an upload has pieces of the archive alone")
        if len(message.chunk) > MAX_CHUNK_BYTES:
            raise UploadMalformed(f"a piece of {len(message.chunk):,} bytes is too large: send 1 MiB at most")
        yield message.chunk
    raise UploadMalformed("the upload broke off before the archive's end: send it again")


def upload_response(created: CreatedVersion) -> pb.UploadCodeResponse:
    """The registry's CreateVersionResponse, which has the same fields by number and type (a test compares them)."""
    return pb.UploadCodeResponse.FromString(created.answer)


def log_target(request: pb.GetBuildLogRequest) -> Target:
    """The function whose log is asked for."""
    return Target(request.namespace, request.name, request.kind)
