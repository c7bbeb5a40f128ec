"""Registries in this process, reached through gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sless_registry.main import MIGRATIONS

from tests.support.postgres import ServiceDatabase
from tests.support.registry import RunningRegistry, on_postgres, running_registry


@pytest.fixture(params=["memory", "postgres"])
async def registry(request: pytest.FixtureRequest, service_database: ServiceDatabase) -> AsyncIterator[RunningRegistry]:
    """A registry, on either store."""
    if request.param == "memory":
        async with running_registry() as running:
            yield running
    else:
        async with on_postgres(await service_database("registry", MIGRATIONS)) as running:
            yield running


@pytest.fixture
async def postgres_registry(service_database: ServiceDatabase) -> AsyncIterator[RunningRegistry]:
    """A registry on PostgreSQL, for what needs true concurrency."""
    async with on_postgres(await service_database("registry", MIGRATIONS)) as running:
        yield running


@pytest.fixture
async def fences_pass(registry: RunningRegistry) -> AsyncIterator[None]:
    """There is an invoker that applies all changes at once."""
    async with registry.invoker():
        yield
