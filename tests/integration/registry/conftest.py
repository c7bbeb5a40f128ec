"""Registries in this process, reached through gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sless_platform.postgres import create_pool
from sless_registry.adapters.postgres import PostgresStore, PostgresWakes
from sless_registry.main import MIGRATIONS, SCHEMA

from tests.support.postgres import ServiceDatabase
from tests.support.registry import RunningRegistry, running_registry


@pytest.fixture(params=["memory", "postgres"])
async def registry(request: pytest.FixtureRequest, service_database: ServiceDatabase) -> AsyncIterator[RunningRegistry]:
    """A registry, on either store."""
    if request.param == "memory":
        async with running_registry() as running:
            yield running
    else:
        async for running in on_postgres(await service_database("registry", MIGRATIONS)):
            yield running


@pytest.fixture
async def postgres_registry(service_database: ServiceDatabase) -> AsyncIterator[RunningRegistry]:
    """A registry on PostgreSQL, for what needs true concurrency."""
    async for running in on_postgres(await service_database("registry", MIGRATIONS)):
        yield running


async def on_postgres(dsn: str) -> AsyncIterator[RunningRegistry]:
    """A registry on this database."""
    pool = await create_pool(dsn, schema=SCHEMA, max_size=16)
    wakes = PostgresWakes(dsn)
    async with running_registry(PostgresStore(pool), wakes=wakes, listener=wakes.listen) as running:
        yield running
    await pool.close()


@pytest.fixture
async def fences_pass(registry: RunningRegistry) -> AsyncIterator[None]:
    """There is an invoker that applies all changes at once."""
    async with registry.invoker():
        yield
