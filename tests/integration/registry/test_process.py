"""The registry as a process of its own: started from its environment, stopped, killed, and without its database."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import PlatformError, Unavailable
from sless_platform.migrations import migrations_in
from sless_registry.main import MIGRATIONS

from tests.support.postgres import PostgresServer, ServiceDatabase, running_postgres
from tests.support.registry import EVERYTHING, KEYS, RunningRegistry, Watching, a_function, on_postgres, remote_registry

ID = "0199e325-1cdf-7cda-9319-e5302a85e291"
LIMIT_SEC = 30


def settings(folder: Path, dsn: str, **changes: str) -> dict[str, str]:
    """The environment of a registry that listens in a folder."""
    given = {
        "SLESS_LISTEN": f"unix:{folder}/sock",
        "SLESS_IDENTITY_KEY": KEYS.private["registry"],
        "SLESS_IDENTITY_PUBLIC_KEYS": json.dumps(KEYS.public),
        "SLESS_AUTH_TARGET": f"unix:{folder}/auth",
        "SLESS_SECRET_ENV_KEY": base64.b64encode(bytes(32)).decode(),
        "POSTGRES_DSN": dsn,
        "SLESS_LOG_LEVEL": "warning",
    }
    return {"PATH": os.defpath, **given, **changes}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="registry-") as path:
        yield Path(path)


async def start(environment: dict[str, str]) -> asyncio.subprocess.Process:
    """The process, once it says that it is ready (or has ended)."""
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sless_registry",
        env=environment | {"SLESS_READY_FD": str(write)},
        pass_fds=[write],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read, "rb") as ready:
        async with asyncio.timeout(LIMIT_SEC):
            await asyncio.to_thread(ready.readline)
    return process


@asynccontextmanager
async def running(environment: dict[str, str]) -> AsyncIterator[tuple[RunningRegistry, asyncio.subprocess.Process]]:
    """A registry in a process of its own, and clients of it."""
    process = await start(environment)
    client = remote_registry(environment["SLESS_LISTEN"])
    try:
        assert process.returncode is None
        yield client, process
    finally:
        await client.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """The exit code and what was said on stderr."""
    async with asyncio.timeout(LIMIT_SEC):
        _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_it_starts_from_its_environment_and_stops_when_told_though_it_is_watched(
    service_database: ServiceDatabase, folder: Path
) -> None:
    environment = settings(folder, await service_database("registry", MIGRATIONS))
    async with running(environment) as (registry, process):
        async with registry.watching("builder", pb.WatchStart(resource_types=EVERYTHING, tail=True)) as watch:
            await watch.read()
            await registry.create()
            await watch.read()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(Unavailable):
                await watch.read()

        assert await ended(process) == (0, "")
    assert not (folder / "sock").exists()


async def test_health_tells_of_the_service_and_of_its_database(folder: Path) -> None:
    with running_postgres() as server:
        database = await server.service_database("registry", MIGRATIONS)
        async with running(settings(folder, server.dsn(database, "sless_registry"))) as (registry, _):
            assert await healthy(registry, "") == HealthCheckResponse.SERVING
            await watched(registry, "postgres", HealthCheckResponse.SERVING)
            server.crash()
            await watched(registry, "postgres", HealthCheckResponse.NOT_SERVING)
            server.resume()
            await watched(registry, "postgres", HealthCheckResponse.SERVING)


async def healthy(registry: RunningRegistry, name: str) -> int:
    """The state of one health name."""
    async with registry.channel(None) as channel:
        answer = await HealthStub(channel.channel).Check(HealthCheckRequest(service=name))
        return int(answer.status)


async def watched(registry: RunningRegistry, name: str, state: int) -> None:
    """Wait until a health name has a state."""
    async with registry.channel(None) as channel, asyncio.timeout(LIMIT_SEC):
        async for answer in HealthStub(channel.channel).Watch(HealthCheckRequest(service=name)):
            if answer.status == state:
                return


async def test_all_faults_of_the_settings_are_told_at_once_without_their_secrets(folder: Path) -> None:
    secret = base64.b64encode(b"short").decode()
    environment = settings(folder, "postgresql://x", SLESS_SECRET_ENV_KEY=secret, SLESS_VERSIONS_KEPT="0")
    del environment["SLESS_AUTH_TARGET"]

    code, said = await ended(await start(environment))

    assert code == 78
    for variable in ("SLESS_SECRET_ENV_KEY", "SLESS_VERSIONS_KEPT", "SLESS_AUTH_TARGET"):
        assert variable in said
    assert secret not in said
    assert "Traceback" not in said


@pytest.mark.fault(40)
async def test_an_older_schema_is_refused_saying_what_to_do(
    postgres_server: PostgresServer, fresh_database: str, folder: Path
) -> None:
    dsn = postgres_server.provision(fresh_database, "registry")

    code, said = await ended(await start(settings(folder, dsn)))

    assert code == 1
    newest = migrations_in(MIGRATIONS)[-1].name
    assert said.strip() == f"registry needs migration {newest}, the database has none: run `sless migrate` first"


async def test_what_was_committed_before_it_was_killed_is_answered_by_its_successor(
    service_database: ServiceDatabase, folder: Path
) -> None:
    dsn = await service_database("registry", MIGRATIONS)
    request = pb.CreateFunctionRequest(function=a_function(), request_id=ID)
    fault = "registry.after_commit_before_answer=kill"
    async with running(settings(folder, dsn, SLESS_FAULTS=fault)) as (registry, process):
        with pytest.raises(PlatformError):
            await registry.user().CreateFunction(request)
        assert (await ended(process))[0] == -signal.SIGKILL

    async with running(settings(folder, dsn)) as (registry, _):
        answer = await registry.user().CreateFunction(request)

        assert answer.function == await registry.get()
        assert answer.function.revision == 1


@pytest.mark.fault(1)
async def test_a_delete_that_was_killed_before_its_fence_is_confirmed_by_its_successor(
    service_database: ServiceDatabase, folder: Path
) -> None:
    dsn = await service_database("registry", MIGRATIONS)
    request = pb.DeleteFunctionRequest(namespace=a_function().namespace, name="hello", request_id=ID)
    async with running(settings(folder, dsn, SLESS_FAULTS="registry.before_fence=kill")) as (registry, process):
        await registry.create()
        with pytest.raises(PlatformError):
            await registry.user().DeleteFunction(request)
        await ended(process)

    async with running(settings(folder, dsn)) as (registry, _):
        with pytest.raises(Unavailable) as refused:
            await registry.user().DeleteFunction(request, timeout=1)
        assert refused.value.reason == "FENCE_PENDING"
        async with registry.invoker():
            await registry.user().DeleteFunction(request)


async def test_secrets_outlive_the_process_and_a_change_of_key(service_database: ServiceDatabase, folder: Path) -> None:
    dsn = await service_database("registry", MIGRATIONS)
    async with running(settings(folder, dsn)) as (registry, _):
        function = await registry.create(secret_env={"S": pb.SecretValue(value="hunter2")})

    old, new = (base64.b64encode(bytes([n]) * 32).decode() for n in (0, 1))
    rotated = settings(folder, dsn, SLESS_SECRET_ENV_KEY=new, SLESS_SECRET_ENV_OLD_KEYS=json.dumps([old]))
    async with running(rotated) as (registry, _):
        request = pb.GetWorkloadRequest(function_uid=function.uid)
        workload = (await registry.service("runtime-manager").GetWorkload(request)).workload

        assert dict(workload.environment) == {"S": "hunter2"}


async def test_watches_go_on_when_the_database_was_away() -> None:
    with running_postgres() as server:
        database = await server.service_database("registry", MIGRATIONS)
        async with on_postgres(server.dsn(database, "sless_registry")) as registry:
            await registry.create("before")
            async with registry.watching("builder", since(1)) as watch:
                server.sql("postgres", "CHECKPOINT")  # the tests' server commits lazily
                server.crash()
                with pytest.raises(Unavailable):
                    await registry.get("before")
                server.resume()
                await again(registry, "after")

                batch = await next_batch(registry, watch)

    assert [change.function.name for change in batch.changes] == ["after"]
    assert not batch.reset


def since(revision: int) -> pb.WatchStart:
    return pb.WatchStart(resource_types=EVERYTHING, revision=revision)


async def next_batch(registry: RunningRegistry, watch: Watching) -> pb.WatchResponse:
    """The next batch, from where the watch was if it has ended meanwhile."""
    try:
        return await watch.read()
    except Unavailable:
        async with registry.watching("builder", since(1)) as resumed:
            return await resumed.read()


async def again(registry: RunningRegistry, name: str) -> None:
    """Create a function, however often it takes."""
    request: Any = pb.CreateFunctionRequest(function=a_function(name), request_id=ID)
    async with asyncio.timeout(LIMIT_SEC):
        while True:
            try:
                await registry.user().CreateFunction(request)
            except Unavailable:
                continue
            return
