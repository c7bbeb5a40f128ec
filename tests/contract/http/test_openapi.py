"""GET /openapi.json."""

from __future__ import annotations

import json

from sless_gateway.http_api.openapi import document
from sless_gateway.http_api.routes import ROUTES

from tests.support.gateway import EXTERNAL_URL, Gateway


async def test_the_document_is_served_to_everyone_with_the_address_that_clients_use(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/openapi.json", token=None)

    assert answer.status == 200
    assert answer.header("content-type") == "application/json; charset=utf-8"
    assert json.loads(answer.body) == document(ROUTES, server=EXTERNAL_URL)
