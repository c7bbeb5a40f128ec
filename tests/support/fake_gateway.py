"""A small gateway that answers the shapes of the REST API from memory, for tests of the command line."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from sless_contracts.catalog import DEFAULTS, namespace_of

NOW = "2026-01-02T03:04:05.678Z"
REFUSED_TOKEN = "refused"


@dataclass
class Fake:
    """What the gateway knows, and what it is to do wrong.

    configs     the configuration that each upload brought
    archive     is given as the source in place of what was uploaded
    states      of versions by name and number, where they are not Built
    requests    (method, path, body) of every request
    conflicts   so many PUTs and uploads are answered 412
    drops       so many requests of a method are dropped: the connection is closed once the request has been read
    fails       the build of the next upload fails with this message
    log_cuts    so many build logs are cut after their first line
    page        paths that end so are answered with a page, as by a proxy in between
    """

    resources: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    api_keys: list[dict[str, Any]] = field(default_factory=list)
    uploads: dict[str, list[bytes]] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    archive: bytes = b""
    states: dict[str, dict[int, str]] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    conflicts: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    drop_after_effect: bool = False
    fails: str = ""
    invoke_status: int = 200
    url: str = ""
    log_cuts: int = 0
    page: str = "?"

    def sent(self, method: str, ending: str) -> list[bytes]:
        """Bodies of the requests of this method whose path ends so."""
        return [body for verb, path, body in self.requests if verb == method and path.endswith(ending)]


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def application(fake: Fake) -> web.Application:
    """The gateway as an aiohttp application."""
    app = web.Application(middlewares=[_middleware(fake)], client_max_size=64 * 1024 * 1024)
    app.router.add_get("/health", _health)
    app.router.add_get("/v1/whoami", _whoami)
    base = "/v1/namespaces/{ns}/{kinds:functions|services}"
    handlers = _Handlers(fake)
    app.router.add_get(base, handlers.all)
    app.router.add_post(base, handlers.create)
    app.router.add_get(base + "/{name}", handlers.get)
    app.router.add_put(base + "/{name}", handlers.put)
    app.router.add_delete(base + "/{name}", handlers.delete)
    app.router.add_post(base + "/{name}/upload", handlers.upload)
    app.router.add_get(base + "/{name}/versions", handlers.versions)
    app.router.add_get(base + "/{name}/source", handlers.source)
    app.router.add_get(base + "/{name}/versions/{version}", handlers.version)
    app.router.add_get(base + "/{name}/versions/{version}/source", handlers.source)
    app.router.add_post(base + "/{name}/versions/{version}/activate", handlers.activate)
    app.router.add_get(base + "/{name}/versions/{version}/build-log", handlers.build_log)
    app.router.add_post(base + "/{name}/invoke", handlers.invoke)
    keys = "/v1/namespaces/{ns}/api-keys"
    app.router.add_get(keys, handlers.api_keys)
    app.router.add_post(keys, handlers.create_api_key)
    app.router.add_delete(keys + "/{id}", handlers.delete_api_key)
    app.router.add_route("*", "/fn/{ns}/{name}", handlers.call)
    return app


def _middleware(fake: Fake) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.read()
        fake.requests.append((request.method, request.path, body))
        fake.headers.append(dict(request.headers))
        dropped = fake.drops.get(request.method, 0) > 0
        if dropped:
            fake.drops[request.method] -= 1
        if dropped and not fake.drop_after_effect:
            return _cut(request)
        if request.path.endswith(fake.page):
            return web.Response(text="<html>", content_type="text/html")
        try:
            answer: web.StreamResponse = await handler(request)
        except Refusal as refusal:
            answer = web.json_response(
                {"error": str(refusal), "code": refusal.code, "request_id": "r-1"}, status=refusal.status
            )
        return _cut(request) if dropped else answer

    return middleware


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _whoami(request: web.Request) -> web.Response:
    sub = _sub(request)
    return web.json_response({"sub": sub, "namespace": namespace_of(sub), "roles": []})


def _sub(request: web.Request) -> str:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not token or token == REFUSED_TOKEN:
        raise Refusal(401, "UNAUTHENTICATED", "the token is not valid")
    return str(jwt.decode(token, options={"verify_signature": False})["sub"]) if token.count(".") == 2 else token


class _Handlers:
    def __init__(self, fake: Fake) -> None:
        self._fake = fake

    async def all(self, request: web.Request) -> web.Response:
        self._owner(request)
        kind = _kind(request)
        found = [resource for resource in self._fake.resources.values() if resource["kind"] == kind]
        return web.json_response(found)

    async def api_keys(self, request: web.Request) -> web.Response:
        self._owner(request)
        return web.json_response(self._fake.api_keys)

    async def create_api_key(self, request: web.Request) -> web.Response:
        self._owner(request)
        key: dict[str, Any] = {"id": f"key{len(self._fake.api_keys)}", "hint": "sless_key", "created_by": "ada"}
        key |= {"created_at": NOW, "last_used_at": None, **json.loads(await request.read())}
        self._fake.api_keys.insert(0, key)
        return web.json_response({**key, "secret": "the secret"}, status=201)

    async def delete_api_key(self, request: web.Request) -> web.Response:
        self._owner(request)
        left = [key for key in self._fake.api_keys if key["id"] != request.match_info["id"]]
        if len(left) == len(self._fake.api_keys):
            raise Refusal(404, "NOT_FOUND", "API key not found")
        self._fake.api_keys[:] = left
        return web.Response(status=204)

    async def create(self, request: web.Request) -> web.Response:
        namespace, kind = self._owner(request), _kind(request)
        body = json.loads(await request.read())
        key = (namespace, body["name"])
        if key in self._fake.resources:
            raise Refusal(409, "ALREADY_EXISTS", f"{body['name']} exists already")
        if body.get("memory_mb", 128) > 8192:
            raise Refusal(400, "INVALID_ARGUMENT", f"memory_mb must be from 64 to 8192, not {body['memory_mb']}")
        resource = _resource(namespace, kind, body, self._fake.url or str(request.url.origin()))
        self._fake.resources[key] = resource
        return _answer(resource, 201)

    async def get(self, request: web.Request) -> web.Response:
        return _answer(self._found(request))

    async def put(self, request: web.Request) -> web.Response:
        resource = self._found(request)
        self._disturb(resource)
        _check_unchanged(request, resource)
        resource.update(json.loads(await request.read()))
        _next_generation(resource)
        return _answer(resource)

    async def delete(self, request: web.Request) -> web.Response:
        resource = self._found(request)
        del self._fake.resources[resource["namespace"], resource["name"]]
        return web.Response(status=204)

    async def upload(self, request: web.Request) -> web.Response:
        resource = self._found(request)
        config, data = await _form(request)
        self._fake.configs.append(config)
        self._disturb(resource)
        _check_unchanged(request, resource)
        uploads = self._fake.uploads.setdefault(resource["name"], [])
        if not uploads or uploads[-1] != data:
            uploads.append(data)
        elif not config:
            return _uploaded(data, len(uploads))
        resource.update(config)
        if request.query.get("activate") == "false":
            self._fake.states.setdefault(resource["name"], {})[len(uploads)] = "Failed" if self._fake.fails else "Built"
            return _uploaded(data, len(uploads))
        _next_generation(resource)
        if self._fake.fails:
            resource |= {"phase": "Failed", "message": self._fake.fails}
        else:
            resource |= {"phase": "Ready", "message": "", "active_version": len(uploads)}
        return _uploaded(data, len(uploads))

    def _disturb(self, resource: dict[str, Any]) -> None:
        """Somebody else changes the resource first."""
        if self._fake.conflicts:
            self._fake.conflicts -= 1
            resource["generation"] += 1
            resource["observed_generation"] += 1

    async def version(self, request: web.Request) -> web.Response:
        resource, number = self._found(request), int(request.match_info["version"])
        return web.json_response(_version(number, self._fake.states[resource["name"]].get(number, "Built"), resource))

    async def source(self, request: web.Request) -> web.Response:
        resource = self._found(request)
        uploads = self._fake.uploads.get(resource["name"], [])
        number = int(request.match_info.get("version", resource["active_version"] or 0))
        if not 0 < number <= len(uploads):
            raise Refusal(404, "NOT_FOUND", f"version not found: {number}")
        archive = self._fake.archive or uploads[number - 1]
        if request.headers["Accept"] == "application/zip":
            return web.Response(body=archive, content_type="application/zip")
        return web.json_response(_source(number, archive, resource))

    async def versions(self, request: web.Request) -> web.Response:
        resource = self._found(request)
        states = self._fake.states.get(resource["name"], {})
        count = len(self._fake.uploads.get(resource["name"], []))
        listed = [_version(number, states.get(number, "Built"), resource) for number in range(count, 0, -1)]
        return web.json_response(listed)

    async def activate(self, request: web.Request) -> web.Response:
        resource, version = self._found(request), int(request.match_info["version"])
        if version > len(self._fake.uploads.get(resource["name"], [])):
            raise Refusal(404, "NOT_FOUND", f"version not found: {version}")
        _check_unchanged(request, resource)
        _next_generation(resource)
        if self._fake.fails:
            resource |= {"phase": "Failed", "message": self._fake.fails}
        else:
            resource |= {"phase": "Ready", "message": "", "active_version": version}
        return _answer(resource)

    async def build_log(self, request: web.Request) -> web.StreamResponse:
        self._found(request)
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await answer.prepare(request)
        for line in (f"building version {request.match_info['version']}", self._fake.fails or "built"):
            await answer.write(f"{line}\n".encode())
            if self._fake.log_cuts:
                self._fake.log_cuts -= 1
                return _cut(request)
        await answer.write_eof()
        return answer

    async def invoke(self, request: web.Request) -> web.Response:
        self._found(request)
        body = (await request.read()) or b"{}"
        return web.Response(
            body=body,
            status=self._fake.invoke_status,
            content_type="application/json",
            headers={"X-Sless-Invocation-Id": "01JTEST"},
        )

    async def call(self, request: web.Request) -> web.Response:
        name, namespace = request.match_info["name"], request.match_info["ns"]
        if (namespace, name) not in self._fake.resources:
            raise Refusal(404, "NOT_FOUND", f"there is nothing at {request.path}")
        return web.json_response({"hello": name})

    def _owner(self, request: web.Request) -> str:
        namespace = namespace_of(_sub(request))
        if request.match_info["ns"] != namespace:
            raise Refusal(403, "PERMISSION_DENIED", "this namespace is somebody else's")
        return namespace

    def _found(self, request: web.Request) -> dict[str, Any]:
        name = request.match_info["name"]
        resource = self._fake.resources.get((self._owner(request), name))
        if resource is None or resource["kind"] != _kind(request):
            raise Refusal(404, "NOT_FOUND", f"there is no {_kind(request)} {name}")
        return resource


def _kind(request: web.Request) -> str:
    return request.match_info["kinds"].removesuffix("s")


def _etag(resource: dict[str, Any]) -> str:
    return f'"0a1b2c3d-{resource["generation"]}"'


async def _form(request: web.Request) -> tuple[dict[str, Any], bytes]:
    """Configuration and archive of an upload."""
    if request.content_type == "application/zip":
        return {}, await request.read()
    boundary = request.headers["Content-Type"].partition("boundary=")[2]
    config: dict[str, Any] = {}
    code = b""
    for part in (await request.read()).split(f"--{boundary}".encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="config"' in head:
            config = json.loads(content)
        elif b'name="code"' in head:
            code = content.removesuffix(b"\r\n")
    return config, code


def _uploaded(data: bytes, version: int) -> web.Response:
    digest = hashlib.sha256(data).hexdigest()
    return web.json_response({"message": "build queued", "phase": "Pending", "version": version, "code_sha256": digest})


def _source(number: int, archive: bytes, resource: dict[str, Any]) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        files = [
            {"path": name, "size": len(opened.read(name)), "encoding": "utf-8", "content": opened.read(name).decode()}
            for name in opened.namelist()
        ]
    return {"version": number, "entrypoint": resource["entrypoint"], "files": files, "truncated": False}


def _check_unchanged(request: web.Request, resource: dict[str, Any]) -> None:
    if request.headers.get("If-Match") not in {None, _etag(resource)}:
        raise Refusal(412, "PRECONDITION_FAILED", f"{resource['name']} was changed meanwhile")


def _version(number: int, state: str, resource: dict[str, Any]) -> dict[str, Any]:
    failed = state == "Failed"
    return {
        "version": number,
        "state": state,
        "active": resource["active_version"] == number,
        "code_sha256": f"{number:064x}",
        "size_bytes": 2048,
        "image_ref": None,
        "message": "error: no" if failed else "",
        "error": {
            "reason": "SYNTAX_ERROR",
            "message": "handler.py line 1: no",
            "file": "handler.py",
            "line": 1,
            "package": None,
        }
        if failed
        else None,
        "created_by": "ada",
        "created_at": NOW,
        "build": {"started_at": NOW, "finished_at": NOW, "cached": False},
    }


def _answer(resource: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(resource, status=status, headers={"ETag": _etag(resource)})


def _next_generation(resource: dict[str, Any]) -> None:
    resource["generation"] += 1
    resource["observed_generation"] = resource["generation"]


def _resource(namespace: str, kind: str, body: dict[str, Any], origin: str) -> dict[str, Any]:
    defaults = DEFAULTS[kind]
    name = body["name"]
    replicas = {
        "min": defaults.min_replicas,
        "max": defaults.max_replicas,
        "concurrency": defaults.concurrency,
    }
    return {
        "namespace": namespace,
        "kind": kind,
        "display_name": "",
        "description": "",
        "memory_mb": 128,
        "timeout_sec": defaults.timeout_sec,
        "env_vars": {},
        "replicas": replicas,
        "labels": {},
        "access": "public",
        "idempotent": False,
        "secret_env": {},
        "phase": "Pending",
        "status": "Pending",
        "message": "waiting for code: upload a zip",
        "generation": 1,
        "observed_generation": 0,
        "active_version": None,
        "image_ref": None,
        "url": f"{origin}/fn/{namespace}/{name}" if kind == "service" else None,
        "invoke_url": f"{origin}/v1/namespaces/{namespace}/{kind}s/{name}/invoke",
        "last_built_at": None,
        "created_at": NOW,
        "updated_at": NOW,
        **body,
    }


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)


@contextmanager
def running_app(app: web.Application) -> Iterator[str]:
    """Serve an application from a thread of its own; gives its URL."""
    started: Future[tuple[int, Callable[[], None]]] = Future()

    async def serve() -> None:
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        started.set_result((runner.addresses[0][1], lambda: _set(loop, stop)))
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    port, stop = started.result(timeout=10)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop()
        thread.join(10)


@contextmanager
def running_gateway(fake: Fake) -> Iterator[str]:
    """Serve the fake gateway; gives its URL."""
    with running_app(application(fake)) as url:
        yield url
