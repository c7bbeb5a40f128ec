"""Composition root of the invoker."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sless.invoker.v1 import invoker_pb2_grpc
from sless_calls.log_file import FunctionLogFiles
from sless_contracts.rpc import ServiceRpc, auth_bearer
from sless_platform import faults, logging, telemetry
from sless_platform.process import notify_ready, run_service, stop_signals

from sless_invoker.adapters.log_files import FileCallLog
from sless_invoker.adapters.registry_client import RegistryDirectory, RegistryWatch
from sless_invoker.adapters.runtime_manager_client import InstanceWatch, RuntimeManagerSupply
from sless_invoker.application.admission import NamespaceAdmission
from sless_invoker.application.calls import Bounds, Calls
from sless_invoker.application.changes import Changes
from sless_invoker.application.instances import Instances
from sless_invoker.application.routes import Routes
from sless_invoker.grpc_api.servicer import InvokerServicer
from sless_invoker.settings import InvokerSettings

SERVICE: Final = "invoker"
_GRACE: Final = timedelta(seconds=6)


async def serve(settings: InvokerSettings) -> None:
    """Runs the invoker until SIGTERM."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    settings.logs_dir.mkdir(parents=True, exist_ok=True)
    rpc = ServiceRpc(SERVICE, settings)
    async with (
        stop_signals() as stop,
        rpc.channel(settings.auth_target, "auth") as auth,
        rpc.channel(settings.registry_target, "registry") as registry,
        rpc.channel(settings.runtime_manager_target, "runtime-manager") as runtime_manager,
    ):
        routes = Routes(RegistryDirectory(registry))
        instances = Instances(RuntimeManagerSupply(runtime_manager))
        functions = RegistryWatch(registry, Changes(routes, instances))
        serving = InstanceWatch(
            runtime_manager,
            apply=lambda sets, reset: instances.apply(sets, reset=reset),
            activity=instances.take_activity,
        )
        server = rpc.server(auth_bearer(auth))
        server.add(
            InvokerServicer(_calls(settings, routes, instances)),
            invoker_pb2_grpc.add_InvokerServiceServicer_to_server,
            "sless.invoker.v1.InvokerService",
        )
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(functions.run()), tasks.create_task(serving.run())]
            await server.start()
            # A call needs a registry that answers; whether the watches run is told apart by their own names.
            server.health.set("", True)
            notify_ready(settings.ready_fd)
            await stop.wait()
            server.health.set("", False)
            await server.stop(_GRACE)
            for watch in watches:
                watch.cancel()
        await instances.close()
    await asyncio.to_thread(telemetry.shutdown)


def _calls(settings: InvokerSettings, routes: Routes, instances: Instances) -> Calls:
    return Calls(
        routes=routes,
        instances=instances,
        namespaces=NamespaceAdmission(settings.namespace_calls),
        log=FileCallLog(FunctionLogFiles(settings.logs_dir)),
        bounds=Bounds(timedelta(seconds=settings.instance_wait_sec), settings.queued_calls_per_replica),
    )


def main() -> None:
    """Runs the invoker from the environment."""
    run_service(InvokerSettings, serve)
