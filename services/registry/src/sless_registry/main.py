"""The composition root: the only place that names concrete classes."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
from sless.registry.v1.registry_pb2_grpc import add_RegistryServiceServicer_to_server
from sless_contracts.rpc import ServiceRpc, auth_bearer
from sless_platform import faults, logging, telemetry
from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError
from sless_platform.health import HealthRegistry
from sless_platform.migrations import require_current
from sless_platform.postgres import create_pool
from sless_platform.process import notify_ready, run_service, stop_signals
from sless_platform.rpc.server import RpcServer

from sless_registry.adapters.auth_client import AuthApiKeys
from sless_registry.adapters.postgres import PostgresStore, PostgresWakes
from sless_registry.adapters.sealing import AesGcmSealer
from sless_registry.application.feed import Feed
from sless_registry.application.functions import Functions
from sless_registry.application.housekeeping import Housekeeping
from sless_registry.application.means import Means, Policy
from sless_registry.application.namespaces import Namespaces
from sless_registry.application.queries import Queries
from sless_registry.application.reports import Reports
from sless_registry.application.switching import Switching
from sless_registry.application.versions import Versions
from sless_registry.application.watching import Watching
from sless_registry.application.workloads import Workloads
from sless_registry.grpc_api.servicer import SERVICE_NAME, Application, RegistryServicer
from sless_registry.ports import ApiKeys, Sealer, Store, Wakes
from sless_registry.settings import RegistrySettings

SERVICE: Final = "registry"
SCHEMA: Final = "sless_registry"
MIGRATIONS: Final = Path(__file__).parent / "migrations"
STOP_GRACE: Final = timedelta(seconds=3)

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Work without end that raises while what it needs is away, and may then be begun again."""

log = logging.get_logger(__name__)


@dataclass(frozen=True)
class Registry:
    """The service without its server: the servicer, and the work that must run beside it."""

    servicer: RegistryServicer
    feed: Feed
    background: Mapping[str, Work]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The background work, for the time of the block; each piece is begun again when it fails."""
        tasks = [asyncio.create_task(_kept_running(name, work)) for name, work in self.background.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def build(
    store: Store, wakes: Wakes, sealer: Sealer, api_keys: ApiKeys, policy: Policy, **background: Work
) -> Registry:
    """The registry on these adapters, which may need `background` work of their own."""
    feed = Feed(store, wakes)
    means = Means(store, sealer, feed, policy, now=_utc_now, new_uid=_new_uid)
    switching = Switching(means)
    application = Application(
        namespaces=Namespaces(means, api_keys),
        functions=Functions(means, switching),
        versions=Versions(means, switching),
        queries=Queries(means),
        reports=Reports(means, switching),
        workloads=Workloads(means),
        watching=Watching(means),
    )
    own = {"feed": feed.run, "switching": switching.run, "housekeeping": Housekeeping(means).run}
    return Registry(RegistryServicer(application), feed, own | background)


def register(server: RpcServer, registry: Registry) -> None:
    """Serve the registry from this server."""
    server.add(registry.servicer, add_RegistryServiceServicer_to_server, SERVICE_NAME, RegistryServicer.ACCESS)


async def serve(settings: RegistrySettings) -> None:
    """Serve until SIGTERM. Raises typed errors for what keeps it from starting, such as SchemaTooOld."""
    logging.configure(SERVICE, settings.log_level, settings.log_json)
    telemetry.configure(SERVICE, settings.otlp_endpoint, settings.trace_ratio)
    faults.configure(settings.faults)
    dsn = settings.postgres_dsn.get_secret_value()
    pool = await create_pool(dsn, schema=SCHEMA, max_size=settings.postgres_connections)
    try:
        await require_current(pool, SERVICE, MIGRATIONS)
        await _serve(settings, pool)
    finally:
        await pool.close()
        await asyncio.to_thread(telemetry.shutdown)


async def _serve(settings: RegistrySettings, pool: asyncpg.Pool) -> None:
    rpc = ServiceRpc(SERVICE, settings)
    async with rpc.channel(settings.auth_target, "auth") as auth, stop_signals() as stop:
        server = rpc.server(auth_bearer(auth))
        registry = _on_postgres(settings, pool, AuthApiKeys(auth), server.health)
        register(server, registry)
        async with registry.running():
            await server.start()
            server.health.set("", True)
            notify_ready(settings.ready_fd)
            await stop.wait()
            server.health.set("", False)
            registry.feed.close()
            await server.stop(STOP_GRACE)


def _on_postgres(settings: RegistrySettings, pool: asyncpg.Pool, api_keys: ApiKeys, health: HealthRegistry) -> Registry:
    keys = (settings.secret_env_key, *(settings.secret_env_old_keys or ()))
    sealer = AesGcmSealer([base64.b64decode(key.get_secret_value()) for key in keys])
    policy = Policy(settings.functions_per_namespace, settings.versions_kept, settings.events_kept)
    wakes = PostgresWakes(settings.postgres_dsn.get_secret_value(), listening=partial(health.set, "postgres"))
    return build(PostgresStore(pool), wakes, sealer, api_keys, policy, listener=wakes.listen)


async def _kept_running(name: str, work: Work) -> None:
    """Background work, begun again with growing pauses while what it needs is away."""
    pauses = Backoff().delays()
    while True:
        try:
            return await work()
        except PlatformError as error:
            log.warning("background work failed", work=name, error=error.message)
        await asyncio.sleep(next(pauses).total_seconds())


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_uid() -> str:
    return uuid.uuid4().hex


def main() -> None:
    """Serve from the environment's settings."""
    run_service(RegistrySettings, serve)


if __name__ == "__main__":
    main()
