"""builder over gRPC, in the caller's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from sless.builder.v1 import builder_pb2 as pb
from sless.builder.v1 import builder_pb2_grpc
from sless_platform.errors import DeadlineExceeded
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel, with_identity

from sless_gateway.adapters import convert
from sless_gateway.adapters.sending import Sending
from sless_gateway.domain import Caller, FunctionKey, Upload

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
        archive: AsyncIterator[bytes],
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
        sending = Sending(call, _requests(head, archive))
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


async def _requests(head: pb.UploadHead, archive: AsyncIterator[bytes]) -> AsyncGenerator[pb.UploadCodeRequest, None]:
    yield pb.UploadCodeRequest(head=head)
    async for data in archive:
        for start in range(0, len(data), _PIECE_BYTES):
            yield pb.UploadCodeRequest(chunk=data[start : start + _PIECE_BYTES])
    yield pb.UploadCodeRequest(end=True)


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
