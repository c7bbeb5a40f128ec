"""Builders for tests: one in this process, or real processes that can be killed; both on a real PostgreSQL, with a registry in memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from sless.builder.v1 import builder_pb2 as pb
from sless.builder.v1.builder_pb2_grpc import BuilderServiceStub
from sless.registry.v1 import registry_pb2
from sless_builder.main import MIGRATIONS, SCHEMA, SERVICE, Builder, opened, register
from sless_builder.settings import BuilderSettings
from sless_contracts import catalog, wire
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.rpc.client import IdentitySource, RpcChannel, ServiceIdentity, UserIdentity
from sless_platform.rpc.server import RpcServer

from tests.support.postgres import ServiceDatabase
from tests.support.registry import NAMESPACE, SUB, RunningRegistry, a_function

if TYPE_CHECKING:
    from sless.builder.v1.builder_pb2_grpc import BuilderServiceAsyncStub

LIMIT_SEC = 60
PIECE_BYTES = 64 * 1024
BUILT, FAILED, CANCELLED = (
    registry_pb2.VERSION_STATE_BUILT,
    registry_pb2.VERSION_STATE_FAILED,
    registry_pb2.VERSION_STATE_CANCELLED,
)


def python311() -> Path:
    """The interpreter that this test run's virtual environment was made from."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if sys.version_info[:2] == (3, 11):
        return base
    found = shutil.which("python3.11")
    assert found is not None, "no Python 3.11 is installed here"
    return Path(found)


async def until(condition: Callable[[], Awaitable[bool]], what: str, limit_sec: float = LIMIT_SEC) -> None:
    """Wait for a condition."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_sec):
            while not await condition():
                await asyncio.sleep(0.01)
            return
    raise AssertionError(f"not within {limit_sec:g} s: {what}")


@dataclass
class BuilderPlace:
    """Where builders work: database, folders, registry. Several builders may share one."""

    folder: Path
    dsn: str
    registry: RunningRegistry
    variables: dict[str, object] = field(default_factory=dict)

    def settings(self, **variables: object) -> BuilderSettings:
        """Settings of a builder here; `variables` by their names in the environment."""
        return BuilderSettings.build(**{**self._variables(), **self.variables, **variables})

    def environment(self, **variables: object) -> dict[str, str]:
        """The same for a process."""
        values = {**self._variables(), **self.variables, **variables}
        texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in values.items()}
        return {"PATH": os.defpath, **texts}

    @property
    def gate(self) -> Path:
        """While this file is there, `gated_python` runs."""
        return self.folder / "gated" / "gate"

    def gated_python(self) -> Path:
        """An interpreter that does nothing until the gate is there: builds with it take as long as a test wants.

        Asked for its files it answers at once, and names the gate's folder too, which its sandbox must see.
        """
        script = self.folder / "gated" / "gated-python"
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f"""#!/bin/sh
case "$*" in
    *base_prefix*) echo {script.parent} ;;
    *) while [ ! -e {self.gate} ]; do sleep 0.01; done ;;
esac
exec {python311()} "$@"
"""
        )
        script.chmod(0o755)
        return script

    def object_names(self, folder: str = "") -> set[str]:
        """The keys of all stored objects."""
        root = self.folder / "objects"
        # os.walk passes over folders that go while it looks, pathlib's rglob does not (in 3.11).
        files = [Path(where, name) for where, _, names in os.walk(root) for name in names]
        found = {path.relative_to(root).as_posix() for path in files}
        return {name for name in found if name.startswith(folder) and not name.startswith(".tmp/")}

    def layer_names(self) -> set[str]:
        """The digests of all unpacked layers."""
        return {f"sha256:{path.name}" for path in (self.folder / "layers").iterdir() if not path.name.startswith(".")}

    def leftovers(self) -> list[Path]:
        """Files of uploads, builds and layers that are under way, or were when their builder was killed.

        Not what was half written to the object store then: that goes an hour later.
        """
        places = (self.folder / "spool", self.folder / "layers" / ".unpacking")
        return [path for place in places if place.is_dir() for path in place.glob("*/*") if path.name != ".lock"]

    async def idle(self) -> None:
        """Wait until nothing is under way."""

        async def nothing() -> bool:
            return not self.leftovers()

        await until(nothing, "no upload, build or layer is under way")

    async def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """What a query on the builder's tables gives."""
        session = await asyncpg.connect(self.dsn, server_settings={"search_path": SCHEMA})
        try:
            return [dict(row) for row in await session.fetch(query, *values)]
        finally:
            await session.close()

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        (row,) = await self.rows(f"SELECT count(*) AS count FROM {table}")
        return int(row["count"])

    def _variables(self) -> dict[str, object]:
        keys = self.registry.keys
        return {
            "SLESS_LISTEN": f"unix:{self.folder}/sock",
            "SLESS_LOG_LEVEL": "warning",
            "SLESS_LOG_JSON": "true",
            "SLESS_IDENTITY_KEY": keys.private[SERVICE],
            "SLESS_IDENTITY_PUBLIC_KEYS": keys.public,
            "POSTGRES_DSN": self.dsn,
            "SLESS_AUTH_TARGET": f"unix:{self.folder}/no-auth",
            "SLESS_REGISTRY_TARGET": self.registry.target,
            "SLESS_OBJECTS_DIR": str(self.folder / "objects"),
            "SLESS_LAYERS_DIR": str(self.folder / "layers"),
            "SLESS_RUNTIMES_DIR": str(self.folder / "runtimes"),
            "SLESS_PYTHON311": str(python311()),
            "SLESS_LAYERS_KEPT_SEC": 0,
        }


@asynccontextmanager
async def builder_place(registry: RunningRegistry, service_database: ServiceDatabase) -> AsyncIterator[BuilderPlace]:
    """A fresh database and fresh folders, with a runtime of two files."""
    folder = Path(tempfile.mkdtemp(prefix="builder-"))
    try:
        runtime = folder / "runtimes" / "python3.11"
        (runtime / "tests").mkdir(parents=True)
        (runtime / "main.py").write_text("import rt\n")
        (runtime / "rt.py").write_text("x = 1\n")
        (runtime / "tests" / "test_rt.py").write_text("assert False\n")
        yield BuilderPlace(folder, await service_database(SERVICE, MIGRATIONS), registry)
    finally:
        shutil.rmtree(folder)


class BuilderClient:
    """Calls of a builder and its registry, as a user makes them."""

    def __init__(self, place: BuilderPlace) -> None:
        self.place = place
        self._stack = AsyncExitStack()
        self._registry = place.registry.user()

    def stub(self, sub: str = SUB, *roles: str) -> BuilderServiceAsyncStub:
        """The builder under a user's identity."""
        principal = Principal(sub, catalog.namespace_of(sub), frozenset(roles))
        signer = IdentitySigner(self.place.registry.keys.private[wire.USER_ISSUER], wire.USER_ISSUER)
        return self._stub(UserIdentity(signer.sign(principal, SERVICE, timedelta(minutes=5), datetime.now(UTC))))

    def service(self, name: str) -> BuilderServiceAsyncStub:
        """The builder under a service's identity."""
        signer = IdentitySigner(self.place.registry.keys.private[name], name)
        return self._stub(ServiceIdentity(signer, name, SERVICE))

    def nobody(self) -> BuilderServiceAsyncStub:
        """The builder without an identity."""
        return self._stub(None)

    async def create(self, name: str = "hello", **fields: Any) -> registry_pb2.Function:
        """Make a function."""
        request = registry_pb2.CreateFunctionRequest(function=a_function(name, **fields))
        return (await self._registry.CreateFunction(request)).function

    async def function(self, name: str = "hello") -> registry_pb2.Function:
        """A function as the registry knows it."""
        request = registry_pb2.GetFunctionRequest(namespace=NAMESPACE, name=name)
        return (await self._registry.GetFunction(request)).function

    async def delete(self, name: str = "hello") -> None:
        """Delete a function; needs `registry.invoker()` to run."""
        await self._registry.DeleteFunction(registry_pb2.DeleteFunctionRequest(namespace=NAMESPACE, name=name))

    async def upload(self, archive: bytes, name: str = "hello", sub: str = SUB, **head: Any) -> pb.UploadCodeResponse:
        """Upload code."""
        stated = pb.UploadHead(**{"namespace": NAMESPACE, "name": name, **head})
        answer = await self.stub(sub).UploadCode(upload_messages(archive, stated), timeout=LIMIT_SEC)
        assert isinstance(answer, pb.UploadCodeResponse)
        return answer

    async def version(self, number: int, name: str = "hello") -> registry_pb2.Version:
        """A version as the registry knows it."""
        request = registry_pb2.GetVersionRequest(namespace=NAMESPACE, name=name, version=number)
        return (await self._registry.GetVersion(request)).version

    async def ended(self, number: int = 1, name: str = "hello") -> registry_pb2.Version:
        """A version once its build has ended."""
        final = (BUILT, FAILED, CANCELLED)

        async def is_final() -> bool:
            return (await self.version(number, name)).state in final

        await until(is_final, f"version {number} of {name} ends")
        return await self.version(number, name)

    async def log(self, number: int = 1, name: str = "hello", *, follow: bool = False, sub: str = SUB) -> str:
        """A build's log."""
        request = pb.GetBuildLogRequest(namespace=NAMESPACE, name=name, version=number, follow=follow)
        return "".join([part.text async for part in self.stub(sub).GetBuildLog(request)])

    async def close(self) -> None:
        """Close all channels."""
        await self._stack.aclose()

    def _stub(self, identity: IdentitySource | None) -> BuilderServiceAsyncStub:
        channel = RpcChannel(
            f"unix:{self.place.folder}/sock", identity=identity, identity_metadata=wire.IDENTITY_METADATA, tries=1
        )
        self._stack.push_async_callback(channel.close)
        return BuilderServiceStub(channel.channel)


def upload_messages(archive: bytes, head: pb.UploadHead) -> Iterator[pb.UploadCodeRequest]:
    """An upload's stream."""
    yield pb.UploadCodeRequest(head=head)
    for start in range(0, len(archive), PIECE_BYTES):
        yield pb.UploadCodeRequest(chunk=archive[start : start + PIECE_BYTES])
    yield pb.UploadCodeRequest(end=True)


@asynccontextmanager
async def running_builder(
    place: BuilderPlace, *, without: str = "", **variables: object
) -> AsyncIterator[BuilderClient]:
    """A builder in this process; `without` one piece of its background work."""
    settings = place.settings(**variables)
    identity = ServiceIdentity(IdentitySigner(place.registry.keys.private[SERVICE], SERVICE), SERVICE, "registry")
    server = RpcServer(
        settings.listen,
        verifier=IdentityVerifier(settings.identity_public_keys, SERVICE, user_issuer=wire.USER_ISSUER),
        identity_metadata=wire.IDENTITY_METADATA,
        error_domain=wire.ERROR_DOMAIN,
    )
    async with (
        RpcChannel(place.registry.target, identity=identity, identity_metadata=wire.IDENTITY_METADATA) as channel,
        opened(settings, channel) as builder,
        _only(builder, without).running(server.health),
    ):
        register(server, builder)
        await server.start()
        client = BuilderClient(place)
        try:
            yield client
        finally:
            await client.close()
            await server.stop(timedelta(seconds=1))


def _only(builder: Builder, without: str) -> Builder:
    return replace(builder, background={name: work for name, work in builder.background.items() if name != without})


class BuilderProcess:
    """A builder in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def killed(self) -> None:
        """Wait until it has been killed by its fault point."""
        code = await asyncio.wait_for(self.process.wait(), LIMIT_SEC)
        assert code == -signal.SIGKILL, f"the builder ended with {code}"

    async def kill(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """End it as the supervisor does; gives its exit code."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), LIMIT_SEC)


@asynccontextmanager
async def builder_process(place: BuilderPlace, **variables: object) -> AsyncIterator[BuilderProcess]:
    """A real builder, ready when the block begins, killed at its end if it still runs."""
    read, write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sless_builder"),
            env=place.environment(SLESS_READY_FD=write, **variables),
            pass_fds=[write],
            cwd=place.folder,
        )
    finally:
        os.close(write)
    builder = BuilderProcess(process)
    try:
        with _closing(read):
            async with asyncio.timeout(LIMIT_SEC):
                word = await asyncio.to_thread(os.read, read, 100)
        assert word == b"READY\n" or process.returncode is not None or variables, "the builder did not start"
        yield builder
    finally:
        await builder.kill()


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def sha256_of(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def new_request_id() -> str:
    """A fresh request id."""
    return str(uuid.uuid4())
