"""Methods and paths that are not there, and what every answer has."""

from __future__ import annotations

import pytest
from sless_gateway.http_api.routes import ANY_METHOD, ROUTES

from tests.support.gateway import NAMESPACE, Gateway

TEMPLATES = sorted({route.template for route in ROUTES if route.method != ANY_METHOD})
ANY_TEMPLATES = sorted({route.template for route in ROUTES if route.method == ANY_METHOD})


def filled(template: str) -> str:
    return template.format(ns=NAMESPACE, name="hello", version=1, id="0123456789abcdef")


def allowed(template: str) -> set[str]:
    methods = {route.method for route in ROUTES if route.template == template}
    return methods | ({"HEAD"} if "GET" in methods else set())


@pytest.mark.parametrize("template", TEMPLATES)
async def test_other_methods_are_refused_with_those_that_are_possible(gateway: Gateway, template: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "INVENTED"):
        if method in allowed(template):
            continue
        answer = await gateway.ask(method, filled(template))
        assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED"), method
        assert set((answer.header("allow") or "").split(", ")) == allowed(template)


@pytest.mark.fault(18)
@pytest.mark.parametrize("template", ANY_TEMPLATES)
async def test_every_method_reaches_the_function(gateway: Gateway, template: str) -> None:
    methods = [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "PATCH",
        "OPTIONS",
        "TRACE",
        "PROPFIND",
        "QUERY",
        "INVENTED",
        "get",
    ]
    for method in methods:
        answer = await gateway.ask(method, filled(template))
        assert answer.status == 200, method

    assert [head.method for head in gateway.services.invoker.heads] == methods


@pytest.mark.parametrize(
    "target", ["/", "/v1", "/v1/nothing", "/fn", f"/fn/{NAMESPACE}", "/index.html", "/funcs", "/a?b"]
)
async def test_an_unknown_path_is_404_for_every_method(gateway: Gateway, target: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "INVENTED"):
        answer = await gateway.ask(method, target, token=None)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize("target", ["/health", "/nothing", "/v1/whoami", f"/fn/{NAMESPACE}/hello"])
async def test_the_request_id_is_the_clients_when_it_is_a_sane_one(gateway: Gateway, target: str) -> None:
    answer = await gateway.ask("GET", target, ("X-Request-Id", "a.B-9_"))

    assert answer.all("x-request-id") == ["a.B-9_"]


@pytest.mark.parametrize("sent", ["", "a b", "a\tb", "ä", "x" * 129, "<script>", "a,b"])
async def test_an_odd_request_id_is_replaced(gateway: Gateway, sent: str) -> None:
    answer = await gateway.ask("GET", "/health", ("X-Request-Id", sent))

    assert answer.header("x-request-id") not in {None, "", sent}


async def test_two_request_ids_are_replaced(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/health", ("X-Request-Id", "a"), ("X-Request-Id", "b"))

    assert answer.header("x-request-id") not in {None, "a", "b"}


async def test_answers_name_no_software_and_are_not_stored(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/v1/whoami")

    assert answer.header("server") == "sless"
    assert answer.header("cache-control") == "no-store"


async def test_head_is_get_without_its_body(gateway: Gateway) -> None:
    await gateway.create()
    target = f"/v1/namespaces/{NAMESPACE}/services/hello"
    get, head = await gateway.ask("GET", target), await gateway.ask("HEAD", target)

    assert (head.status, head.body) == (200, b"")
    for name in ("content-length", "content-type", "etag"):
        assert head.header(name) == get.header(name)
