"""Composition root of auth."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg
from sless.auth.v1 import auth_pb2_grpc
from sless_contracts.rpc import ServiceRpc
from sless_platform import faults, logging, telemetry
from sless_platform.identity import IdentitySigner, Principal
from sless_platform.migrations import require_current
from sless_platform.postgres import create_pool
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.server import RpcServer

from sless_auth.adapters.database import Database
from sless_auth.adapters.identity_mint import SigningMint
from sless_auth.adapters.jwks import FetchedKeys, StaticKeys
from sless_auth.adapters.jwt_tokens import JwtTokenVerifier, KeySet
from sless_auth.adapters.postgres_keys import PostgresKeys
from sless_auth.adapters.remote_tokens import RemoteTokens
from sless_auth.application.api_keys import ApiKeys
from sless_auth.application.authentication import Authentication
from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain.users import AdminRule
from sless_auth.errors import ApiKeysUnavailable
from sless_auth.grpc_api.servicer import AuthServicer
from sless_auth.ports import ApiKeyStore, TokenVerifier
from sless_auth.settings import JWKS, AuthSettings

SERVICE: Final = "auth"
SCHEMA: Final = "sless_auth"
MIGRATIONS: Final = Path(__file__).parent / "migrations"
USES_WRITTEN_SEC: Final = 20.0
_GRACE: Final = timedelta(seconds=3)
_DATABASE_SEC: Final = 5.0
"""How long the start waits for the database before auth serves without it."""

log = logging.get_logger(__name__)


async def serve(settings: AuthSettings) -> None:
    """Runs auth until SIGTERM. Raises typed errors for what keeps it from serving, such as SchemaTooOld."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    async with AsyncExitStack() as stack, stop_signals() as stop:
        stack.push_async_callback(asyncio.to_thread, telemetry.shutdown)
        database = Database(partial(_opened_pool, settings))
        stack.push_async_callback(database.close)
        tokens = _tokens(settings, stack)
        store = PostgresKeys(database)
        key_tokens = KeyTokens(store, now=_now)
        server = _server(settings, tokens, store, key_tokens)
        await _run(server, database, key_tokens, stop, settings.ready_fd)


async def _run(
    server: RpcServer, database: Database, keys: KeyTokens, stop: asyncio.Event, ready_fd: int | None
) -> None:
    opening = asyncio.create_task(database.open())
    writing = asyncio.create_task(_write_uses(keys))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({opening, stopped}, timeout=_DATABASE_SEC, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            opening.result()
        await server.start()
        server.health.set("", True)
        notify_ready(ready_fd)
        await _until_stopped(stopped, opening)
    finally:
        server.health.set("", False)
        await server.stop(_GRACE)
        for task in (opening, writing, stopped):
            task.cancel()
        await asyncio.wait({opening, writing, stopped})
    await _write_last_uses(keys)


async def _until_stopped(stopped: asyncio.Task[bool], opening: asyncio.Task[None]) -> None:
    """Raises what `opening` raises before that."""
    await asyncio.wait({stopped, opening}, return_when=asyncio.FIRST_COMPLETED)
    if opening.done():
        opening.result()
        await stopped


async def _opened_pool(settings: AuthSettings) -> asyncpg.Pool:
    pool = await create_pool(
        settings.postgres_dsn.get_secret_value(),
        schema=SCHEMA,
        max_size=settings.postgres_connections,
        wait=timedelta(),
    )
    try:
        await require_current(pool, SERVICE, MIGRATIONS)
    except BaseException:
        await pool.close()
        raise
    return pool


async def _write_uses(keys: KeyTokens) -> None:
    while True:
        await asyncio.sleep(USES_WRITTEN_SEC)
        try:
            await keys.write_uses()
        except ApiKeysUnavailable as error:
            log.warning("the uses of API keys are written later", error=error.message)


async def _write_last_uses(keys: KeyTokens) -> None:
    try:
        async with asyncio.timeout(_GRACE.total_seconds()):
            await keys.write_uses()
    except (ApiKeysUnavailable, TimeoutError) as error:
        log.warning("the last uses of API keys are lost", error=str(error))


def _tokens(settings: AuthSettings, stack: AsyncExitStack) -> TokenVerifier:
    if settings.issuer_kind == JWKS:
        assert settings.issuer is not None  # noqa: S101 - the settings see to it
        return JwtTokenVerifier(_keys(settings), issuer=settings.issuer, audience=settings.audience)
    assert settings.remote_url is not None  # noqa: S101
    remote = RemoteTokens(
        settings.remote_url,
        remembered=timedelta(seconds=settings.remote_cache_sec),
        timeout=timedelta(seconds=settings.remote_timeout_sec),
        now=_now,
    )
    stack.push_async_callback(remote.close)
    return remote


def _keys(settings: AuthSettings) -> KeySet:
    if settings.jwks is not None:
        return StaticKeys(settings.jwks)
    assert settings.jwks_url is not None  # noqa: S101 - the settings see to it that one of the two is there
    return FetchedKeys(settings.jwks_url, clock=time.monotonic)


def _server(settings: AuthSettings, tokens: TokenVerifier, store: ApiKeyStore, key_tokens: KeyTokens) -> RpcServer:
    authentication = Authentication(
        tokens=tokens,
        keys=key_tokens,
        mint=SigningMint(IdentitySigner(settings.identity_key.get_secret_value(), SERVICE)),
        admin=AdminRule(settings.admin_claim, settings.admin_value),
        now=_now,
    )
    keys = ApiKeys(store, key_tokens, limit=settings.api_keys_per_namespace, letters=_letters, now=_now)

    async def bearer(token: str) -> Principal:
        return (await authentication.authenticate(token=token)).principal

    server = ServiceRpc(SERVICE, settings).server(bearer)
    server.add(
        AuthServicer(authentication, keys, now=_now),
        auth_pb2_grpc.add_AuthServiceServicer_to_server,
        "sless.auth.v1.AuthService",
    )
    return server


def _letters(alphabet: str, count: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> None:
    """Runs auth from the environment."""
    run_service(AuthSettings, serve)
