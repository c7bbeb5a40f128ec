"""A registry in this process, and clients of it under any identity.

The fixture `registry` runs it on memory: fast, and complete, watches and fences included. A test that deletes, takes access away or
reports Ready needs somebody who applies revisions: `async with registry.invoker():` stands in for the invoker.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless.registry.v1.registry_pb2_grpc import RegistryServiceStub
from sless_contracts import catalog, wire
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.postgres import create_pool
from sless_platform.rpc.client import IdentitySource, RpcChannel, ServiceIdentity, UserIdentity
from sless_platform.rpc.server import RpcServer
from sless_registry.adapters.memory import MemoryStore
from sless_registry.adapters.postgres import PostgresStore, PostgresWakes
from sless_registry.adapters.sealing import AesGcmSealer
from sless_registry.application.means import Policy
from sless_registry.main import SCHEMA, SERVICE, Registry, build, register
from sless_registry.ports import Store

from tests.support.identity import IdentityKeys, new_identity_keys

if TYPE_CHECKING:
    from sless.registry.v1.registry_pb2_grpc import RegistryServiceAsyncStub

SUB = "0199e325-1cdf-7cda-9319-e5302a85e291"
"""A user's `sub`; NAMESPACE is theirs."""
NAMESPACE = catalog.namespace_of(SUB)
OTHER_SUB = "019cc268-6c6a-781e-8613-4bed4ec7cd20"
OTHER_NAMESPACE = catalog.namespace_of(OTHER_SUB)

POLICY = Policy(functions_per_namespace=1_000, versions_kept=50)
KEYS = new_identity_keys(*wire.SERVICES, "stranger")


@dataclass
class RunningRegistry:
    """A started registry: where it listens, what it keeps, and clients of it. Channels are closed with it."""

    target: str
    store: Store
    server: RpcServer
    parts: Registry
    keys: IdentityKeys
    _channels: AsyncExitStack = field(default_factory=AsyncExitStack)
    _stubs: dict[str, RegistryServiceAsyncStub] = field(default_factory=dict)

    def channel(self, identity: IdentitySource | None, **options: Any) -> RpcChannel:
        """A channel that sends this identity (None: none)."""
        return RpcChannel(self.target, identity=identity, identity_metadata=wire.IDENTITY_METADATA, **options)

    def service(self, name: str) -> RegistryServiceAsyncStub:
        """A client that is a service and speaks for itself."""
        signer = IdentitySigner(self.keys.private[name], name)
        return self._stub(name, lambda: ServiceIdentity(signer, name, SERVICE))

    def user(self, sub: str = SUB, *roles: str) -> RegistryServiceAsyncStub:
        """A client that is a user, as the gateway passes their identity on."""
        return self._stub(f"user {sub} {roles}", lambda: UserIdentity(self.user_token(sub, *roles)))

    def user_token(self, sub: str = SUB, *roles: str) -> str:
        """The identity that auth mints for a user."""
        principal = Principal(sub, catalog.namespace_of(sub), frozenset(roles))
        signer = IdentitySigner(self.keys.private[wire.USER_ISSUER], wire.USER_ISSUER)
        return signer.sign(principal, SERVICE, timedelta(minutes=5), datetime.now(UTC))

    def nobody(self) -> RegistryServiceAsyncStub:
        """A client that says nothing of who it is."""
        return self._stub("nobody", lambda: None)

    @asynccontextmanager
    async def invoker(self) -> AsyncIterator[list[pb.WatchResponse]]:
        """A watcher that is the invoker and applies all changes at once: fences pass. Gives what it was sent."""
        sent: list[pb.WatchResponse] = []
        async with self.watching("invoker", pb.WatchStart(resource_types=FUNCTIONS, tail=True)) as watch:
            following = asyncio.create_task(watch.follow(sent))
            try:
                yield sent
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    @asynccontextmanager
    async def watching(self, service: str, start: pb.WatchStart) -> AsyncIterator[Watching]:
        """A watch by a service."""
        call = self.service(service).Watch()
        await call.write(pb.WatchRequest(start=start))
        try:
            yield Watching(call)
        finally:
            call.cancel()

    async def create(self, name: str = "hello", **fields: Any) -> pb.Function:
        """A new function of NAMESPACE's user; `fields` as in a_function."""
        request = pb.CreateFunctionRequest(function=a_function(name, **fields))
        return (await self.user().CreateFunction(request)).function

    async def upload(self, name: str = "hello", code: str = "1", **fields: Any) -> pb.CreateVersionResponse:
        """An upload, as the builder records it. The content differs with `code`."""
        given: dict[str, Any] = {"namespace": NAMESPACE, "name": name, "size_bytes": 812, "created_by": SUB}
        request = pb.CreateVersionRequest(**{**given, "code_sha256": a_code(code), **fields})
        answer = await self.service("builder").CreateVersion(request)
        assert isinstance(answer, pb.CreateVersionResponse)
        return answer

    async def built(self, version: pb.Version, **fields: Any) -> pb.Version:
        """The version after the builder has reported it built; `fields` change the report."""
        given: dict[str, Any] = {"version_uid": version.uid, "attempt": 1, "state": pb.VERSION_STATE_BUILT}
        given |= {"layers": ["sha256:base", f"sha256:{version.code_sha256}"], "image_ref": f"image@{version.version}"}
        request = pb.ReportBuildRequest(**{**given, **fields})
        return (await self.service("builder").ReportBuild(request)).version

    async def report(self, function: pb.Function, phase: pb.Phase.ValueType = pb.PHASE_READY, **fields: Any) -> bool:
        """Whether the runtime-manager's report about the newest generation was taken; `fields` change the report."""
        client = self.service("runtime-manager")
        workload = (await client.GetWorkload(pb.GetWorkloadRequest(function_uid=function.uid))).workload
        given: dict[str, Any] = {"generation": workload.generation, "version": workload.version, "phase": phase}
        request = pb.ReportStatusRequest(**{"function_uid": function.uid, **given, **fields})
        return (await client.ReportStatus(request)).accepted

    async def deployed(self, name: str = "hello", code: str = "1", **fields: Any) -> pb.Function:
        """A new function that serves. Needs an invoker."""
        function = await self.create(name, **fields)
        await self.built((await self.upload(name, code)).version)
        assert await self.report(function)
        return await self.get(name)

    async def get(self, name: str = "hello") -> pb.Function:
        """The function as it is now."""
        request = pb.GetFunctionRequest(namespace=NAMESPACE, name=name)
        return (await self.user().GetFunction(request)).function

    async def close(self) -> None:
        """Close all channels that were given."""
        await self._channels.aclose()

    def _stub(self, who: str, identity: Callable[[], IdentitySource | None]) -> RegistryServiceAsyncStub:
        """One channel for each caller."""
        if who not in self._stubs:
            channel = self.channel(identity())
            self._channels.push_async_callback(channel.close)
            self._stubs[who] = RegistryServiceStub(channel.channel)
        return self._stubs[who]


FUNCTIONS = [pb.RESOURCE_TYPE_FUNCTION]
VERSIONS = [pb.RESOURCE_TYPE_VERSION]
EVERYTHING = [*FUNCTIONS, *VERSIONS]


@dataclass
class Watching:
    """One watch, read by hand."""

    call: Any

    async def read(self) -> pb.WatchResponse:
        """The next batch."""
        batch = await asyncio.wait_for(self.call.read(), 20)
        assert isinstance(batch, pb.WatchResponse)
        return batch

    async def acknowledge(self, revision: int) -> None:
        """Say that all up to a revision is applied."""
        await self.call.write(pb.WatchRequest(acknowledged_revision=revision))

    async def follow(self, sent: list[pb.WatchResponse]) -> None:
        """Read and acknowledge without end."""
        while True:
            batch = await self.call.read()
            sent.append(batch)
            await self.acknowledge(batch.revision)


class NoApiKeys:
    """Nobody has any."""

    async def delete_all(self, namespace: str) -> None:
        """See ApiKeys."""


@asynccontextmanager
async def running_registry(
    store: Store | None = None, *, policy: Policy = POLICY, keys: IdentityKeys = KEYS, **adapters: Any
) -> AsyncIterator[RunningRegistry]:
    """A registry on a unix socket of its own, on memory unless another store is given with its `wakes`."""
    memory = MemoryStore()
    parts = build(
        store or memory,
        adapters.pop("wakes", memory.wakes),
        AesGcmSealer([os.urandom(32)]),
        adapters.pop("api_keys", NoApiKeys()),
        policy,
        **adapters,
    )
    folder = tempfile.mkdtemp(prefix="registry-")
    server = RpcServer(
        f"unix:{folder}/sock",
        verifier=IdentityVerifier(keys.public, SERVICE, user_issuer=wire.USER_ISSUER),
        identity_metadata=wire.IDENTITY_METADATA,
        error_domain=wire.ERROR_DOMAIN,
    )
    register(server, parts)
    async with parts.running():
        await server.start()
        running = RunningRegistry(f"unix:{folder}/sock", store or memory, server, parts, keys)
        try:
            yield running
        finally:
            await running.close()
            parts.feed.close()
            await server.stop(timedelta(seconds=1))
            shutil.rmtree(folder)


@asynccontextmanager
async def on_postgres(dsn: str, **options: Any) -> AsyncIterator[RunningRegistry]:
    """A registry in this process on this database, which others may use too."""
    pool = await create_pool(dsn, schema=SCHEMA, max_size=16)
    wakes = PostgresWakes(dsn)
    async with running_registry(PostgresStore(pool), wakes=wakes, listener=wakes.listen, **options) as running:
        yield running
    await pool.close()


def remote_registry(target: str, keys: IdentityKeys = KEYS) -> RunningRegistry:
    """Clients of a registry that runs elsewhere: it has no store and no parts here."""
    nothing: Any = None
    return RunningRegistry(target, nothing, nothing, nothing, keys)


@pytest.fixture
async def registry() -> AsyncIterator[RunningRegistry]:
    """A registry on memory."""
    async with running_registry() as running:
        yield running


def a_function(name: str = "hello", **fields: Any) -> pb.Function:
    """A function that can be created; `fields` change it."""
    given: dict[str, Any] = {
        "namespace": NAMESPACE,
        "name": name,
        "kind": pb.FUNCTION_KIND_FUNCTION,
        "runtime": "python3.11",
        "entrypoint": "handler.handle",
    }
    return pb.Function(**{**given, **fields})


def a_code(seed: str) -> str:
    """The digest of an archive that differs with `seed`."""
    return hashlib.sha256(seed.encode()).hexdigest()
