"""Composition root of the gateway."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from sless_calls.ids import new_invocation_id
from sless_contracts.rpc import ServiceRpc
from sless_platform import faults, logging, telemetry
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.client import RpcChannel

from sless_gateway.adapters import listeners
from sless_gateway.adapters.auth_client import AuthClient
from sless_gateway.adapters.builder_client import BuilderClient
from sless_gateway.adapters.invoker_client import InvokerClient
from sless_gateway.adapters.peers import HealthPeers
from sless_gateway.adapters.registry_client import RegistryClient
from sless_gateway.application.api_keys import ApiKeys
from sless_gateway.application.callers import Callers
from sless_gateway.application.calls import Calls
from sless_gateway.application.functions import Resources
from sless_gateway.application.uploads import Uploads
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.app import HttpApi
from sless_gateway.http_api.metrics import Metrics
from sless_gateway.http_api.openapi import document, encoded
from sless_gateway.http_api.routes import ROUTES
from sless_gateway.http_api.shapes import Shapes
from sless_gateway.settings import GatewaySettings

SERVICE: Final = "gateway"
_GRACE_SEC: Final = 8.0


async def serve(settings: GatewaySettings) -> None:
    """Runs the gateway until SIGTERM."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    async with stop_signals() as stop, running(settings):
        notify_ready(settings.ready_fd)
        await stop.wait()
    await asyncio.to_thread(telemetry.shutdown)


@asynccontextmanager
async def running(settings: GatewaySettings) -> AsyncIterator[str]:
    """A gateway that serves; gives the public listener's URL. At the end requests may finish for 8 s."""
    public = _public_socket(settings)
    url = listeners.url_of(public)
    async with AsyncExitStack() as stack:
        channels = {
            name: await stack.enter_async_context(ServiceRpc(SERVICE, settings).channel(target, name))
            for name, target in _targets(settings).items()
        }
        invoker = InvokerClient(channels["invoker"])
        stack.push_async_callback(invoker.close)
        http = HttpApi(_api(settings, channels, invoker, settings.external_url or url))
        sockets = listeners.Listeners(http.server)
        try:
            await sockets.add(public)
            await sockets.add(listeners.local(settings.listen))
            yield url
        finally:
            await sockets.close()
            await http.server.drain(_GRACE_SEC)


def _public_socket(settings: GatewaySettings) -> socket.socket:
    if settings.public_fd is not None:
        return listeners.inherited(settings.public_fd)
    return listeners.public(settings.api_host, settings.api_port)


def _targets(settings: GatewaySettings) -> dict[str, str]:
    return {
        "auth": settings.auth_target,
        "registry": settings.registry_target,
        "builder": settings.builder_target,
        "invoker": settings.invoker_target,
    }


def _api(settings: GatewaySettings, channels: dict[str, RpcChannel], invoker: InvokerClient, external_url: str) -> Api:
    registry, builder = RegistryClient(channels["registry"]), BuilderClient(channels["builder"])
    auth = AuthClient(channels["auth"], now=_now)
    callers = Callers(auth, now=_now)
    calls = Calls(invoker, callers, limit=settings.gateway_calls)
    resources = Resources(registry, builder, new_request_id=_new_request_id)
    return Api(
        callers=callers,
        api_keys=ApiKeys(auth, new_request_id=_new_request_id),
        resources=resources,
        uploads=Uploads(registry, builder, resources, new_request_id=_new_request_id),
        calls=calls,
        peers=HealthPeers({name: channels[name] for name in ("auth", "invoker")}),
        shapes=Shapes(external_url.rstrip("/")),
        metrics=Metrics(lambda: calls.in_flight),
        archive_bytes=settings.archive_bytes,
        request_bytes=settings.request_bytes,
        new_invocation_id=lambda: new_invocation_id(_now()),
        document=encoded(document(ROUTES, server=external_url.rstrip("/"))),
    )


def _new_request_id() -> str:
    return str(uuid.uuid4())


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> None:
    """Runs the gateway from the environment."""
    run_service(GatewaySettings, serve)
