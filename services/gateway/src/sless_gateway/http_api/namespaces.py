"""Who is calling, and namespaces."""

from __future__ import annotations

from sless_platform.errors import InvalidArgument

from sless_gateway.application.functions import namespace_etag
from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.exchange import Exchange


async def whoami(_api: Api, exchange: Exchange) -> Answer:
    """The caller."""
    return exchange.json(200, shapes.whoami(exchange.caller))


async def ensure_namespace(api: Api, exchange: Exchange) -> Answer:
    """The namespace, made when it isn't there."""
    found = await api.resources.ensure_namespace(
        caller=exchange.caller, namespace=exchange.namespace, condition=exchange.condition
    )
    return exchange.json(200, shapes.namespace(found), etag=namespace_etag(found))


async def delete_namespace(api: Api, exchange: Exchange) -> Answer:
    """Everything in the namespace, and itself; `?confirm=` names it again."""
    confirm = exchange.query.get("confirm", "")
    if confirm != exchange.namespace:
        raise InvalidArgument(
            f"confirm must be the namespace, {exchange.namespace}, not {confirm!r}: all that is in it is deleted",
            field="confirm",
        )
    await api.resources.delete_namespace(
        caller=exchange.caller, namespace=exchange.namespace, confirm=confirm, condition=exchange.condition
    )
    return exchange.answer(204, [])
