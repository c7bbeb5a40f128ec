"""builder over gRPC, in the caller's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from sless.builder.v1 import builder_pb2 as pb
from sless.builder.v1 import builder_pb2_grpc
from sless_platform.errors import DeadlineExceeded
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel, with_identity

from sless_gateway.adapters import convert
from sless_gateway.adapters.sending import Sending
from sless_gateway.domain import Caller, ConfigChange, FunctionKey, SourceFile, SourceHead, Upload

_PIECE_BYTES: Final = 256 * 1024
_STORING_SEC: Final = 120
"""How long an archive that has been sent may take to be checked and stored."""


class BuilderClient:
    """The port Builder."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = builder_pb2_grpc.BuilderServiceStub(channel.channel)

    async def upload(
        self,
        caller: Caller,
        key: FunctionKey,
        parts: AsyncIterator[bytes | ConfigChange],
        *,
        etag: str,
        request_id: str,
        build_only: bool,
    ) -> Upload:
        """See Builder. How long it may take is for whoever reads the client to say."""
        head = pb.UploadHead(
            namespace=key.namespace,
            name=key.name,
            kind=convert.KIND_TO_PROTO[key.kind],
            etag=etag,
            request_id=request_id,
            build_only=build_only,
        )
        call = self._stub.UploadCode(metadata=_identity(caller), timeout=NO_DEADLINE)
        sending = Sending(call, _requests(head, key, parts))
        storing = asyncio.ensure_future(_stored(call, sending))
        try:
            answer = await sending.outcome(storing)
        finally:
            await sending.stop()
            sending.give_up()
            call.cancel()
            await asyncio.wait({storing})
        return Upload(convert.version(answer.version), answer.created, convert.function(answer.function))

    async def build_log(self, caller: Caller, key: FunctionKey, number: int, *, follow: bool) -> AsyncIterator[str]:
        """See Builder."""
        request = pb.GetBuildLogRequest(
            namespace=key.namespace,
            name=key.name,
            kind=convert.KIND_TO_PROTO[key.kind],
            version=number,
            follow=follow,
        )
        call = self._stub.GetBuildLog(request, metadata=_identity(caller))
        try:
            async for part in call:
                yield part.text
        finally:
            call.cancel()

    async def source(
        self, caller: Caller, key: FunctionKey, number: int | None, *, max_bytes: int
    ) -> AsyncGenerator[SourceHead | SourceFile, None]:
        """See Builder."""
        begun: list[bytes] | None = None
        path = ""
        async with aclosing(self._source(caller, key, number, max_bytes=max_bytes)) as messages:
            async for message in messages:
                if message.HasField("head"):
                    yield _source_head(message.head)
                elif begun is not None and message.HasField("chunk"):
                    begun.append(message.chunk)
                else:
                    if begun is not None:
                        yield SourceFile(path, b"".join(begun))
                    path, begun = message.file.path, []
        if begun is not None:
            yield SourceFile(path, b"".join(begun))

    async def archive(
        self, caller: Caller, key: FunctionKey, number: int | None
    ) -> AsyncGenerator[SourceHead | bytes, None]:
        """See Builder."""
        async with aclosing(self._source(caller, key, number, archive=True)) as messages:
            async for message in messages:
                yield _source_head(message.head) if message.HasField("head") else message.chunk

    async def _source(
        self, caller: Caller, key: FunctionKey, number: int | None, **asked: Any
    ) -> AsyncGenerator[pb.GetSourceResponse, None]:
        request = pb.GetSourceRequest(
            namespace=key.namespace,
            name=key.name,
            kind=convert.KIND_TO_PROTO[key.kind],
            version=number or 0,
            **asked,
        )
        call = self._stub.GetSource(request, metadata=_identity(caller))
        try:
            async for message in call:
                yield message
        finally:
            call.cancel()


async def _requests(
    head: pb.UploadHead, key: FunctionKey, parts: AsyncIterator[bytes | ConfigChange]
) -> AsyncGenerator[pb.UploadCodeRequest, None]:
    yield pb.UploadCodeRequest(head=head)
    async for part in parts:
        if isinstance(part, ConfigChange):
            yield pb.UploadCodeRequest(config=_config(key, part))
        else:
            for start in range(0, len(part), _PIECE_BYTES):
                yield pb.UploadCodeRequest(chunk=part[start : start + _PIECE_BYTES])
    yield pb.UploadCodeRequest(end=True)


def _config(key: FunctionKey, change: ConfigChange) -> pb.UploadConfig:
    mask = FieldMask(paths=convert.paths(change.fields))
    return pb.UploadConfig(config=convert.function_message(key, change.config), config_mask=mask)


def _source_head(message: pb.SourceHead) -> SourceHead:
    return SourceHead(message.version, message.version_uid, message.entrypoint, message.files, message.archive_bytes)


async def _stored(call: Any, sending: Sending) -> pb.UploadCodeResponse:
    """The answer, which is due soon once everything has been sent."""
    answering = asyncio.ensure_future(_answer(call))
    await sending.first_of(answering)
    try:
        async with asyncio.timeout(_STORING_SEC):
            return await answering
    except TimeoutError:
        raise DeadlineExceeded("the upload could not be stored in time; try again") from None


async def _answer(call: Any) -> pb.UploadCodeResponse:
    answer: pb.UploadCodeResponse = await call
    return answer


def _identity(caller: Caller) -> tuple[tuple[str, str], ...]:
    return with_identity(caller.identities["builder"])
