"""Who may call each route: generated from the route table, so that a new route can't be forgotten."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from sless_contracts.catalog import namespace_of
from sless_gateway.http_api.routes import ANY_METHOD, ROUTES, Route
from sless_platform.errors import Internal, Unavailable

from tests.support.gateway import NAMESPACE, SUB, Gateway
from tests.support.raw_http import Answer

TOKEN_ROUTES = [route for route in ROUTES if not route.open]
NAMESPACE_ROUTES = [route for route in TOKEN_ROUTES if "{ns}" in route.template]
OTHER = namespace_of("somebody else")


def label(route: Route) -> str:
    return f"{route.method} {route.template}"


def method_of(route: Route) -> str:
    return "REPORT" if route.method == ANY_METHOD else route.method


async def ask(gateway: Gateway, route: Route, namespace: str = NAMESPACE, token: str | None = None) -> Answer:
    """A request to a route, with a body that nothing is right about: who is calling is looked at first."""
    target = route.template.format(ns=namespace, name="-%20-", version="x", id="x")
    return await gateway.ask(method_of(route), target, ("Content-Type", "text/html"), body=b"{", token=token)


def test_only_urls_of_functions_and_what_operators_ask_are_open() -> None:
    assert {route.template for route in ROUTES if route.open} == {
        "/fn/{ns}/{name}", "/health", "/ready", "/metrics", "/openapi.json",
    }  # fmt: skip


@pytest.mark.parametrize("route", TOKEN_ROUTES, ids=label)
async def test_nobody_is_served_without_a_token(gateway: Gateway, route: Route) -> None:
    answer = await ask(gateway, route)

    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    assert answer.header("www-authenticate") == 'Bearer realm="sless"'


@pytest.mark.fault(21)
@pytest.mark.parametrize("route", TOKEN_ROUTES, ids=label)
async def test_nobody_is_served_with_a_forged_token(gateway: Gateway, route: Route) -> None:
    answer = await ask(gateway, route, token="eyJhbGciOiJub25lIn0.eyJzdWIiOiJzb21lYm9keSJ9.")  # secret-scan: allow

    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    assert answer.header("www-authenticate") == 'Bearer realm="sless", error="invalid_token"'


@pytest.mark.parametrize("route", NAMESPACE_ROUTES, ids=label)
async def test_nobody_is_served_in_another_namespace(gateway: Gateway, route: Route) -> None:
    answer = await ask(gateway, route, OTHER, gateway.token)

    assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
    assert gateway.services.registry.requests == []
    assert gateway.services.invoker.heads == []


@pytest.mark.parametrize("route", TOKEN_ROUTES, ids=label)
async def test_nobody_is_served_with_a_revoked_api_key(gateway: Gateway, route: Route) -> None:
    auth = gateway.services.auth
    auth.remember_for = Duration()
    key = auth.api_key(SUB, NAMESPACE)
    assert (await gateway.ask("GET", "/v1/whoami", token=key)).status == 200
    del auth.users[key]

    answer = await ask(gateway, route, token=key)

    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("route", NAMESPACE_ROUTES, ids=label)
async def test_nobody_is_served_with_an_api_key_of_another_namespace(gateway: Gateway, route: Route) -> None:
    """Not even in the namespace of the key's own maker."""
    answer = await ask(gateway, route, token=gateway.services.auth.api_key(SUB, OTHER))

    assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
    assert gateway.services.registry.requests == []


@pytest.mark.parametrize("route", NAMESPACE_ROUTES, ids=label)
async def test_an_api_key_is_served_in_its_own_namespace(gateway: Gateway, route: Route) -> None:
    answer = await ask(gateway, route, OTHER, gateway.services.auth.api_key(SUB, OTHER))

    assert answer.status not in {401, 403, 500}


@pytest.mark.parametrize("route", NAMESPACE_ROUTES, ids=label)
async def test_an_admin_is_served_in_every_namespace(gateway: Gateway, route: Route) -> None:
    answer = await ask(gateway, route, OTHER, gateway.services.auth.token("root", "admin"))

    assert answer.status not in {401, 403, 500}


@pytest.mark.parametrize("route", TOKEN_ROUTES, ids=label)
async def test_while_nobody_can_be_verified_nobody_is_served(gateway: Gateway, route: Route) -> None:
    gateway.services.auth.fails = Internal("internal error")

    answer = await ask(gateway, route, token=gateway.token)

    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert answer.header("retry-after") == "1"


async def test_that_the_issuer_is_away_is_told(gateway: Gateway) -> None:
    gateway.services.auth.fails = Unavailable("the issuer's keys can't be had", reason="ISSUER_UNAVAILABLE")

    answer = await gateway.ask("GET", "/v1/whoami")

    assert (answer.status, answer.json()["error"]) == (503, "the issuer's keys can't be had")


@pytest.mark.parametrize(
    "header",
    [
        "", "Bearer", "Bearer ", "Basic dTpw", "Bearer a b", "Token a", "bearer\ta",
        "Bearer é", "Bearer a, Bearer b",
    ],
)  # fmt: skip
async def test_what_is_no_bearer_token_is_none(gateway: Gateway, header: str) -> None:
    answer = await gateway.ask("GET", "/v1/whoami", ("Authorization", header), token=None)

    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    assert gateway.services.auth.asked == 0


async def test_two_tokens_are_none(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/v1/whoami", ("Authorization", f"Bearer {gateway.token}"))

    assert answer.status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_schemes_case_does_not_matter(gateway: Gateway, scheme: str) -> None:
    answer = await gateway.ask("GET", "/v1/whoami", ("Authorization", f"{scheme} {gateway.token}"), token=None)

    assert answer.status == 200


async def test_a_token_is_verified_once(gateway: Gateway) -> None:
    for _ in range(3):
        await gateway.ask("GET", "/v1/whoami")

    assert gateway.services.auth.asked == 1


async def test_the_caller_is_who_other_services_are_asked_by(gateway: Gateway) -> None:
    await gateway.create()
    await gateway.ask("POST", f"/v1/namespaces/{NAMESPACE}/services/hello/invoke")
    await gateway.ask("POST", f"/fn/{NAMESPACE}/hello")

    by_owner, by_anybody = gateway.services.invoker.principals
    assert (by_owner.namespace, by_owner.service) == (NAMESPACE, None)
    assert by_anybody.service == "gateway"
