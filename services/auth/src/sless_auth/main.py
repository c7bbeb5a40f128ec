"""Composition root of auth."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from sless.auth.v1 import auth_pb2_grpc
from sless_contracts.rpc import ServiceRpc
from sless_platform import faults, logging, telemetry
from sless_platform.identity import IdentitySigner, Principal
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.server import RpcServer

from sless_auth.adapters.identity_mint import SigningMint
from sless_auth.adapters.jwks import FetchedKeys, StaticKeys
from sless_auth.adapters.jwt_tokens import JwtTokenVerifier, KeySet
from sless_auth.application import Authentication
from sless_auth.domain import AdminRule
from sless_auth.grpc_api.servicer import AuthServicer
from sless_auth.settings import AuthSettings

SERVICE: Final = "auth"
_GRACE: Final = timedelta(seconds=3)


async def serve(settings: AuthSettings) -> None:
    """Runs auth until SIGTERM."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    authentication = _authentication(settings)
    server = _server(settings, authentication)
    async with stop_signals() as stop:
        await server.start()
        server.health.set("", True)
        notify_ready(settings.ready_fd)
        await stop.wait()
    server.health.set("", False)
    await server.stop(_GRACE)
    await asyncio.to_thread(telemetry.shutdown)


def _authentication(settings: AuthSettings) -> Authentication:
    return Authentication(
        tokens=JwtTokenVerifier(_keys(settings), issuer=settings.issuer, audience=settings.audience),
        mint=SigningMint(IdentitySigner(settings.identity_key.get_secret_value(), SERVICE)),
        admin=AdminRule(settings.admin_claim, settings.admin_value),
        now=_now,
    )


def _keys(settings: AuthSettings) -> KeySet:
    if settings.jwks is not None:
        return StaticKeys(settings.jwks)
    assert settings.jwks_url is not None  # noqa: S101 - the settings see to it that one of the two is there
    return FetchedKeys(settings.jwks_url, clock=time.monotonic)


def _server(settings: AuthSettings, authentication: Authentication) -> RpcServer:
    async def bearer(token: str) -> Principal:
        return (await authentication.authenticate(token=token)).principal

    server = ServiceRpc(SERVICE, settings).server(bearer)
    server.add(
        AuthServicer(authentication),
        auth_pb2_grpc.add_AuthServiceServicer_to_server,
        "sless.auth.v1.AuthService",
    )
    return server


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> None:
    """Runs auth from the environment."""
    run_service(AuthSettings, serve)
