"""A registry that keeps everything in memory, for tests of the gateway."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from google.protobuf.timestamp_pb2 import Timestamp
from sless.registry.v1 import registry_pb2 as pb
from sless.registry.v1 import registry_pb2_grpc
from sless_contracts.catalog import RUNTIMES
from sless_platform.errors import Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from sless_platform.rpc.access import Access, authorise, current_principal

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
PAGE = 2
"""What it gives at once, whatever is asked for: so that whoever lists must turn pages."""


def stamp(moment: datetime = NOW) -> Timestamp:
    """A Timestamp message."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


@dataclass
class FakeRegistry(registry_pb2_grpc.RegistryServiceServicer):
    """Functions and versions in dictionaries; the rules that a client of the gateway can see, and no others."""

    ACCESS: ClassVar = {
        name: Access.user()
        for name in (
            "EnsureNamespace", "GetNamespace", "DeleteNamespace", "CreateFunction", "GetFunction", "ListFunctions",
            "UpdateFunction", "DeleteFunction", "WaitFunction", "CreateVersion", "GetVersion", "ListVersions",
            "ActivateVersion", "ReportBuild", "ReportStatus", "ReportFinalized", "GetWorkload", "Watch",
        )
    }  # fmt: skip

    functions: dict[tuple[str, str], pb.Function] = field(default_factory=dict)
    versions: dict[tuple[str, str], list[pb.Version]] = field(default_factory=dict)
    namespaces: dict[str, pb.Namespace] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    waits: Callable[[pb.Function], None] = lambda function: None
    """Called by WaitFunction before it answers: makes of the function what it became meanwhile."""

    async def EnsureNamespace(self, request: pb.EnsureNamespaceRequest, _context: Any) -> pb.EnsureNamespaceResponse:
        self._enter(request, request.namespace)
        made = pb.Namespace(namespace=request.namespace, number=len(self.namespaces) + 1, created_at=stamp())
        return pb.EnsureNamespaceResponse(namespace=self.namespaces.setdefault(request.namespace, made))

    async def GetNamespace(self, request: pb.GetNamespaceRequest, _context: Any) -> pb.GetNamespaceResponse:
        self._enter(request, request.namespace)
        if request.namespace not in self.namespaces:
            raise NotFound("there is no such namespace", reason="NAMESPACE_NOT_FOUND")
        return pb.GetNamespaceResponse(namespace=self.namespaces[request.namespace])

    async def DeleteNamespace(self, request: pb.DeleteNamespaceRequest, _context: Any) -> pb.DeleteNamespaceResponse:
        self._enter(request, request.namespace)
        if self.namespaces.pop(request.namespace, None) is None:
            raise NotFound("there is no such namespace", reason="NAMESPACE_NOT_FOUND")
        return pb.DeleteNamespaceResponse()

    async def CreateFunction(self, request: pb.CreateFunctionRequest, _context: Any) -> pb.CreateFunctionResponse:
        asked = request.function
        self._enter(request, asked.namespace)
        key = (asked.namespace, asked.name)
        if key in self.functions:
            raise AlreadyExists(f"{asked.name} exists already", reason="FUNCTION_EXISTS")
        _check_runtime(asked)
        made = pb.Function()
        made.CopyFrom(asked)
        made.uid, made.phase, made.message = uuid.uuid4().hex, pb.PHASE_PENDING, "waiting for code: upload a zip"
        made.generation = 1
        made.created_at.CopyFrom(stamp())
        self._store(made)
        return pb.CreateFunctionResponse(function=made)

    async def GetFunction(self, request: pb.GetFunctionRequest, _context: Any) -> pb.GetFunctionResponse:
        self._enter(request, request.namespace)
        return pb.GetFunctionResponse(function=self.found(request))

    async def ListFunctions(self, request: pb.ListFunctionsRequest, _context: Any) -> pb.ListFunctionsResponse:
        self._enter(request, request.namespace)
        found = sorted(
            (one for (ns, _), one in self.functions.items() if ns == request.namespace and one.kind == request.kind),
            key=lambda one: one.name,
        )
        start = int(request.page_token or 0)
        following = str(start + PAGE) if start + PAGE < len(found) else ""
        return pb.ListFunctionsResponse(functions=found[start : start + PAGE], next_page_token=following)

    async def UpdateFunction(self, request: pb.UpdateFunctionRequest, _context: Any) -> pb.UpdateFunctionResponse:
        self._enter(request, request.function.namespace)
        before = self.found(request.function)
        check_etag(before, request.etag)
        _check_runtime(request.function)
        now = pb.Function()
        now.CopyFrom(request.function)
        for name in ("uid", "phase", "message", "active_version", "generation"):
            setattr(now, name, getattr(before, name))
        now.created_at.CopyFrom(before.created_at)
        for name, secret in now.secret_env.items():
            if secret.sha256 and before.secret_env[name].sha256 != secret.sha256:
                raise InvalidArgument(f"secret_env.{name} has no such stored value", field=f"secret_env.{name}")
        now.generation += 1
        self._store(now)
        return pb.UpdateFunctionResponse(function=now)

    async def DeleteFunction(self, request: pb.DeleteFunctionRequest, _context: Any) -> pb.DeleteFunctionResponse:
        self._enter(request, request.namespace)
        check_etag(self.found(request), request.etag)
        del self.functions[request.namespace, request.name]
        return pb.DeleteFunctionResponse()

    async def WaitFunction(self, request: pb.WaitFunctionRequest, _context: Any) -> pb.WaitFunctionResponse:
        self._enter(request, request.namespace)
        function = self.found(request)
        self.waits(function)
        return pb.WaitFunctionResponse(function=function)

    async def GetVersion(self, request: pb.GetVersionRequest, _context: Any) -> pb.GetVersionResponse:
        self._enter(request, request.namespace)
        return pb.GetVersionResponse(version=self._version(request))

    async def ListVersions(self, request: pb.ListVersionsRequest, _context: Any) -> pb.ListVersionsResponse:
        self._enter(request, request.namespace)
        self.found(request)
        found = list(reversed(self.versions.get((request.namespace, request.name), [])))
        start = int(request.page_token or 0)
        following = str(start + PAGE) if start + PAGE < len(found) else ""
        return pb.ListVersionsResponse(versions=found[start : start + PAGE], next_page_token=following)

    async def ActivateVersion(self, request: pb.ActivateVersionRequest, _context: Any) -> pb.ActivateVersionResponse:
        self._enter(request, request.namespace)
        function, version = self.found(request), self._version(request)
        check_etag(function, request.etag)
        if version.state != pb.VERSION_STATE_BUILT:
            raise FailedPrecondition(f"version {version.version} is not built", reason="VERSION_NOT_BUILT")
        function.generation += 1
        function.desired_version, function.phase = version.version, pb.PHASE_DEPLOYING
        self._store(function)
        return pb.ActivateVersionResponse(function=function, version=version)

    def add_version(self, function: pb.Function, digest: str, size: int) -> pb.Version:
        """What an upload makes."""
        kept = self.versions.setdefault((function.namespace, function.name), [])
        version = pb.Version(
            uid=uuid.uuid4().hex,
            namespace=function.namespace,
            name=function.name,
            version=len(kept) + 1,
            state=pb.VERSION_STATE_PENDING,
            code_sha256=digest,
            size_bytes=size,
            created_by="sub",
            created_at=stamp(),
            revision=1,
        )
        kept.append(version)
        function.generation += 1
        self._store(function)
        return version

    def _store(self, function: pb.Function) -> None:
        for secret in function.secret_env.values():
            if secret.WhichOneof("content") == "value":
                secret.sha256 = hashlib.sha256(secret.value.encode()).hexdigest()
        function.etag = f"{function.uid[:8]}-{function.generation}"
        function.updated_at.CopyFrom(stamp())
        self.functions[function.namespace, function.name] = function

    def _enter(self, request: Any, namespace: str) -> None:
        authorise(current_principal(), namespace)
        self.requests.append(request)

    def found(self, request: Any) -> pb.Function:
        """The function that a request names. Raises NotFound."""
        found = self.functions.get((request.namespace, request.name))
        if found is None or request.kind not in (pb.FUNCTION_KIND_UNSPECIFIED, found.kind):
            raise NotFound(f"function not found: {request.name}", reason="FUNCTION_NOT_FOUND")
        return found

    def _version(self, request: Any) -> pb.Version:
        self.found(request)
        for version in self.versions.get((request.namespace, request.name), []):
            if version.version == request.version:
                return version
        raise NotFound(f"version not found: {request.version}", reason="VERSION_NOT_FOUND")


def check_etag(function: pb.Function, etag: str) -> None:
    """Raise Aborted when another state was meant."""
    if etag not in ("", "*", function.etag):
        raise Aborted(f"{function.name} has changed", reason="ETAG_MISMATCH")


def _check_runtime(function: pb.Function) -> None:
    if function.runtime not in RUNTIMES:
        raise InvalidArgument(f"runtime must be one of …, not {function.runtime!r}", field="runtime")
