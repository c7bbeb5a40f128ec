"""Which route a path leads to."""

from __future__ import annotations

from typing import Any

import pytest
from sless_gateway.domain import Kind
from sless_gateway.errors import MethodNotAllowed, RouteNotFound
from sless_gateway.http_api.routes import ANY_METHOD, ROUTES, Router

ROUTER = Router()
NS = "/v1/namespaces/sless-ffd1f598c169b0ae"


def matched(method: str, path: str) -> tuple[str, dict[str, str]]:
    found = ROUTER.match(method, path)
    return found.route.template, found.params


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_every_route_is_found(route: Any) -> None:
    method = "PROPFIND" if route.method == ANY_METHOD else route.method

    assert ROUTER.match(method, route.template.replace("{", "").replace("}", "")).route is route


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/fn/ns/name", {"ns": "ns", "name": "name", "path": "/"}),
        ("/fn/ns/name/", {"ns": "ns", "name": "name", "path": "/"}),
        ("/fn/ns/name//", {"ns": "ns", "name": "name", "path": "//"}),
        ("/fn/ns/name/a%2Fb/../c//d/.", {"ns": "ns", "name": "name", "path": "/a%2Fb/../c//d/."}),
        ("/fn/%6es/n%61me/%61", {"ns": "ns", "name": "name", "path": "/%61"}),
        ("/fn/ns/name/%", {"ns": "ns", "name": "name", "path": "/%"}),
    ],
)
def test_what_follows_a_functions_name_is_kept_as_it_came(path: str, params: dict[str, str]) -> None:
    assert matched("ANYTHING", path) == ("/fn/{ns}/{name}", params)


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "*", "//", "/fn", "/fn/", "/fn/ns", "/fn/ns/", "/fn/ns//x", "/v1", "/v1/", "/v1/whoami/", "/v1//whoami",
        "/v1/namespaces", "/v1/namespaces/", f"{NS}/jobs", f"{NS}/functions/", f"{NS}/functions//upload",
        f"{NS}/functions/hello/sources", f"{NS}/functions/hello/versions/1/", "/v1/whoami/../whoami", "/HEALTH",
        "/health/", "host:443", "/funcs",
    ],
)  # fmt: skip
def test_nothing_is_served_under_other_paths(path: str) -> None:
    with pytest.raises(RouteNotFound):
        ROUTER.match("GET", path)


def test_segments_are_decoded_one_by_one() -> None:
    _, params = matched("GET", f"{NS}/functions/a%2Fb%20c")

    assert params["name"] == "a/b c"
    assert matched("GET", "/v1/%77hoami")[0] == "/v1/whoami"


@pytest.mark.fault(27)
def test_functions_and_services_are_one_code_path() -> None:
    functions = {
        (r.method, r.template.replace("/functions", "/X"), r.handler) for r in ROUTES if r.kind is Kind.FUNCTION
    }
    services = {(r.method, r.template.replace("/services", "/X"), r.handler) for r in ROUTES if r.kind is Kind.SERVICE}

    assert functions == services
    assert len(functions) == 14


def test_head_is_get() -> None:
    assert matched("HEAD", "/v1/whoami") == matched("GET", "/v1/whoami")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/whoami", ("GET", "HEAD")),
        ("GET", f"{NS}/ensure", ("POST",)),
        ("GET", NS, ("DELETE",)),
        ("PATCH", f"{NS}/functions/hello", ("DELETE", "GET", "HEAD", "PUT")),
        ("OPTIONS", f"{NS}/services/hello/versions", ("GET", "HEAD", "POST")),
        ("get", "/health", ("GET", "HEAD")),
    ],
)
def test_another_method_is_told_which_are_possible(method: str, path: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        ROUTER.match(method, path)

    assert caught.value.allowed == allowed
