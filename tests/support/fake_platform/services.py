"""Fake services. A file `conduct/<service>` in the data folder says how one behaves; see `_misbehave`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import Field, SecretStr
from sless_cli.embedded.services import LAUNCHER, MIGRATIONS, Code, Service, Surroundings
from sless_platform.errors import FailedPrecondition
from sless_platform.process import notify_ready, stop_signals
from sless_platform.settings import ServiceSettings

from tests.support.fake_gateway import Fake, application

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
BETA_HAS_TABLES = "FAKE_BETA_TABLES" in os.environ
"""Whether this is a later release, in which the service beta owns tables."""


class AlphaSettings(ServiceSettings):
    """A service with tables."""

    data: Path = Field(validation_alias="FAKE_DATA")
    dsn: SecretStr = Field(validation_alias="POSTGRES_DSN")
    tuning: int = Field(1, validation_alias="SLESS_FAKE_TUNING")


class BetaSettings(ServiceSettings):
    """A service that calls another."""

    data: Path = Field(validation_alias="FAKE_DATA")
    alpha_target: str = Field(validation_alias="SLESS_ALPHA_TARGET")
    dsn: SecretStr | None = Field(None, validation_alias="POSTGRES_DSN")


class GatewaySettings(ServiceSettings):
    """The fake gateway, on the inherited listener."""

    data: Path = Field(validation_alias="FAKE_DATA")
    public_fd: int = Field(validation_alias="SLESS_PUBLIC_FD")
    external_url: str = Field(validation_alias="EXTERNAL_URL")


async def _rows(dsn: SecretStr) -> int:
    """Write one row for this start; how many there are."""
    import asyncpg

    connection = await asyncpg.connect(dsn.get_secret_value())
    await connection.execute("INSERT INTO starts DEFAULT VALUES")
    rows: int = await connection.fetchval("SELECT count(*) FROM starts")
    await connection.close()
    return rows


async def serve_alpha(settings: AlphaSettings) -> None:
    """Write one row for each start, then idle."""
    rows = await _rows(settings.dsn)
    _note(settings.data, "alpha", starts=rows, tuning=settings.tuning, faults=settings.faults, listen=settings.listen)
    await _idle("alpha", settings.data, settings.ready_fd)


async def serve_beta(settings: BetaSettings) -> None:
    """Idle; write one row for each start where it has tables."""
    rows = None if settings.dsn is None else await _rows(settings.dsn)
    _note(settings.data, "beta", alpha=settings.alpha_target, keys=sorted(settings.identity_public_keys), starts=rows)
    await _idle("beta", settings.data, settings.ready_fd)


async def serve_gateway(settings: GatewaySettings) -> None:
    """Serve the fake REST API on the inherited listener, and on a unix socket."""
    _note(settings.data, "gateway", external_url=settings.external_url)
    runner = web.AppRunner(application(Fake(url=settings.external_url)), shutdown_timeout=0.1)
    await runner.setup()
    site = web.SockSite(runner, socket.socket(fileno=os.dup(settings.public_fd)))
    await site.start()
    await _idle("gateway", settings.data, settings.ready_fd)
    await site.stop()
    # Connections that were taken before have their requests on the way.
    await asyncio.sleep(0.2)
    await runner.cleanup()


async def _idle(name: str, data: Path, ready_fd: int | None) -> None:
    conduct = _conduct(data, name)
    _misbehave(conduct, data, name)
    async with stop_signals() as stop:
        if conduct != "never-ready":
            notify_ready(ready_fd)
        if conduct == "deaf":
            time.sleep(3600)
        await stop.wait()
    with (data / "stopped").open("a") as file:
        file.write(f"{name}\n")


def _misbehave(conduct: str, data: Path, name: str) -> None:
    """`refuse`: ends with a typed error; `crash`: with a traceback; `crash-twice`: so, the first two times of a start;
    `chatty`: writes a lot. Elsewhere: `deaf`: does not hear SIGTERM; `never-ready`: runs without saying that it is ready."""
    if conduct == "refuse":
        raise FailedPrecondition(
            f"{name} needs migration 0002_more, the database has 0001_first: run `sless migrate` first"
        )
    if conduct == "crash" or (conduct == "crash-twice" and _starts_under(os.getppid(), data, name) <= 2):
        raise ValueError("boom")
    if conduct == "chatty":
        sys.stderr.write(("x" * 99 + "\n") * 5_000)


def _starts_under(supervisor: int, data: Path, name: str) -> int:
    return sum(note["supervisor"] == supervisor for note in notes(data, name))


def _link(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def _conduct(data: Path, name: str) -> str:
    path = data / "conduct" / name
    return path.read_text().strip() if path.exists() else ""


def _note(data: Path, name: str, **facts: object) -> None:
    """One line for each start of a service, with what it was given and what it inherited."""
    facts |= {
        "pid": os.getpid(),
        "supervisor": os.getppid(),
        "threads": threading.active_count(),
        "environment": sorted(os.environ),
        "descriptors": sorted(_link(fd).partition(":")[0] for fd in os.listdir("/proc/self/fd") if int(fd) > 2),
        "time": time.monotonic(),
    }
    with (data / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def notes(data: Path, name: str) -> list[dict[str, Any]]:
    """What this service has noted, a dict for each of its starts."""
    path = data / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _code(
    settings: Any, serve: Callable[[Any], Coroutine[Any, Any, None]], migrations: Path | None = None
) -> Callable[[], Code]:
    return lambda: Code(settings=settings, serve=serve, migrations=migrations)


def _data(around: Surroundings) -> dict[str, str]:
    return {"FAKE_DATA": str(around.layout.data)}


def _gateway(around: Surroundings) -> dict[str, str]:
    return {**_data(around), "SLESS_PUBLIC_FD": str(around.public_fd)}


SERVICES = (
    Service(
        name="alpha", after=(MIGRATIONS,), peers=(), own=_data, tables=True,
        load=_code(AlphaSettings, serve_alpha, MIGRATIONS_FOLDER),
    ),
    Service(
        name="beta", after=("alpha", LAUNCHER), peers=("alpha",), own=_data, tables=BETA_HAS_TABLES,
        load=_code(BetaSettings, serve_beta, MIGRATIONS_FOLDER if BETA_HAS_TABLES else None),
    ),
    Service(
        name="gateway", after=("beta",), peers=("alpha", "beta"), own=_gateway, load=_code(GatewaySettings, serve_gateway),
        keeps=lambda around: (around.public_fd,), defaults=lambda around: {"EXTERNAL_URL": around.endpoint},
    ),
)  # fmt: skip
