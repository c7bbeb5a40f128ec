"""Fixtures of the builder's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.builder import BuilderClient, BuilderPlace, builder_place, running_builder
from tests.support.postgres import ServiceDatabase
from tests.support.registry import RunningRegistry, running_registry


@pytest.fixture
async def registry() -> AsyncIterator[RunningRegistry]:
    """A registry on memory, where fences pass."""
    async with running_registry() as running, running.invoker():
        yield running


@pytest.fixture
async def place(registry: RunningRegistry, service_database: ServiceDatabase) -> AsyncIterator[BuilderPlace]:
    """A place for builders."""
    async with builder_place(registry, service_database) as made:
        yield made


@pytest.fixture
async def builder(place: BuilderPlace) -> AsyncIterator[BuilderClient]:
    """A builder in this process, and the function `hello`."""
    async with running_builder(place) as client:
        await client.create()
        yield client
