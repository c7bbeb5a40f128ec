"""The one route table: the server, the tests of who may call, and the API's description are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from sless_gateway.domain import Kind
from sless_gateway.errors import MethodNotAllowed, RouteNotFound
from sless_gateway.http_api import (
    api_keys,
    calls,
    descriptions,
    functions,
    namespaces,
    operations,
    sources,
    upload,
    versions,
)
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.description import Description
from sless_gateway.http_api.exchange import Exchange

Handler = Callable[[Api, Exchange], Awaitable[Answer]]

ANY_METHOD: Final = "*"
FUNCTION_URL: Final = "/fn/{ns}/{name}"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `template`: the path, `{…}` stands for one segment. `open`: no token is needed.

    A route that wants a token and has `{ns}` is for the namespace's owner and for admins.
    """

    method: str
    template: str
    handler: Handler
    description: Description
    kind: Kind | None = None
    open: bool = False

    @property
    def segments(self) -> tuple[str, ...]:
        """The template's segments."""
        return tuple(self.template.strip("/").split("/"))


def _function_routes(kind: Kind) -> Sequence[Route]:
    """The same operations for functions and for services."""
    collection = f"/v1/namespaces/{{ns}}/{kind.collection}"
    one = f"{collection}/{{name}}"
    return (
        Route("GET", collection, functions.list_functions, descriptions.LIST_FUNCTIONS, kind),
        Route("POST", collection, functions.create_function, descriptions.CREATE_FUNCTION, kind),
        Route("GET", one, functions.get_function, descriptions.GET_FUNCTION, kind),
        Route("PUT", one, functions.put_function, descriptions.REPLACE_FUNCTION, kind),
        Route("DELETE", one, functions.delete_function, descriptions.DELETE_FUNCTION, kind),
        Route("POST", f"{one}/upload", upload.upload_code, descriptions.UPLOAD_CODE, kind),
        Route("GET", f"{one}/source", sources.get_source, descriptions.GET_SOURCE, kind),
        Route("GET", f"{one}/versions", versions.list_versions, descriptions.LIST_VERSIONS, kind),
        Route("POST", f"{one}/versions", upload.upload_code, descriptions.CREATE_VERSION, kind),
        Route("GET", f"{one}/versions/{{version}}", versions.get_version, descriptions.GET_VERSION, kind),
        Route(
            "POST",
            f"{one}/versions/{{version}}/activate",
            versions.activate_version,
            descriptions.ACTIVATE_VERSION,
            kind,
        ),
        Route(
            "GET",
            f"{one}/versions/{{version}}/source",
            sources.get_source,
            descriptions.GET_VERSION_SOURCE,
            kind,
        ),
        Route("GET", f"{one}/versions/{{version}}/build-log", versions.get_build_log, descriptions.GET_BUILD_LOG, kind),
        Route(ANY_METHOD, f"{one}/invoke", calls.invoke_function, descriptions.INVOKE, kind),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/whoami", namespaces.whoami, descriptions.WHO_AM_I),
    Route("POST", "/v1/namespaces/{ns}/ensure", namespaces.ensure_namespace, descriptions.ENSURE_NAMESPACE),
    Route("DELETE", "/v1/namespaces/{ns}", namespaces.delete_namespace, descriptions.DELETE_NAMESPACE),
    Route("GET", "/v1/namespaces/{ns}/api-keys", api_keys.list_api_keys, descriptions.LIST_API_KEYS),
    Route("POST", "/v1/namespaces/{ns}/api-keys", api_keys.create_api_key, descriptions.CREATE_API_KEY),
    Route("DELETE", "/v1/namespaces/{ns}/api-keys/{id}", api_keys.delete_api_key, descriptions.DELETE_API_KEY),
    *_function_routes(Kind.FUNCTION),
    *_function_routes(Kind.SERVICE),
    # What follows the name is the function's own business.
    Route(ANY_METHOD, FUNCTION_URL, calls.call_url, descriptions.CALL_URL, open=True),
    Route("GET", "/health", operations.health, descriptions.HEALTH, open=True),
    Route("GET", "/ready", operations.ready, descriptions.READY, open=True),
    Route("GET", "/metrics", operations.metrics, descriptions.METRICS, open=True),
    Route("GET", "/openapi.json", operations.openapi, descriptions.OPENAPI, open=True),
)


@dataclass(frozen=True, slots=True)
class Match:
    """A route, and what the path has in the places of its template."""

    route: Route
    params: dict[str, str]


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: tuple[str, _Node] | None = None
    methods: dict[str, Route] = field(default_factory=dict)


class Router:
    """Finds the route of a path, segment by segment."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)
        self._function_url = next(route for route in routes if route.template == FUNCTION_URL)

    def match(self, method: str, path: str) -> Match:
        """Raises RouteNotFound, MethodNotAllowed. The path is as it came: percent-encoded."""
        if path.startswith("/fn/"):
            return self._match_function_url(path)
        params: dict[str, str] = {}
        node: _Node | None = self._root
        for segment in path[1:].split("/"):
            node = _step(node, segment, params)
            if node is None:
                raise RouteNotFound(f"nothing is served under {path}")
        assert node is not None  # noqa: S101 - the loop raises otherwise
        return Match(_by_method(node, method, path), params)

    def _match_function_url(self, path: str) -> Match:
        _, _, namespace, *rest = path.split("/", 4)
        if not rest or not rest[0]:
            raise RouteNotFound(f"nothing is served under {path}: a function's URL is /fn/NAMESPACE/NAME")
        below = f"/{rest[1]}" if len(rest) > 1 else "/"
        return Match(self._function_url, {"ns": unquote(namespace), "name": unquote(rest[0]), "path": below})

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.segments:
            node = _grown(node, segment)
        assert route.method not in node.methods, f"{route.method} {route.template} is there twice"  # noqa: S101
        node.methods[route.method] = route


def _grown(node: _Node, segment: str) -> _Node:
    if not segment.startswith("{"):
        return node.fixed.setdefault(segment, _Node())
    if node.variable is None:
        node.variable = (segment.strip("{}"), _Node())
    return node.variable[1]


def _step(node: _Node | None, segment: str, params: dict[str, str]) -> _Node | None:
    assert node is not None  # noqa: S101
    text = unquote(segment) if "%" in segment else segment
    fixed = node.fixed.get(text)
    if fixed is not None or node.variable is None or not text:
        return fixed
    name, child = node.variable
    params[name] = text
    return child


def _by_method(node: _Node, method: str, path: str) -> Route:
    if not node.methods:
        raise RouteNotFound(f"nothing is served under {path}")
    # HEAD is GET whose body is not sent (RFC 9110 §9.3.2).
    for candidate in (method, "GET" if method == "HEAD" else method, ANY_METHOD):
        if candidate in node.methods:
            return node.methods[candidate]
    allowed = sorted({*node.methods, *({"HEAD"} if "GET" in node.methods else ())})
    raise MethodNotAllowed(f"{method} is not possible on {path}; possible: {', '.join(allowed)}", allowed)
