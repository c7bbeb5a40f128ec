"""RegistryService: convert, call, convert."""
# ruff: noqa: N802 - methods are named as their RPCs

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeAlias

import grpc
from sless.registry.v1 import registry_pb2 as pb
from sless.registry.v1 import registry_pb2_grpc as pb_grpc
from sless_platform.errors import InvalidArgument
from sless_platform.identity import Principal, authorise
from sless_platform.rpc.access import Access, current_principal

from sless_registry.application.functions import Functions
from sless_registry.application.namespaces import Namespaces
from sless_registry.application.queries import Queries
from sless_registry.application.reports import Reports
from sless_registry.application.versions import Versions
from sless_registry.application.watching import Watch, Watching
from sless_registry.application.workloads import Workloads
from sless_registry.grpc_api import convert, requests

# Texts, because these classes are generic for type checkers alone.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["RegistryService"].full_name
LONGEST_WAIT: Final = timedelta(seconds=30)
"""How long a call without a deadline waits for a fence."""
_ANSWER_MARGIN: Final = timedelta(milliseconds=200)
"""What is left of a call's deadline to tell that a wait was in vain."""

_SERVICES: Final = ("gateway", "builder", "runtime-manager", "invoker")


@dataclass(frozen=True)
class Application:
    """All that the registry does, by groups of RPCs."""

    namespaces: Namespaces
    functions: Functions
    versions: Versions
    queries: Queries
    reports: Reports
    workloads: Workloads
    watching: Watching


class RegistryServicer(pb_grpc.RegistryServiceServicer):
    """See registry.proto for what each RPC does."""

    ACCESS: ClassVar = {
        "EnsureNamespace": Access.user(),
        "GetNamespace": Access.user_or_services(*_SERVICES),
        "DeleteNamespace": Access.user(),
        "CreateFunction": Access.user(),
        "GetFunction": Access.user_or_services(*_SERVICES),
        "ListFunctions": Access.user_or_services(*_SERVICES),
        "UpdateFunction": Access.user(),
        "DeleteFunction": Access.user(),
        "WaitFunction": Access.user_or_services(*_SERVICES),
        "CreateVersion": Access.services("builder"),
        "GetVersion": Access.user_or_services(*_SERVICES),
        "ListVersions": Access.user_or_services(*_SERVICES),
        "ActivateVersion": Access.user(),
        "ReportBuild": Access.services("builder"),
        "ReportStatus": Access.services("runtime-manager"),
        "ReportFinalized": Access.services("builder", "runtime-manager"),
        "GetWorkload": Access.services("runtime-manager"),
        "Watch": Access.services(*_SERVICES),
    }

    def __init__(self, application: Application) -> None:
        self._application = application

    async def EnsureNamespace(self, request: pb.EnsureNamespaceRequest, context: Context) -> pb.EnsureNamespaceResponse:
        namespace = await self._application.namespaces.ensure(
            principal=current_principal(), namespace=request.namespace
        )
        return pb.EnsureNamespaceResponse(namespace=convert.to_namespace(namespace))

    async def GetNamespace(self, request: pb.GetNamespaceRequest, context: Context) -> pb.GetNamespaceResponse:
        namespace = await self._application.queries.namespace(
            principal=current_principal(), namespace=request.namespace
        )
        return pb.GetNamespaceResponse(namespace=convert.to_namespace(namespace))

    async def DeleteNamespace(self, request: pb.DeleteNamespaceRequest, context: Context) -> pb.DeleteNamespaceResponse:
        await self._application.namespaces.delete(
            principal=current_principal(),
            namespace=request.namespace,
            confirm=request.confirm,
            request=requests.repeatable(request.request_id, request),
            within=_within(context),
        )
        return pb.DeleteNamespaceResponse()

    async def CreateFunction(self, request: pb.CreateFunctionRequest, context: Context) -> pb.CreateFunctionResponse:
        function = await self._application.functions.create(
            principal=_owner(request.function.namespace),
            namespace=request.function.namespace,
            name=request.function.name,
            kind=requests.kind_required(request.function.kind),
            draft=requests.draft(request.function),
            request=requests.repeatable(request.request_id, request),
        )
        return pb.CreateFunctionResponse(function=convert.to_function(function))

    async def GetFunction(self, request: pb.GetFunctionRequest, context: Context) -> pb.GetFunctionResponse:
        principal, queries = current_principal(), self._application.queries
        if request.uid:
            at = await queries.function_by_uid(principal=principal, uid=request.uid)
        else:
            at = await queries.function(
                principal=principal,
                namespace=request.namespace,
                name=request.name,
                kind=requests.kind_asked(request.kind),
            )
        function = None if at.function is None else convert.to_function(at.function)
        return pb.GetFunctionResponse(function=function, read_revision=at.revision)

    async def ListFunctions(self, request: pb.ListFunctionsRequest, context: Context) -> pb.ListFunctionsResponse:
        functions, following = await self._application.queries.functions(
            principal=current_principal(),
            namespace=request.namespace,
            kind=requests.kind_asked(request.kind),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListFunctionsResponse(functions=map(convert.to_function, functions), next_page_token=following)

    async def UpdateFunction(self, request: pb.UpdateFunctionRequest, context: Context) -> pb.UpdateFunctionResponse:
        function = await self._application.functions.update(
            principal=_owner(request.function.namespace),
            namespace=request.function.namespace,
            name=request.function.name,
            kind=requests.kind_asked(request.function.kind),
            draft=requests.draft(request.function),
            mask=frozenset(request.update_mask.paths),
            etag=request.etag,
            request=requests.repeatable(request.request_id, request),
            within=_within(context),
        )
        return pb.UpdateFunctionResponse(function=convert.to_function(function))

    async def DeleteFunction(self, request: pb.DeleteFunctionRequest, context: Context) -> pb.DeleteFunctionResponse:
        await self._application.functions.delete(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            etag=request.etag,
            request=requests.repeatable(request.request_id, request),
            within=_within(context),
        )
        return pb.DeleteFunctionResponse()

    async def WaitFunction(self, request: pb.WaitFunctionRequest, context: Context) -> pb.WaitFunctionResponse:
        function = await self._application.queries.wait(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            wait=requests.duration(request.wait, "wait"),
            within=_left(context),
        )
        return pb.WaitFunctionResponse(function=convert.to_function(function))

    async def CreateVersion(self, request: pb.CreateVersionRequest, context: Context) -> pb.CreateVersionResponse:
        version, created, function = await self._application.versions.create(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            upload=requests.upload(request),
            change=requests.change(request),
            etag=request.etag,
            request=requests.repeatable(request.request_id, request),
            within=_within(context),
        )
        return pb.CreateVersionResponse(
            version=convert.to_version(version), created=created, function=convert.to_function(function)
        )

    async def GetVersion(self, request: pb.GetVersionRequest, context: Context) -> pb.GetVersionResponse:
        version = await self._application.queries.version(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            number=request.version,
        )
        return pb.GetVersionResponse(version=convert.to_version(version))

    async def ListVersions(self, request: pb.ListVersionsRequest, context: Context) -> pb.ListVersionsResponse:
        versions, following = await self._application.queries.versions(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListVersionsResponse(versions=map(convert.to_version, versions), next_page_token=following)

    async def ActivateVersion(self, request: pb.ActivateVersionRequest, context: Context) -> pb.ActivateVersionResponse:
        function, version = await self._application.versions.activate(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            kind=requests.kind_asked(request.kind),
            number=request.version,
            etag=request.etag,
            request=requests.repeatable(request.request_id, request),
        )
        return pb.ActivateVersionResponse(function=convert.to_function(function), version=convert.to_version(version))

    async def ReportBuild(self, request: pb.ReportBuildRequest, context: Context) -> pb.ReportBuildResponse:
        version = await self._application.reports.build(report=requests.build_report(request))
        return pb.ReportBuildResponse(version=None if version is None else convert.to_version(version))

    async def ReportStatus(self, request: pb.ReportStatusRequest, context: Context) -> pb.ReportStatusResponse:
        report = requests.status_report(request)
        accepted = await self._application.reports.status(report=report, within=_within(context))
        return pb.ReportStatusResponse(accepted=accepted)

    async def ReportFinalized(self, request: pb.ReportFinalizedRequest, context: Context) -> pb.ReportFinalizedResponse:
        await self._application.reports.finalized(principal=current_principal(), function_uid=request.function_uid)
        return pb.ReportFinalizedResponse()

    async def GetWorkload(self, request: pb.GetWorkloadRequest, context: Context) -> pb.GetWorkloadResponse:
        workload = await self._application.workloads.get(function_uid=request.function_uid)
        return pb.GetWorkloadResponse(workload=convert.to_workload(workload))

    async def Watch(  # type: ignore[override]  # the stub knows generators only
        self, request_iterator: AsyncIterator[pb.WatchRequest], context: Context
    ) -> None:
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("message") != "start":
            raise InvalidArgument("the first message of a watch must be a start", field="start")
        start = requests.start(first.start)
        with self._application.watching.watch(principal=current_principal(), start=start) as watch:
            await _both(_send(watch, context), _take(request_iterator, watch))


async def _both(*halves: Coroutine[Any, Any, None]) -> None:
    """Run both until they end or one fails, which ends the other and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for half in halves:
                tasks.create_task(half)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _send(watch: Watch, context: Context) -> None:
    """Without end. gRPC takes no more than its flow control allows, so that a slow watcher holds only its own stream up."""
    async for batch in watch.batches():
        for response in convert.to_responses(batch):
            await context.write(response)


async def _take(messages: AsyncIterator[pb.WatchRequest], watch: Watch) -> None:
    async for message in messages:
        if message.WhichOneof("message") != "acknowledged_revision":
            raise InvalidArgument("every message of a watch but the first must be an acknowledgement")
        watch.acknowledge(message.acknowledged_revision)


def _left(context: Context) -> timedelta | None:
    """How long an answer may take; None: as long as it takes."""
    left = context.time_remaining()
    if left is None or left > timedelta(days=1).total_seconds():
        return None
    return max(timedelta(seconds=left) - _ANSWER_MARGIN, timedelta(0))


def _within(context: Context) -> timedelta:
    """How long a fence may be waited for."""
    left = _left(context)
    return LONGEST_WAIT if left is None else min(left, LONGEST_WAIT)


def _owner(namespace: str) -> Principal:
    """Who is calling, once it is sure that it may act in the namespace: before anything else of the request is judged."""
    principal = current_principal()
    authorise(principal, namespace)
    return principal
