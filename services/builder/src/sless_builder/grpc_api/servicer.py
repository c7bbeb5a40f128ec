"""BuilderService over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import grpc
from sless.builder.v1 import builder_pb2 as pb
from sless.builder.v1 import builder_pb2_grpc
from sless_platform.rpc.access import Access, current_principal

from sless_builder.application.reading_logs import BuildLogs
from sless_builder.application.reading_sources import Sources
from sless_builder.application.uploading import Uploading
from sless_builder.grpc_api import convert

_TEXT_CHARACTERS: Final = 256 * 1024


class BuilderServicer(builder_pb2_grpc.BuilderServiceServicer):
    """Serves sless.builder.v1.BuilderService."""

    ACCESS: Mapping[str, Access] = {
        "UploadCode": Access.user(),
        "GetBuildLog": Access.user(),
        "GetSource": Access.user(),
    }

    def __init__(self, uploading: Uploading, logs: BuildLogs, sources: Sources) -> None:
        self._uploading = uploading
        self._logs = logs
        self._sources = sources

    async def UploadCode(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.UploadCodeRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.UploadCodeResponse:
        """Takes an archive and makes a version of it."""
        messages = aiter(request_iterator)
        request = convert.upload_request(await anext(messages, None))
        created = await self._uploading.upload(
            principal=current_principal(), request=request, parts=convert.parts(messages)
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

    async def GetSource(  # noqa: N802
        self, request: pb.GetSourceRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.GetSourceResponse]:
        """Streams a version's files, or its archive."""
        parts = self._sources.read(principal=current_principal(), request=convert.source_request(request))
        async with aclosing(parts):
            async for part in parts:
                yield convert.source_response(part)
