"""A gateway in this process, before fake services."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sless_contracts.catalog import namespace_of
from sless_gateway.main import running
from sless_gateway.settings import GatewaySettings

from tests.support.fake_services import KEYS, FakeServices, running_services
from tests.support.raw_http import Answer, exchange, request

SUB = "somebody"
NAMESPACE = namespace_of(SUB)
EXTERNAL_URL = "https://sless.test"


@dataclass
class Gateway:
    """Where it listens, what stands behind it, and somebody's token."""

    url: str
    unix: str
    services: FakeServices
    token: str

    async def ask(self, method: str, target: str, *headers: tuple[str, str], **options: Any) -> Answer:
        """One request by the token's owner, unless `token` says otherwise (None: nobody)."""
        options.setdefault("token", self.token)
        return await exchange(self.url, request(method, target, *headers, **options), method)

    async def create(self, name: str = "hello", collection: str = "services", **fields: Any) -> Answer:
        """Create a function or service."""
        body = {"name": name, "runtime": "python3.11", "entrypoint": "handler.handle", **fields}
        answer = await self.ask("POST", f"/v1/namespaces/{NAMESPACE}/{collection}", json_body=body)
        assert answer.status == 201, answer
        return answer


def settings(services: FakeServices, **overrides: Any) -> GatewaySettings:
    """Settings that lead to these services."""
    targets = {
        f"SLESS_{name.upper()}_TARGET": services.address(name) for name in ("auth", "registry", "builder", "invoker")
    }
    values: dict[str, Any] = {
        "SLESS_LISTEN": f"unix:{services.folder}/gateway-1.sock",
        "SLESS_IDENTITY_KEY": KEYS.private["gateway"],
        "SLESS_IDENTITY_PUBLIC_KEYS": KEYS.public,
        "API_PORT": 0,
        "EXTERNAL_URL": EXTERNAL_URL,
        **targets,
        **overrides,
    }
    return GatewaySettings.build(**values)


@asynccontextmanager
async def running_gateway(**overrides: Any) -> AsyncIterator[Gateway]:
    """A gateway and its services; `overrides` by variable names."""
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:  # short: a socket's path is bounded
        async with running_services(Path(folder)) as services, running(settings(services, **overrides)) as url:
            yield Gateway(url, f"unix:{folder}/gateway-1.sock", services, services.auth.token(SUB))


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A gateway with its usual settings."""
    async with running_gateway() as running_one:
        yield running_one


async def until(condition: Callable[[], bool], limit_sec: float = 10) -> None:
    """Wait for a condition; TimeoutError when it does not come true."""
    async with asyncio.timeout(limit_sec):
        while not condition():
            await asyncio.sleep(0.005)
