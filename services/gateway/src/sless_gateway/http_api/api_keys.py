"""API keys: create, list, revoke."""

from __future__ import annotations

from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.bodies import read_json
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.forms import form_of
from sless_gateway.http_api.key_forms import ApiKeyForm


async def list_api_keys(api: Api, exchange: Exchange) -> Answer:
    """All keys of the namespace, as a plain array, newest first; never their secrets."""
    found = await api.api_keys.all(caller=exchange.caller, namespace=exchange.namespace)
    return exchange.json(200, [shapes.api_key(key) for key in found])


async def create_api_key(api: Api, exchange: Exchange) -> Answer:
    """A new key. Its secret is in this answer and in no other."""
    wanted = form_of(await read_json(exchange.request), ApiKeyForm)
    made = await api.api_keys.create(
        caller=exchange.caller,
        namespace=exchange.namespace,
        name=wanted.name,
        expires_at=wanted.ends(),
        condition=exchange.condition,
    )
    return exchange.json(201, shapes.new_api_key(made), etag=made.key.id)


async def delete_api_key(api: Api, exchange: Exchange) -> Answer:
    """Revokes a key: within five seconds nobody can use it any more."""
    await api.api_keys.delete(
        caller=exchange.caller,
        namespace=exchange.namespace,
        key_id=exchange.params["id"],
        condition=exchange.condition,
    )
    return exchange.answer(204, [])
