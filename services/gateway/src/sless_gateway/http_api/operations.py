"""What operators' machines ask."""

from __future__ import annotations

from sless_platform.errors import Unavailable

from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.metrics import CONTENT_TYPE
from sless_gateway.http_api.shapes import HealthShape


async def health(_api: Api, exchange: Exchange) -> Answer:
    """The process lives."""
    return exchange.json(200, HealthShape("ok"))


async def ready(api: Api, exchange: Exchange) -> Answer:
    """Calls can be made: their callers can be verified, and the invoker is there."""
    away = sorted(name for name, reachable in (await api.peers.reachable()).items() if not reachable)
    if away:
        raise Unavailable(f"not ready: {', '.join(away)} can't be reached", reason="PEER_AWAY")
    return exchange.json(200, HealthShape("ready"))


async def metrics(api: Api, exchange: Exchange) -> Answer:
    """Counters for Prometheus; they name no tenant."""
    return exchange.answer(200, [("Content-Type", CONTENT_TYPE)], api.metrics.text())


async def openapi(api: Api, exchange: Exchange) -> Answer:
    """What this API is, for programs."""
    return exchange.json(200, api.document)
