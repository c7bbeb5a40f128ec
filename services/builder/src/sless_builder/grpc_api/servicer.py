"""BuilderService over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
from sless.builder.v1 import builder_pb2 as pb
from sless.builder.v1 import builder_pb2_grpc
from sless_platform.rpc.access import Access, current_principal

from sless_builder.application.reading_logs import BuildLogs
from sless_builder.application.uploading import Uploading
from sless_builder.grpc_api import convert

_TEXT_CHARACTERS: Final = 256 * 1024


class BuilderServicer(builder_pb2_grpc.BuilderServiceServicer):
    """Serves sless.builder.v1.BuilderService."""

    ACCESS: Mapping[str, Access] = {"UploadCode": Access.user(), "GetBuildLog": Access.user()}

    def __init__(self, uploading: Uploading, logs: BuildLogs) -> None:
        self._uploading = uploading
        self._logs = logs

    async def UploadCode(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.UploadCodeRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.UploadCodeResponse:
        """Takes an archive and makes a version of it."""
        messages = aiter(request_iterator)
        request = convert.upload_request(await anext(messages, None))
        created = await self._uploading.upload(
            principal=current_principal(), request=request, chunks=convert.chunks(messages)
        )
        return convert.upload_response(created)

    async def GetBuildLog(  # noqa: N802
        self, request: pb.GetBuildLogRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.GetBuildLogResponse]:
        """Streams a build log."""
        parts = self._logs.read(
            principal=current_principal(),
            target=convert.log_target(request),
            number=request.version,
            follow=request.follow,
        )
        async for text in parts:
            for start in range(0, len(text), _TEXT_CHARACTERS):
                yield pb.GetBuildLogResponse(text=text[start : start + _TEXT_CHARACTERS])
