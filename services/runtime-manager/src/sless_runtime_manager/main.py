"""Composition root of the runtime-manager."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from sless.runtime_manager.v1 import runtime_manager_pb2_grpc
from sless_calls.log_file import FunctionLogFiles
from sless_contracts.rpc import ServiceRpc
from sless_platform import faults, logging, telemetry
from sless_platform.errors import PlatformError
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.client import RpcChannel
from sless_platform.rpc.server import RpcServer

from sless_runtime_manager.adapters.function_log import FileFunctionLogs
from sless_runtime_manager.adapters.local import LocalRuntimeBackend
from sless_runtime_manager.adapters.probe import ProtocolProber
from sless_runtime_manager.adapters.registry_client import RegistryClient
from sless_runtime_manager.application.board import Board
from sless_runtime_manager.application.manager import RuntimeManager
from sless_runtime_manager.application.slots import StartSlots
from sless_runtime_manager.application.tools import Times, Tools
from sless_runtime_manager.grpc_api.servicer import SERVICE_NAME, RuntimeManagerServicer
from sless_runtime_manager.ports import RuntimeBackend
from sless_runtime_manager.scaling import Policy
from sless_runtime_manager.settings import RuntimeManagerSettings

SERVICE: Final = "runtime-manager"
_GRACE: Final = timedelta(seconds=2)
_SLOT_PATIENCE: Final = timedelta(seconds=5)

log = logging.get_logger(__name__)


async def serve(settings: RuntimeManagerSettings) -> None:
    """Runs the runtime-manager until SIGTERM. Instances live on: its successor adopts them."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    settings.logs_dir.mkdir(parents=True, exist_ok=True)
    backend = LocalRuntimeBackend(
        launcher_socket=settings.launcher_socket,
        run_dir=settings.run_dir,
        layers_dir=settings.layers_dir,
        python311=settings.python311,
    )
    rpc = ServiceRpc(SERVICE, settings)
    async with stop_signals() as stop, rpc.channel(settings.registry_target, "registry") as registry:
        tools = _tools(settings, backend, registry)
        manager = RuntimeManager(tools)
        server = rpc.server(None)
        server.add(
            RuntimeManagerServicer(manager),
            runtime_manager_pb2_grpc.add_RuntimeManagerServiceServicer_to_server,
            SERVICE_NAME,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(manager.run())
            others = [
                tasks.create_task(_report_isolation(backend)),
                tasks.create_task(_say_when_serving(tools, server)),
            ]
            await server.start()
            notify_ready(settings.ready_fd)
            await stop.wait()
            server.health.set("", False)
            tools.board.close()
            await server.stop(_GRACE)
            for task in (running, *others):
                task.cancel()
    await backend.close()
    await asyncio.to_thread(telemetry.shutdown)


def _tools(settings: RuntimeManagerSettings, backend: RuntimeBackend, registry: RpcChannel) -> Tools:
    times = Times()
    return Tools(
        backend=backend,
        prober=ProtocolProber(),
        registry=RegistryClient(registry),
        logs=FileFunctionLogs(FunctionLogFiles(settings.logs_dir)),
        board=Board(times.acknowledgement),
        slots=StartSlots(settings.start_slots, _SLOT_PATIENCE),
        clock=_steady_clock(),
        new_id=lambda: f"i-{secrets.token_hex(8)}",
        policy=Policy(idle=timedelta(seconds=settings.idle_sec)),
        times=times,
    )


def _steady_clock() -> Callable[[], datetime]:
    """The time of day, as it goes on from now: a clock that is set meanwhile lengthens no pause and ends no instance."""
    begin = datetime.now(UTC) - timedelta(seconds=time.monotonic())
    return lambda: begin + timedelta(seconds=time.monotonic())


async def _say_when_serving(tools: Tools, server: RpcServer) -> None:
    """Before it is known what runs, nobody can be told of it."""
    await tools.board.opened.wait()
    server.health.set("", True)


async def _report_isolation(backend: RuntimeBackend) -> None:
    try:
        found = await backend.isolation()
    except PlatformError as error:
        log.warning("it can't be told now what separates instances", error=error.message)
    else:
        log.info(
            "instances are separated by",
            level=found.level,
            memory=found.memory,
            processes=found.processes,
            seccomp=found.seccomp,
            network=found.network,
            because=found.reason,
        )


def main() -> None:
    """Runs the runtime-manager from the environment."""
    run_service(RuntimeManagerSettings, serve)
