"""The stores that must all behave alike."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sless_platform.postgres import create_pool
from sless_registry.adapters.memory import MemoryStore
from sless_registry.adapters.postgres import PostgresStore
from sless_registry.main import MIGRATIONS, SCHEMA
from sless_registry.ports import Store

from tests.support.postgres import ServiceDatabase


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest, service_database: ServiceDatabase) -> AsyncIterator[Store]:
    """An empty store."""
    if request.param == "memory":
        yield MemoryStore()
        return
    pool = await create_pool(await service_database("registry", MIGRATIONS), schema=SCHEMA)
    yield PostgresStore(pool)
    await pool.close()
