"""Functions and services: create, read, replace, delete."""

from __future__ import annotations

from sless_gateway.application.functions import Changed
from sless_gateway.domain import FunctionKey
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.bodies import read_json
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.forms import CreateFunctionForm, FunctionForm, check_name, config_of, form_of


async def list_functions(api: Api, exchange: Exchange) -> Answer:
    """All of a namespace's functions, or services, as a plain array."""
    assert exchange.kind is not None, "the route is of a collection"  # noqa: S101
    found = await api.resources.functions(caller=exchange.caller, namespace=exchange.namespace, kind=exchange.kind)
    return exchange.json(200, api.shapes.functions(found))


async def create_function(api: Api, exchange: Exchange) -> Answer:
    """A new function or service."""
    assert exchange.kind is not None, "the route is of a collection"  # noqa: S101
    form = form_of(await read_json(exchange.request), CreateFunctionForm)
    key = FunctionKey(exchange.namespace, form.name, exchange.kind)
    function = await api.resources.create(
        caller=exchange.caller, key=key, config=config_of(form, key.kind), condition=exchange.condition
    )
    return exchange.json(201, api.shapes.function(function), etag=function.etag)


async def get_function(api: Api, exchange: Exchange) -> Answer:
    """One function or service."""
    function = await api.resources.function(caller=exchange.caller, key=exchange.key)
    return exchange.json(200, api.shapes.function(function), etag=function.etag)


async def put_function(api: Api, exchange: Exchange) -> Answer:
    """Its configuration, whole: what the body leaves out gets its default."""
    key = exchange.key
    form = form_of(await read_json(exchange.request), FunctionForm)
    check_name(form.name, key)
    changed = await api.resources.replace(
        caller=exchange.caller,
        key=key,
        config=config_of(form, key.kind),
        condition=exchange.condition,
        wait=exchange.wait(),
    )
    return changed_function(api, exchange, changed)


def changed_function(api: Api, exchange: Exchange, changed: Changed) -> Answer:
    """The function after a change; 202 when its outcome was waited for and is not known yet."""
    function = changed.function
    return exchange.json(200 if changed.known else 202, api.shapes.function(function), etag=function.etag)


async def delete_function(api: Api, exchange: Exchange) -> Answer:
    """Answers once nothing reaches the function any more."""
    await api.resources.delete(caller=exchange.caller, key=exchange.key, condition=exchange.condition)
    return exchange.answer(204, [])
