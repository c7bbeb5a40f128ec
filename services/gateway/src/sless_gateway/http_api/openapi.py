"""The API's document (OpenAPI 3.1), made from the route table and from the types that bodies are read into and written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sless_contracts import catalog, limits

from sless_gateway.domain import Kind
from sless_gateway.http_api.description import Content, Description, Reply
from sless_gateway.http_api.errors import ErrorBody

if TYPE_CHECKING:
    from sless_gateway.http_api.routes import Route

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_ANY: Final = "*"
_REF: Final = "#/components/schemas/{name}"
_SUFFIXES: Final = ("Shape", "Form", "Body")

_ERRORS: Final[Mapping[int, str]] = {
    400: "A field or the request itself is wrong.",
    401: "There is no token, or not a valid one.",
    403: "The namespace is somebody else's.",
    404: "It is not there.",
    409: "It is in the way of what is there.",
    412: "If-Match names another state of it.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "The body is of a type that is not taken here.",
    422: "The build failed, or the code did not start.",
    429: "Too many at once; Retry-After says when to come back.",
    431: "The headers are too large.",
    500: "The platform, or the handler, failed.",
    502: "The function's process ended during the call.",
    503: "Not possible right now; Retry-After says when to come back.",
    504: "The function took longer than it may.",
}
_EVERYWHERE: Final = (400, 414, 431, 500, 503)
_PATH: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "ns": ("The namespace.", {"type": "string", "pattern": f"^{catalog.NAMESPACE_PATTERN.pattern}$"}),
    "name": (
        "The name.",
        {"type": "string", "pattern": f"^{catalog.NAME_PATTERN.pattern}$", "maxLength": limits.NAME_CHARS.value},
    ),
    "id": ("The id.", {"type": "string", "maxLength": limits.NAME_CHARS.value}),
    "version": ("The version's number.", {"type": "integer", "minimum": 1, "maximum": 999_999_999}),
}
_TAGS: Final[Mapping[str, str]] = {
    "account": "Who is calling, namespaces, and API keys.",
    "functions": "Functions: called by their owner.",
    "services": "Services: functions with a public URL.",
    "calls": "Public URLs.",
    "platform": "What operators' machines ask.",
}
_BEARER: Final = "A token of the issuer, or an API key (`sless_…`), which is good in one namespace."
_TEXT: Final = """\
Functions and services of a self-hosted serverless platform.

Every error is JSON with a sentence and a code. `PUT` replaces. Writes honour `If-Match`; every single resource is answered
with an `ETag`. What follows a function's name in `/fn/{ns}/{name}` is the handler's own path."""


def document(routes: Sequence[Route], *, server: str) -> dict[str, Any]:
    """The whole document. `server`: where clients reach the API."""
    shapes = _shapes(routes)
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    known = {id(shape): _renamed(schema) for shape, schema in zip(shapes, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in _METHODS if route.method == _ANY else (route.method.lower(),):
            paths.setdefault(route.template, {})[method] = _operation(route, method, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sless", "version": "1", "description": _TEXT},
        "servers": [{"url": server}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": what} for name, what in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {_plain(name): _renamed(schema) for name, schema in sorted(components.items())},
            "responses": {str(status): _error(status, what) for status, what in _ERRORS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": _BEARER}},
        },
    }


def encoded(document: Mapping[str, Any]) -> msgspec.Raw:
    """The document as it is sent."""
    return msgspec.Raw(msgspec.json.encode(document))


def _shapes(routes: Sequence[Route]) -> list[Any]:
    """Every type that a body has, once."""
    found: dict[int, Any] = {id(ErrorBody): ErrorBody}
    for route in routes:
        for content in _contents(route.description):
            if not isinstance(content.shape, Mapping):
                found[id(content.shape)] = content.shape
    return list(found.values())


def _contents(description: Description) -> Iterator[Content]:
    yield from description.body
    for reply in description.replies.values():
        yield from reply.contents


def _operation(route: Route, method: str, known: Mapping[int, Any]) -> dict[str, Any]:
    about = route.description
    words = _words(route.kind)
    suffix = f"By{method.capitalize()}" if route.method == _ANY else ""
    operation: dict[str, Any] = {
        "operationId": about.id.format(**words) + suffix,
        "summary": about.summary.format(**words),
        "tags": [_tag(route)],
        "parameters": list(_parameters(route)),
        "responses": dict(_responses(about, words, known, _statuses(route, method))),
    }
    if about.body and method not in ("get", "head", "trace"):
        contents = {content.media_type: _media(content, known) for content in about.body}
        operation["requestBody"] = {"required": not about.passes, "content": contents}
    if route.open:
        operation["security"] = []
    return operation


def _words(kind: Kind | None) -> dict[str, str]:
    word = "" if kind is None else kind.value
    return {"kind": word, "kinds": f"{word}s", "Kind": word.capitalize(), "Kinds": f"{word.capitalize()}s"}


def _tag(route: Route) -> str:
    if route.kind is not None:
        return route.kind.collection
    return "calls" if route.template.startswith("/fn/") else "platform" if route.open else "account"


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    for segment in route.segments:
        if segment.startswith("{"):
            name = segment.strip("{}")
            what, schema = _PATH[name]
            yield {"name": name, "in": "path", "required": True, "description": what, "schema": schema}
    for query in route.description.query:
        yield {
            "name": query.name, "in": "query", "required": query.required, "description": query.what,
            "schema": dict(query.schema),
        }  # fmt: skip
    if route.description.conditional:
        yield {
            "name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
            "description": "Only when the resource's ETag is one of these.",
        }  # fmt: skip


def _statuses(route: Route, method: str) -> list[int]:
    about = route.description
    found = {*_EVERYWHERE, *about.errors}
    if not route.open:
        found.add(401)
    if "{ns}" in route.template and not route.open:
        found.add(403)
    if "{name}" in route.template or "{version}" in route.template:
        found.add(404)
    if about.body:
        found |= {413} if about.passes else {413, 415}
    if about.conditional:
        found.add(412)
    return sorted(found)


def _responses(
    about: Description, words: Mapping[str, str], known: Mapping[int, Any], errors: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    for status, reply in about.replies.items():
        yield str(status), _reply(reply, words, known)
    for status in errors:
        if not about.passes:
            yield str(status), {"$ref": f"#/components/responses/{status}"}
    if about.passes:
        told = ", ".join(str(status) for status in errors)
        yield (
            "default",
            {
                "description": f"What the handler answers; or an error of the platform ({told}), which has the shape of Error.",
                "content": {"*/*": {"schema": {}}},
            },
        )


def _reply(reply: Reply, words: Mapping[str, str], known: Mapping[int, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": reply.what.format(**words)}
    headers = {"X-Request-Id": "The request's id."} | dict(reply.headers or {})
    if reply.etag:
        headers["ETag"] = "The state of the resource, for If-Match."
    answer["headers"] = {name: {"description": what, "schema": {"type": "string"}} for name, what in headers.items()}
    if reply.contents:
        answer["content"] = {content.media_type: _media(content, known) for content in reply.contents}
    return answer


def _error(status: int, what: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=_plain(ErrorBody.__name__))}
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _media(content: Content, known: Mapping[int, Any]) -> dict[str, Any]:
    shape = content.shape
    media = {"schema": dict(shape) if isinstance(shape, Mapping) else known[id(shape)]}
    return media if content.example is None else {**media, "example": content.example}


def _renamed(value: Any) -> Any:
    """Names of types without what the code adds to them."""
    if isinstance(value, dict):
        return {
            key: f"{item.rpartition('/')[0]}/{_plain(item.rpartition('/')[2])}"
            if key == "$ref"
            else _plain(item)
            if key == "title" and isinstance(item, str)
            else _renamed(item)
            for key, item in value.items()
        }
    return [_renamed(item) for item in value] if isinstance(value, list) else value


def _plain(name: str) -> str:
    if name == "ErrorBody":
        return "Error"
    for suffix in _SUFFIXES:
        if name == suffix or not name.endswith(suffix):
            continue
        plain = name.removesuffix(suffix)
        return f"{plain}Input" if suffix == "Form" else plain
    return name
