"""Broken TLS connections, with a real server that breaks them."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from sless_cli import transport
from sless_cli.api import Api, ApiNotAllowed
from sless_cli.context import Context
from sless_cli.errors import Unreachable

from tests.support.tls_server import Fate, TlsServer, tls_server

HANDSHAKES = [Fate.HANDSHAKE_DROPPED, Fate.HANDSHAKE_SILENT]
BROKEN = [Fate.CUT, Fate.UNANSWERED]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sless_cli.api.TIMEOUT", httpx.Timeout(5.0, connect=0.3))


def api(server: TlsServer, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
    return Api(Context(server.endpoint, "token"), sleep=lambda _seconds: None)


@pytest.mark.fault(44)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("fate", HANDSHAKES)
def test_a_handshake_that_fails_is_tried_again_whatever_was_asked(
    fate: Fate, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tls_server(tmp_path, [fate, fate]) as server, api(server, monkeypatch) as calls:
        assert calls.call(method, "/v1/x").json() == {}
        assert len(server.requests) == 1


@pytest.mark.fault(44)
@pytest.mark.parametrize(("method", "repeatable"), [("GET", False), ("DELETE", False), ("POST", True)])
@pytest.mark.parametrize("fate", BROKEN)
def test_an_answer_that_ends_too_early_is_asked_for_again_where_that_does_no_harm(
    fate: Fate, method: str, repeatable: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = json.dumps({"whole": "x" * 10_000}).encode()
    with tls_server(tmp_path, [fate, fate], body=whole) as server, api(server, monkeypatch) as calls:
        answer = calls.call(method, "/v1/x", content=b"sent", repeatable=repeatable)

        assert answer.body == whole
        assert answer.retried
        assert [request.endswith(b"sent") for request in server.requests] == [True] * 3


@pytest.mark.fault(44)
@pytest.mark.parametrize("fate", BROKEN)
def test_what_may_have_taken_effect_is_not_sent_twice(
    fate: Fate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tls_server(tmp_path, [fate]) as server, api(server, monkeypatch) as calls:
        with pytest.raises(Unreachable, match=f"the connection to {server.endpoint} broke"):
            calls.call("POST", "/v1/x", content=b"sent")
        assert len(server.requests) == 1


@pytest.mark.fault(44)
@pytest.mark.parametrize("fate", [Fate.HANDSHAKE_DROPPED, Fate.CUT])
def test_after_three_tries_it_is_said(fate: Fate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (
        tls_server(tmp_path, [fate] * 3) as server,
        api(server, monkeypatch) as calls,
        pytest.raises(Unreachable, match=server.endpoint),
    ):
        calls.call("GET", "/v1/x")


@pytest.mark.fault(44)
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_refusal_after_a_broken_handshake_is_final(
    status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = b'{"error": "no", "code": "X"}'
    with tls_server(tmp_path, [Fate.HANDSHAKE_DROPPED], body=body, status=status) as server:
        with api(server, monkeypatch) as calls, pytest.raises(ApiNotAllowed):
            calls.call("GET", "/v1/x")
        assert len(server.requests) == 1


@pytest.mark.fault(44)
def test_a_log_whose_beginning_breaks_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fates = [Fate.HANDSHAKE_DROPPED, Fate.UNANSWERED]
    with (
        tls_server(tmp_path, fates, body=b"one\ntwo\n") as server,
        api(server, monkeypatch) as calls,
        calls.stream("/v1/x", params={}, timeout=5) as lines,
    ):
        assert list(lines) == ["one", "two"]


@pytest.mark.fault(38)
def test_a_host_that_is_not_trusted_is_named_and_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waits: list[float] = []
    with tls_server(tmp_path, []) as server:
        calls = Api(Context(server.endpoint, "token"), sleep=waits.append)
        with calls, pytest.raises(Unreachable, match=f"{server.endpoint} has a certificate that is not trusted"):
            calls.call("GET", "/v1/x")
        assert waits == []


def test_a_host_without_tls_is_told_from_one_that_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from aiohttp import web

    from tests.support.fake_gateway import running_app

    with running_app(web.Application()) as plain:
        endpoint = plain.replace("http://", "https://")
        calls = Api(Context(endpoint, "token"), sleep=lambda _seconds: None)
        with calls, pytest.raises(Unreachable, match=f"{endpoint} does not speak TLS"):
            calls.call("GET", "/v1/x")


def test_a_proxy_is_not_asked_about_this_machine() -> None:
    with transport.http_client("https://localhost:1") as client:
        assert not client.trust_env
