"""auth, registry, builder and invoker as real gRPC servers that keep everything in memory, for tests of the gateway."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from google.protobuf.duration_pb2 import Duration
from sless.auth.v1 import auth_pb2, auth_pb2_grpc
from sless.builder.v1 import builder_pb2, builder_pb2_grpc
from sless.invoker.v1 import invoker_pb2, invoker_pb2_grpc
from sless.registry.v1 import registry_pb2, registry_pb2_grpc
from sless_contracts.catalog import namespace_of
from sless_contracts.wire import ERROR_DOMAIN, IDENTITY_METADATA, USER_ISSUER
from sless_platform import tracing
from sless_platform.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PlatformError,
    ResourceExhausted,
    Unauthenticated,
)
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.rpc.access import Access, authorise, current_principal
from sless_platform.rpc.server import RpcServer
from sless_platform.tracing import Trace

from tests.support.fake_registry import FakeRegistry, check_etag, stamp
from tests.support.identity import IdentityKeys, new_identity_keys

KEYS = new_identity_keys("auth", "registry", "builder", "runtime-manager", "invoker", "gateway")
"""One set for all tests: Ed25519 keys are made in no time, but a set a test would say nothing more."""

ARCHIVE = b"PK\x03\x04" + bytes(range(250))
"""The archive of every source."""

Call = Callable[[invoker_pb2.CallHead, AsyncIterator[bytes]], AsyncIterator[invoker_pb2.InvokeResponse]]


@dataclass
class FakeAuth(auth_pb2_grpc.AuthServiceServicer):
    """Tokens that hold, and what they say. `asked` counts questions; `hold`, when set, is awaited by each of them."""

    ACCESS: ClassVar = {
        "Authenticate": Access.services("gateway"),
        "WhoAmI": Access.user(),
        "CreateApiKey": Access.user(),
        "ListApiKeys": Access.user(),
        "DeleteApiKey": Access.user(),
        "DeleteNamespaceApiKeys": Access.services("registry"),
    }

    keys: IdentityKeys = KEYS
    users: dict[str, Principal] = field(default_factory=dict)
    """By token."""
    api_keys: list[auth_pb2.ApiKey] = field(default_factory=list)
    asked: int = 0
    ttl: timedelta = timedelta(minutes=5)
    remember_for: Duration | None = None
    hold: Callable[[], Awaitable[object]] | None = None
    fails: PlatformError | None = None

    def token(self, sub: str, *roles: str) -> str:
        """A token that holds from now on."""
        token = f"token-of-{sub}-{uuid.uuid4().hex}"
        self.users[token] = Principal(sub, namespace_of(sub), frozenset(roles))
        return token

    def api_key(self, sub: str, namespace: str) -> str:
        """The token of an API key that holds from now on."""
        token = f"key-of-{sub}-{uuid.uuid4().hex}"
        self.users[token] = Principal(sub, namespace, credential="0123456789abcdef")
        return token

    async def Authenticate(self, request: auth_pb2.AuthenticateRequest, _context: Any) -> auth_pb2.AuthenticateResponse:
        self.asked += 1
        if self.hold is not None:
            await self.hold()
        if self.fails is not None:
            raise self.fails
        if request.token not in self.users:
            raise Unauthenticated("the token is not valid", reason="TOKEN_INVALID")
        principal = self.users[request.token]
        now = datetime.now(UTC)
        signer = IdentitySigner(self.keys.private["auth"], "auth")
        return auth_pb2.AuthenticateResponse(
            principal=auth_pb2.Principal(
                sub=principal.subject,
                namespace=principal.namespace,
                roles=sorted(principal.roles),
                expires_at=None if principal.credential else stamp(now + timedelta(hours=1)),
                api_key_id=principal.credential,
            ),
            remember_for=self.remember_for,
            identities=[
                auth_pb2.Identity(
                    audience=audience,
                    token=signer.sign(principal, audience, self.ttl, now),
                    expires_at=stamp(now + self.ttl),
                )
                for audience in request.audiences
            ],
        )

    async def CreateApiKey(self, request: auth_pb2.CreateApiKeyRequest, _context: Any) -> auth_pb2.CreateApiKeyResponse:
        authorise(current_principal(), request.namespace)
        if current_principal().credential:
            raise PermissionDenied("API keys can't be made with an API key")
        if not request.name:
            raise InvalidArgument("name must be 1 to 63 characters", reason="INVALID_FIELD", field="name")
        key = auth_pb2.ApiKey(
            id=f"{len(self.api_keys):016}",
            namespace=request.namespace,
            name=request.name,
            created_by=current_principal().subject,
            created_at=stamp(datetime.now(UTC)),
            hint="sless_000000",
        )
        if request.HasField("expires_at"):
            key.expires_at.CopyFrom(request.expires_at)
        self.api_keys.insert(0, key)
        return auth_pb2.CreateApiKeyResponse(api_key=key, secret="the secret")

    async def ListApiKeys(self, request: auth_pb2.ListApiKeysRequest, _context: Any) -> auth_pb2.ListApiKeysResponse:
        authorise(current_principal(), request.namespace)
        start = int(request.page_token or 0)
        of_namespace = [key for key in self.api_keys if key.namespace == request.namespace]
        more = str(start + 1) if len(of_namespace) > start + 1 else ""
        return auth_pb2.ListApiKeysResponse(api_keys=of_namespace[start : start + 1], next_page_token=more)

    async def DeleteApiKey(self, request: auth_pb2.DeleteApiKeyRequest, _context: Any) -> auth_pb2.DeleteApiKeyResponse:
        authorise(current_principal(), request.namespace)
        left = [key for key in self.api_keys if (key.namespace, key.id) != (request.namespace, request.id)]
        if len(left) == len(self.api_keys):
            raise NotFound(f"API key not found: {request.id}", reason="API_KEY_NOT_FOUND")
        self.api_keys[:] = left
        return auth_pb2.DeleteApiKeyResponse()


@dataclass
class FakeBuilder(builder_pb2_grpc.BuilderServiceServicer):
    """Takes archives of at most `limit` bytes; refuses those that begin with `refuse` as soon as it has seen that."""

    ACCESS: ClassVar = {"UploadCode": Access.user(), "GetBuildLog": Access.user(), "GetSource": Access.user()}

    registry: FakeRegistry
    limit: int = 8 * 1024 * 1024
    refuse: bytes = b"BROKEN"
    heads: list[builder_pb2.UploadHead] = field(default_factory=list)
    archives: list[bytes] = field(default_factory=list)
    chunks: int = 0
    cancelled: int = 0
    logs: dict[int, Callable[[bool], AsyncIterator[str]]] = field(default_factory=dict)
    """By version: the log's parts, given whether it is followed."""
    configs: list[builder_pb2.UploadConfig] = field(default_factory=list)
    sources: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """By version: the files of its source; its archive is ARCHIVE."""
    again: registry_pb2.Version | None = None
    """The version that every upload is the same as."""
    source_requests: list[builder_pb2.GetSourceRequest] = field(default_factory=list)

    async def UploadCode(
        self, request_iterator: AsyncIterator[builder_pb2.UploadCodeRequest], _context: Any
    ) -> builder_pb2.UploadCodeResponse:
        head = (await anext(aiter(request_iterator))).head
        authorise(current_principal(), head.namespace)
        self.heads.append(head)
        function = self.registry.found(head)
        check_etag(function, head.etag)
        try:
            data = await self._received(request_iterator)
        except BaseException:
            self.cancelled += 1
            raise
        self.archives.append(data)
        if self.again is not None:
            return builder_pb2.UploadCodeResponse(version=self.again, created=False, function=function)
        version = self.registry.add_version(function, hashlib.sha256(data).hexdigest(), len(data))
        return builder_pb2.UploadCodeResponse(version=version, created=True, function=function)

    async def _received(self, messages: AsyncIterator[builder_pb2.UploadCodeRequest]) -> bytes:
        data = bytearray()
        async for message in messages:
            if message.HasField("end"):
                return bytes(data)
            if message.HasField("config"):
                self.configs.append(message.config)
                continue
            if not message.HasField("chunk"):
                raise InvalidArgument("only the first message may be a head", reason="UPLOAD_MALFORMED")
            self.chunks += 1
            data += message.chunk
            if len(data) > self.limit:
                raise ResourceExhausted("the zip is too large", reason="ARCHIVE_TOO_LARGE", field="code")
            if data.startswith(self.refuse):
                raise InvalidArgument("the archive is not a zip", reason="ARCHIVE_INVALID", field="code")
        raise InvalidArgument("the upload broke off", reason="UPLOAD_MALFORMED")

    async def GetBuildLog(
        self, request: builder_pb2.GetBuildLogRequest, _context: Any
    ) -> AsyncIterator[builder_pb2.GetBuildLogResponse]:
        authorise(current_principal(), request.namespace)
        if request.version not in self.logs:
            raise NotFound("there is no log of this version", reason="LOG_NOT_FOUND")
        async for text in self.logs[request.version](request.follow):
            yield builder_pb2.GetBuildLogResponse(text=text)

    async def GetSource(
        self, request: builder_pb2.GetSourceRequest, _context: Any
    ) -> AsyncIterator[builder_pb2.GetSourceResponse]:
        authorise(current_principal(), request.namespace)
        self.source_requests.append(request)
        self.registry.found(request)
        number = request.version or max(self.sources, default=0)
        if number not in self.sources:
            raise NotFound("there is no version yet", reason="VERSION_NOT_FOUND")
        files, left = self.sources[number], request.max_bytes
        head = builder_pb2.SourceHead(
            version=number,
            runtime="python3.11",
            entrypoint="handler.handle",
            files=len(files),
            version_uid=f"uid-{number}".ljust(32, "0"),
            archive_bytes=len(ARCHIVE),
        )
        yield builder_pb2.GetSourceResponse(head=head)
        if request.archive:
            for start in range(0, len(ARCHIVE), 100):
                yield builder_pb2.GetSourceResponse(chunk=ARCHIVE[start : start + 100])
            return
        for path, content in files.items():
            if len(content) <= left or not request.max_bytes:
                left -= len(content)
                yield builder_pb2.GetSourceResponse(file=builder_pb2.SourceFile(path=path, size=len(content)))
                for start in range(0, len(content), 1_000):
                    yield builder_pb2.GetSourceResponse(chunk=content[start : start + 1_000])


@dataclass
class FakeInvoker(invoker_pb2_grpc.InvokerServiceServicer):
    """Answers each call with what `call` gives for its head and body, or raises what that raises."""

    ACCESS: ClassVar = {"Invoke": Access.user_or_services("gateway")}

    call: Call
    heads: list[invoker_pb2.CallHead] = field(default_factory=list)
    principals: list[Principal] = field(default_factory=list)
    traces: list[Trace | None] = field(default_factory=list)
    cancelled: int = 0
    """Calls that were given up by whoever made them."""

    async def Invoke(
        self, request_iterator: AsyncIterator[invoker_pb2.InvokeRequest], _context: Any
    ) -> AsyncIterator[invoker_pb2.InvokeResponse]:
        head = (await anext(aiter(request_iterator))).head
        self.heads.append(head)
        self.principals.append(current_principal())
        self.traces.append(tracing.current())
        try:
            async for message in self.call(head, _pieces(head, request_iterator)):
                yield message
        except PlatformError as error:
            self.cancelled += error.reason == "CALL_MALFORMED"
            raise
        except BaseException:
            self.cancelled += 1
            raise


async def _pieces(
    head: invoker_pb2.CallHead, messages: AsyncIterator[invoker_pb2.InvokeRequest]
) -> AsyncIterator[bytes]:
    if head.first_body:
        yield head.first_body
    if not head.end:
        async for message in messages:
            if message.HasField("end"):
                return
            if not message.HasField("body"):
                raise InvalidArgument("only the first message may be a head", reason="CALL_MALFORMED")
            yield message.body
        raise InvalidArgument("the call broke off", reason="CALL_MALFORMED")


def reply(
    body: bytes = b"",
    *,
    status: int = 200,
    headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    end: bool = True,
) -> invoker_pb2.InvokeResponse:
    """An answer's head with its first bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return invoker_pb2.InvokeResponse(
        head=invoker_pb2.ReplyHead(
            status=status,
            headers=[invoker_pb2.Header(name=name, value=value) for name, value in pairs],
            first_body=body,
            end=end,
        )
    )


def more(body: bytes) -> invoker_pb2.InvokeResponse:
    """More of an answer's body."""
    return invoker_pb2.InvokeResponse(body=body)


async def echo(_head: invoker_pb2.CallHead, body: AsyncIterator[bytes]) -> AsyncIterator[invoker_pb2.InvokeResponse]:
    """Answers the body."""
    yield reply(b"".join([piece async for piece in body]), headers={"Content-Type": "application/octet-stream"})


@dataclass
class FakeServices:
    """All of them, and where they listen."""

    auth: FakeAuth
    registry: FakeRegistry
    builder: FakeBuilder
    invoker: FakeInvoker
    folder: Path
    servers: dict[str, RpcServer] = field(default_factory=dict)

    def address(self, service: str) -> str:
        """Where a service listens."""
        return f"unix:{self.folder}/{service}.sock"

    async def start(self, service: str) -> None:
        """Let a service listen."""
        parts: dict[str, tuple[Any, Callable[[Any, Any], None], str]] = {
            "auth": (self.auth, auth_pb2_grpc.add_AuthServiceServicer_to_server, "sless.auth.v1.AuthService"),
            "registry": (
                self.registry,
                registry_pb2_grpc.add_RegistryServiceServicer_to_server,
                "sless.registry.v1.RegistryService",
            ),
            "builder": (
                self.builder,
                builder_pb2_grpc.add_BuilderServiceServicer_to_server,
                "sless.builder.v1.BuilderService",
            ),
            "invoker": (
                self.invoker,
                invoker_pb2_grpc.add_InvokerServiceServicer_to_server,
                "sless.invoker.v1.InvokerService",
            ),
        }
        servicer, add, name = parts[service]
        server = RpcServer(
            self.address(service),
            verifier=IdentityVerifier(KEYS.public, audience=service, user_issuer=USER_ISSUER),
            identity_metadata=IDENTITY_METADATA,
            error_domain=ERROR_DOMAIN,
        )
        server.add(servicer, add, name)
        await server.start()
        server.health.set("", True)
        self.servers[service] = server

    async def stop(self, service: str) -> None:
        """Take a service away."""
        await self.servers.pop(service).stop(timedelta())


@asynccontextmanager
async def running_services(folder: Path) -> AsyncIterator[FakeServices]:
    """All services on sockets in `folder`."""
    # What a fake leaves out answers UNIMPLEMENTED, as in every generated servicer.
    registry, auth = FakeRegistry(), FakeAuth()  # type: ignore[abstract]
    services = FakeServices(auth, registry, FakeBuilder(registry), FakeInvoker(echo), folder)
    async with AsyncExitStack() as stack:
        for service in ("auth", "registry", "builder", "invoker"):
            await services.start(service)
        stack.push_async_callback(_stop_all, services)
        yield services


async def _stop_all(services: FakeServices) -> None:
    for service in list(services.servers):
        await services.stop(service)
