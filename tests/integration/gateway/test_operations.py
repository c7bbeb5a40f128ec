"""Health, readiness, metrics, listeners, and the end of the process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sless_gateway.adapters import listeners
from sless_gateway.main import running, serve
from sless_gateway.settings import GatewaySettings
from sless_platform.errors import FailedPrecondition, InvalidArgument
from sless_platform.settings import SettingsError

from tests.support.calls import waits_for
from tests.support.fake_services import KEYS, FakeServices, running_services
from tests.support.gateway import NAMESPACE, Gateway, running_gateway, settings, until
from tests.support.raw_http import connected, exchange, request

URL = f"/fn/{NAMESPACE}/hello"


@asynccontextmanager
async def services_alone() -> AsyncIterator[FakeServices]:
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:
        async with running_services(Path(folder)) as services:
            yield services


async def test_health_is_that_the_process_lives(gateway: Gateway) -> None:
    for service in ("auth", "registry", "builder", "invoker"):
        await gateway.services.stop(service)

    answer = await gateway.ask("GET", "/health", token=None)

    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')


async def test_ready_is_that_calls_can_be_made(gateway: Gateway) -> None:
    for service in ("registry", "builder"):
        await gateway.services.stop(service)

    assert (await gateway.ask("GET", "/ready", token=None)).json() == {"status": "ready"}


@pytest.mark.parametrize("service", ["auth", "invoker"])
@pytest.mark.parametrize("how", ["stopped", "not serving"])
async def test_without_its_peers_the_gateway_is_not_ready(gateway: Gateway, service: str, how: str) -> None:
    if how == "stopped":
        await gateway.services.stop(service)
    else:
        gateway.services.servers[service].health.set("", False)

    answer = await gateway.ask("GET", "/ready", token=None)

    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert service in answer.json()["error"]


async def test_metrics_count_by_route_and_name_no_tenant(gateway: Gateway) -> None:
    await gateway.create()
    await gateway.ask("GET", f"{URL}/some/path?secret=1")
    await gateway.ask("INVENTED", URL)
    await gateway.ask("GET", "/nothing/here")
    answer = await gateway.ask("GET", "/metrics", token=None)

    text = answer.body.decode()
    assert (answer.header("content-type") or "").startswith("text/plain")
    for line in (
        'sless_http_requests_total{method="GET",route="/fn/{ns}/{name}",status="2xx"} 1.0',
        'sless_http_requests_total{method="other",route="/fn/{ns}/{name}",status="2xx"} 1.0',
        'sless_http_requests_total{method="GET",route="",status="4xx"} 1.0',
        'sless_http_requests_total{method="POST",route="/v1/namespaces/{ns}/services",status="2xx"} 1.0',
        'sless_http_request_duration_seconds_count{route="/fn/{ns}/{name}"} 2.0',
        "sless_calls_in_flight 0.0",
    ):
        assert line in text
    for word in (NAMESPACE, "hello", "secret", "INVENTED", "nothing"):
        assert word not in text


async def test_metrics_show_calls_in_flight(gateway: Gateway) -> None:
    release = asyncio.Event()
    gateway.services.invoker.call = waits_for(release)
    calling = asyncio.create_task(gateway.ask("GET", URL))
    await until(lambda: len(gateway.services.invoker.heads) == 1)

    during = (await gateway.ask("GET", "/metrics")).body
    release.set()
    await calling
    after = (await gateway.ask("GET", "/metrics")).body

    assert b"sless_calls_in_flight 1.0" in during
    assert b"sless_calls_in_flight 0.0" in after


async def test_the_unix_socket_serves_the_same(gateway: Gateway) -> None:
    path = Path(gateway.unix.removeprefix("unix:"))

    assert (await exchange(gateway.unix, request("GET", "/v1/whoami", token=gateway.token))).status == 200
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_stale_socket_is_taken_over_and_given_up_at_the_end() -> None:
    async with services_alone() as services:
        path = services.folder / "gateway-1.sock"
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(path))
        stale.close()
        async with running(settings(services)):
            assert (await exchange(f"unix:{path}", request("GET", "/health"))).status == 200
        assert not path.exists()


async def test_a_successors_socket_is_left_alone() -> None:
    async with services_alone() as services:
        path = services.folder / "gateway-1.sock"
        async with running(settings(services)):
            successor = listeners.local(f"unix:{path}")
        assert path.exists()
        successor.close()


async def test_an_inherited_listener_serves_and_stays_with_its_parent() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with services_alone() as services:
        for _ in range(2):
            own = os.dup(listener.fileno())
            async with running(settings(services, SLESS_PUBLIC_FD=own)) as public:
                assert public == url
                assert (await exchange(url, request("GET", "/health"))).status == 200
            # Nobody is refused while no gateway runs: whoever connects waits in the parent's backlog.
            waiting = socket.create_connection(listener.getsockname())
            waiting.close()
    listener.close()


async def test_urls_begin_with_the_listener_when_nothing_else_is_said() -> None:
    async with running_gateway(EXTERNAL_URL="") as gateway:
        created = await gateway.create()

    assert created.json()["url"] == f"{gateway.url}/fn/{NAMESPACE}/hello"


@pytest.mark.parametrize("fd", ["file", "closed", "connected"])
async def test_what_is_no_listener_is_refused_at_the_start(fd: str) -> None:
    left, right = socket.socketpair()
    number = left.detach()
    if fd == "closed":
        os.close(number)
    elif fd == "file":
        os.close(number)
        number = os.open("/dev/null", os.O_RDONLY)
    try:
        with pytest.raises(FailedPrecondition, match=f"SLESS_PUBLIC_FD={number}"):
            listeners.inherited(number)
    finally:
        right.close()
        if fd == "file":
            os.close(number)


async def test_an_address_in_use_is_named() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]

    with pytest.raises(FailedPrecondition, match=f"cannot listen on 127.0.0.1 port {port}"):
        listeners.public("127.0.0.1", port)
    taken.close()


@pytest.mark.parametrize("folder", ["missing", "x" * 120])
async def test_a_socket_that_cannot_be_made_is_named(folder: str) -> None:
    with pytest.raises((FailedPrecondition, InvalidArgument), match=folder[:10]):
        listeners.local(f"unix:/tmp/{folder}/gateway.sock")


async def test_requests_finish_when_the_gateway_stops(gateway: Gateway) -> None:
    release = asyncio.Event()
    async with services_alone() as services:
        services.invoker.call = waits_for(release)
        stack = running(settings(services))
        url = await stack.__aenter__()
        async with connected(url) as busy, connected(url) as idle:
            await idle.send(request("GET", "/health"))
            await idle.receive()
            await busy.send(request("POST", URL, ("Transfer-Encoding", "chunked")) + b"2\r\nab\r\n")
            await asyncio.sleep(0.02)
            stopping = asyncio.create_task(stack.__aexit__(None, None, None))

            assert await idle.at_end()
            with pytest.raises(ConnectionError):
                await exchange(url, request("GET", "/health"))
            await busy.send(b"2\r\ncd\r\n0\r\n\r\n")
            await until(lambda: len(services.invoker.heads) == 1)
            release.set()
            assert (await busy.receive()).body == b"abcd"
            assert await busy.at_end()
        await stopping


async def test_what_does_not_finish_in_time_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sless_gateway.main._GRACE_SEC", 0.2)
    async with services_alone() as services:
        services.invoker.call = waits_for(asyncio.Event())
        stack = running(settings(services))
        url = await stack.__aenter__()
        async with connected(url) as client:
            await client.send(request("GET", URL))
            await until(lambda: len(services.invoker.heads) == 1)

            await asyncio.wait_for(stack.__aexit__(None, None, None), 5)

            assert await client.at_end()
        await until(lambda: services.invoker.cancelled == 1)


async def test_sigterm_ends_the_service_and_the_parent_is_told_that_it_is_ready() -> None:
    reader, writer = os.pipe()
    async with services_alone() as services:
        task = asyncio.create_task(serve(settings(services, SLESS_READY_FD=writer)))
        await until(lambda: _readable(reader))
        assert os.read(reader, 100) == b"READY\n"
        os.kill(os.getpid(), signal.SIGTERM)

        await asyncio.wait_for(task, 5)
    os.close(reader)


def _readable(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 0)[0])


async def test_the_module_runs_from_the_environment_and_says_what_is_missing() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sless_gateway", env={}, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()

    assert process.returncode == 78
    for name in (
        "SLESS_LISTEN",
        "SLESS_AUTH_TARGET",
        "SLESS_REGISTRY_TARGET",
        "SLESS_INVOKER_TARGET",
        "SLESS_IDENTITY_KEY",
    ):
        assert f"{name} is not set" in said.decode()
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLESS_LISTEN", "127.0.0.1:0"),
        ("SLESS_PUBLIC_FD", 2),
        ("API_PORT", 65536),
        ("EXTERNAL_URL", "sless.example"),
        ("EXTERNAL_URL", "https://sless.example?x"),
        ("SLESS_MAX_ARCHIVE_BYTES", 0),
        ("SLESS_MAX_REQUEST_BYTES", "x"),
        ("SLESS_MAX_GATEWAY_CALLS", 0),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: Any) -> None:
    given: dict[str, Any] = {
        "SLESS_LISTEN": "unix:/tmp/x.sock",
        "SLESS_IDENTITY_KEY": KEYS.private["gateway"],
        "SLESS_IDENTITY_PUBLIC_KEYS": KEYS.public,
        **{f"SLESS_{peer}_TARGET": "unix:/tmp/x.sock" for peer in ("AUTH", "REGISTRY", "BUILDER", "INVOKER")},
    }
    GatewaySettings.build(**given)

    with pytest.raises(SettingsError, match=name):
        GatewaySettings.build(**{**given, name: value})
