"""Transport faults, and hosts that are no platform."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from sless_cli.api import Api
from sless_cli.context import Context
from sless_cli.errors import Unreachable
from sless_contracts.catalog import namespace_of

from tests.support.cli import RunCli, cli_runner
from tests.support.fake_gateway import Fake, running_app


def api(handler: Callable[[httpx.Request], httpx.Response]) -> Api:
    """An API whose transport is this function; waits between tries take no time."""
    client = httpx.Client(transport=httpx.MockTransport(handler))
    return Api(Context("http://platform", "token"), client=client, sleep=lambda _seconds: None)


class Faulty:
    """Raises the faults in turn, then answers 200."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.tries = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.tries += 1
        if self.faults:
            raise self.faults.pop(0)
        return httpx.Response(200, json={})


CONNECT = httpx.ConnectError("refused")
LOST = httpx.RemoteProtocolError("connection lost")
SLOW = httpx.ReadTimeout("slow")


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("method", "repeatable", "faults", "tries", "answered"),
    [
        ("GET", False, [LOST, SLOW], 3, True),
        ("PUT", False, [LOST, CONNECT], 3, True),
        ("DELETE", False, [LOST], 2, True),
        ("GET", False, [LOST, LOST, LOST], 3, False),
        ("POST", False, [CONNECT, httpx.ConnectTimeout("slow")], 3, True),
        ("POST", False, [CONNECT, CONNECT, CONNECT], 3, False),
        ("POST", False, [LOST], 1, False),
        ("POST", False, [SLOW], 1, False),
        ("POST", True, [LOST, SLOW], 3, True),
    ],
)
def test_transport_faults_are_tried_again_where_that_does_no_harm(
    method: str, repeatable: bool, faults: list[Exception], tries: int, answered: bool
) -> None:
    transport = Faulty(*faults)

    if answered:
        assert api(transport).send(method, "/v1/x", repeatable=repeatable).status == 200
    else:
        with pytest.raises(Unreachable):
            api(transport).send(method, "/v1/x", repeatable=repeatable)

    assert transport.tries == tries


@pytest.mark.fault(44)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500, 503])
def test_an_answer_is_never_asked_for_again(status: int) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json={"error": "no", "code": "X"})

    assert api(answer).send("GET", "/v1/x").status == status
    assert len(asked) == 1


@pytest.mark.fault(38)
@pytest.mark.parametrize("status", [200, 404, 502])
@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
def test_a_host_that_is_no_platform_is_named(
    status: int, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="<html>Welcome</html>", content_type=kind, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    with running_app(app) as endpoint:
        ran = cli_runner(monkeypatch, capsys, tmp_path, endpoint)("service", "list")

    assert ran.code == 5
    assert ran.err.startswith(f"Error: {endpoint} answered ")
    assert "HTML to GET /v1/whoami: this is probably the wrong host, not the API's address" in ran.err
    assert (f"answered {status} with" in ran.err) == (status != 200)
    assert asked == ["/v1/whoami"]


OTHERS = [
    (200, {}, '{"namespace": 5}'),
    (200, {}, '["a", "b"]'),
    (200, {}, "null"),
    (200, {}, ""),
    (404, {}, '{"detail": "Not Found"}'),
    (404, {}, '{"error": "no such page"}'),
    (404, {}, '{"error": "function not found: whoami", "code": "NOT_FOUND"}'),
    (403, {}, '{"message": "forbidden"}'),
    (302, {"Location": "https://login.example/"}, ""),
]


@pytest.mark.fault(38)
@pytest.mark.parametrize(("status", "headers", "body"), OTHERS)
@pytest.mark.parametrize("command", [["service", "list"], ["deploy", "hello"], ["invoke", "hello"]])
def test_what_another_system_answers_is_not_taken_for_the_platform(
    status: int,
    headers: dict[str, str],
    body: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hello: Path,
) -> None:
    asked: list[str] = []

    async def other(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.Response(text=body, content_type="application/json", status=status, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", other)
    monkeypatch.chdir(hello.parent)
    with running_app(app) as endpoint:
        ran = cli_runner(monkeypatch, capsys, hello.parent, endpoint)(*command)

    assert ran.code == 5
    assert f"{endpoint} answered" in ran.err
    assert "to GET /v1/whoami: this is probably the wrong host" in ran.err
    assert asked == ["GET /v1/whoami"]


@pytest.mark.fault(38)
def test_a_page_in_the_middle_of_the_work_is_reported(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.page = "/services/hello"

    ran = sless("service", "get", "hello")

    assert ran.code == 5
    assert f"answered HTML to GET /v1/namespaces/{namespace_of('ada')}/services/hello: this is probably" in ran.err


def test_nothing_that_listens_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        ran = cli_runner(monkeypatch, capsys, tmp_path, endpoint)("service", "list")

    assert ran.code == 5
    assert f"cannot reach {endpoint}" in ran.err
    assert "sless up" in ran.err
