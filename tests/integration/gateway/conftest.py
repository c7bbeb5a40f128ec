"""The gateway's fixtures; its tests run on the event loop that it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.support.gateway import gateway

__all__ = ["gateway"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, as in production: transports of asyncio's own loop differ from its."""
    factories: dict[str, Any] = {"uvloop": uvloop.new_event_loop}
    return factories
