"""Composition root of the builder."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from sless.builder.v1 import builder_pb2_grpc
from sless_contracts import catalog, limits
from sless_contracts.rpc import ServiceRpc, auth_bearer
from sless_platform import faults, logging, migrations, telemetry
from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError
from sless_platform.health import HealthRegistry
from sless_platform.objects import FileObjectStore
from sless_platform.postgres import create_pool
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.client import RpcChannel
from sless_platform.rpc.server import RpcServer

from sless_builder.adapters.bubblewrap import Bubblewrap
from sless_builder.adapters.half_written import HalfWrittenObjects
from sless_builder.adapters.installers import find_installer
from sless_builder.adapters.layer_folder import FolderLayerSink
from sless_builder.adapters.no_compiler import NoCompiler
from sless_builder.adapters.postgres_store import PostgresBuildStore
from sless_builder.adapters.python_compiler import PythonCompiler
from sless_builder.adapters.registry_client import RegistryClient
from sless_builder.adapters.runtime_folder import FolderRuntimes
from sless_builder.adapters.sandboxes import FoundSandbox, find_sandbox
from sless_builder.adapters.signals import PostgresSignals
from sless_builder.adapters.uv_cache import UvCache
from sless_builder.adapters.workspace import FolderWorkspace
from sless_builder.application.base_layers import BaseLayers
from sless_builder.application.building import Building
from sless_builder.application.cleaning import Cleaner
from sless_builder.application.compiling import Compiling
from sless_builder.application.following import Follower
from sless_builder.application.installing import Dependencies, Rules
from sless_builder.application.reading_logs import BuildLogs
from sless_builder.application.reading_sources import Sources
from sless_builder.application.reporting import Reporter
from sless_builder.application.storing import LayerStoring
from sless_builder.application.uploading import Uploading
from sless_builder.application.working import Worker
from sless_builder.domain.archive import ArchiveInspector, ArchiveLimits
from sless_builder.domain.build import UserError
from sless_builder.domain.dependencies import Setting
from sless_builder.domain.steps import StepLimits
from sless_builder.grpc_api.servicer import BuilderServicer
from sless_builder.ports import Queue
from sless_builder.settings import BuilderSettings

SERVICE: Final = "builder"
SCHEMA: Final = migrations.schema_of(SERVICE)
MIGRATIONS: Final = Path(__file__).parent / "migrations"
_GRACE: Final = timedelta(seconds=3)
_GRACE_OF_BUILDS: Final = timedelta(seconds=10)
_COMPILER_MEMORY: Final = 1 << 30
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

log = logging.get_logger(__name__)


Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Work without end; what ends it may be over a moment later, and it is begun again."""


@dataclass(frozen=True)
class Builder:
    """The service without its server: the servicer, and the work that must run beside it."""

    servicer: BuilderServicer
    background: Mapping[str, Work]

    @asynccontextmanager
    async def running(self, health: HealthRegistry) -> AsyncIterator[None]:
        """The background work, for the time of the block; builds under way are given back at its end."""
        tasks = [asyncio.create_task(_kept_running(name, work, health)) for name, work in self.background.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def serve(settings: BuilderSettings) -> None:
    """Runs the builder until SIGTERM."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    rpc = ServiceRpc(SERVICE, settings)
    async with (
        stop_signals() as stop,
        rpc.channel(settings.auth_target, "auth") as auth,
        rpc.channel(settings.registry_target, "registry") as registry,
        opened(settings, registry) as builder,
    ):
        server = rpc.server(auth_bearer(auth))
        register(server, builder)
        async with builder.running(server.health):
            await server.start()
            server.health.set("", True)
            notify_ready(settings.ready_fd)
            await stop.wait()
            server.health.set("", False)
            await server.stop(_GRACE)
    await asyncio.to_thread(telemetry.shutdown)


def register(server: RpcServer, builder: Builder) -> None:
    """Serve the builder from this server."""
    server.add(
        builder.servicer, builder_pb2_grpc.add_BuilderServiceServicer_to_server, "sless.builder.v1.BuilderService"
    )


@asynccontextmanager
async def opened(settings: BuilderSettings, registry: RpcChannel) -> AsyncIterator[Builder]:
    """The builder on the settings' database and folders. Raises typed errors for what keeps it from starting."""
    async with AsyncExitStack() as stack:
        dsn = settings.postgres_dsn.get_secret_value()
        pool = await create_pool(dsn, schema=SCHEMA)
        stack.push_async_callback(pool.close)
        await migrations.require_current(pool, SERVICE, MIGRATIONS)
        workspace, sink = FolderWorkspace(settings.spool), FolderLayerSink(settings.layers_dir)
        cache = UvCache(settings.package_cache, most_bytes=settings.package_cache_bytes)
        cache.open()
        for folder in (workspace, sink):
            folder.open()
            stack.callback(folder.close)
        found = await find_sandbox(
            python=Path(sys.executable), uid=settings.compiler_uid(os.geteuid()), root=workspace.path()
        )
        if settings.build_sandbox_file is not None:
            await asyncio.to_thread(found.report.write, settings.build_sandbox_file)
        yield _assembled(
            settings,
            found=found,
            registry=RegistryClient(registry),
            store=PostgresBuildStore(pool),
            signals=PostgresSignals(dsn),
            workspace=workspace,
            sink=sink,
            cache=cache,
        )


def _assembled(
    settings: BuilderSettings,
    *,
    found: FoundSandbox,
    registry: RegistryClient,
    store: PostgresBuildStore,
    signals: PostgresSignals,
    workspace: FolderWorkspace,
    sink: FolderLayerSink,
    cache: UvCache,
) -> Builder:
    owner = secrets.token_hex(8)
    objects = FileObjectStore(settings.objects_dir)
    compiler = _compiler(settings, found.bubblewrap)
    inspector = ArchiveInspector(_limits(settings))
    bases = BaseLayers(
        runtimes=FolderRuntimes(settings.runtimes_dir),
        compiler=compiler,
        workspace=workspace,
        objects=objects,
        sink=sink,
    )
    storing = LayerStoring(objects=objects, sink=sink)
    limit = timedelta(seconds=settings.max_build_sec)
    building = Building(
        queue=store,
        objects=objects,
        storing=storing,
        workspace=workspace,
        inspector=inspector,
        compiling=Compiling(compiler),
        bases=bases,
        dependencies=_dependencies(settings, found, store, storing, cache),
        limit=limit,
        architecture=_architecture(),
    )
    worker = Worker(
        owner=owner,
        queue=store,
        signals=signals,
        building=building,
        limit=limit,
        grace=_GRACE_OF_BUILDS,
        patience=timedelta(seconds=settings.build_retry_sec),
        takeovers=limits.BUILD_TAKEOVERS.value,
        at_once=settings.builds_at_once,
    )
    follower = Follower(registry=registry, queue=store)
    cleaner = Cleaner(
        registry=registry,
        store=store,
        objects=objects,
        sink=sink,
        leftovers=(sink, workspace, cache, HalfWrittenObjects(settings.objects_dir)),
        signals=signals,
        kept=bases.keys,
        may_sweep=lambda: follower.connected,
        layers_kept=timedelta(seconds=settings.layers_kept_sec),
    )
    reporter = Reporter(owner=owner, registry=registry, reports=store, signals=signals)
    uploading = Uploading(
        registry=registry,
        uploads=store,
        objects=objects,
        workspace=workspace,
        inspector=inspector,
        compiler=compiler,
        max_archive_bytes=settings.max_archive_bytes,
    )
    return Builder(
        BuilderServicer(
            uploading,
            BuildLogs(registry=registry, logs=store, signals=signals),
            Sources(registry=registry, objects=objects, workspace=workspace, inspector=inspector),
        ),
        {
            "signals": signals.run,
            "follower": follower.run,
            "worker": worker.run,
            "reporter": reporter.run,
            "cleaner": cleaner.run,
            "base layers": lambda: _warm(bases),
            **({"sandbox": compiler.run} if isinstance(compiler, PythonCompiler) else {}),
        },
    )


async def _kept_running(name: str, work: Work, health: HealthRegistry) -> None:
    """Background work, begun again with growing pauses when it fails; `health` tells how it is."""
    pauses = Backoff().delays()
    while True:
        health.set(name, True)
        try:
            return await work()
        except Exception:  # the boundary: one piece of work must not end the others
            log.exception("background work failed", work=name)
        health.set(name, False)
        await asyncio.sleep(next(pauses).total_seconds())


async def _warm(bases: BaseLayers) -> None:
    """The first build should not wait for the runtimes' layers; it makes them itself when this fails."""
    for runtime in catalog.RUNTIMES:
        try:
            await bases.store(runtime)
        except (PlatformError, UserError, OSError) as error:
            log.warning("no base layer yet", runtime=runtime, error=str(error))


def _compiler(settings: BuilderSettings, bubblewrap: Bubblewrap | None) -> PythonCompiler | NoCompiler:
    if settings.python311 is None:
        return NoCompiler()
    return PythonCompiler(
        settings.python311,
        uid=settings.compiler_uid(os.geteuid()),
        cpu=timedelta(seconds=settings.max_build_sec),
        memory_bytes=_COMPILER_MEMORY,
        bubblewrap=bubblewrap,
    )


def _dependencies(
    settings: BuilderSettings, found: FoundSandbox, queue: Queue, storing: LayerStoring, cache: UvCache
) -> Dependencies:
    env = {name: value.get_secret_value() for name, value in settings.install_env.items()}
    allowed = settings.allow_source_builds
    there = find_installer(found, python=settings.python311, env=env, cache=cache, limits=_step_limits(settings))
    return Dependencies(
        queue=queue,
        storing=storing,
        installer=there.installer,
        setting=Setting(catalog.PYTHON_311.name, _architecture(), there.indexes),
        rules=Rules(
            allow_indexes=settings.allow_index_options,
            allow_sources=there.sources_safe if allowed is None else allowed,
            most_bytes=settings.max_dependencies_bytes,
        ),
    )


def _step_limits(settings: BuilderSettings) -> StepLimits:
    return StepLimits(
        seconds=settings.max_build_sec,
        memory_bytes=settings.max_build_memory_bytes,
        disk_bytes=settings.max_build_disk_bytes,
        processes=limits.BUILD_PROCESSES.value,
        output_bytes=limits.BUILD_OUTPUT_BYTES.value,
    )


def _architecture() -> str:
    return _ARCHITECTURES.get(os.uname().machine, os.uname().machine)


def _limits(settings: BuilderSettings) -> ArchiveLimits:
    return ArchiveLimits(
        archive_bytes=settings.max_archive_bytes,
        unpacked_bytes=settings.max_unpacked_bytes,
        files=limits.ARCHIVE_FILES.value,
        path_bytes=limits.PATH_BYTES.value,
    )


def main() -> None:
    """Runs the builder from the environment."""
    run_service(BuilderSettings, serve)
