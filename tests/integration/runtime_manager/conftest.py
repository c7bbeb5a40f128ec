"""A runtime-manager's surroundings, real but for the registry's store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.registry import RunningRegistry, running_registry
from tests.support.runtime_manager_process import Caller, Place, a_caller, a_place


@pytest.fixture
async def registry() -> AsyncIterator[RunningRegistry]:
    """A registry on memory."""
    async with running_registry() as running:
        yield running


@pytest.fixture
async def place(registry: RunningRegistry) -> AsyncIterator[Place]:
    """A launcher, folders, no runtime-manager yet."""
    async with a_place(registry) as made:
        yield made


@pytest.fixture
async def caller(place: Place) -> AsyncIterator[Caller]:
    """Somebody who calls functions, and waits for the runtime-manager to come."""
    async with a_caller(place) as made:
        yield made
