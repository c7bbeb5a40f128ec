"""Whether a platform is clean: nothing of a build that ended is left on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
from sless_cli.embedded.postgres import PORT
from sless_cli.embedded.provision import DATABASE, role_of

from tests.support.embedded import Platform, until

_WAITING = "SELECT version_uid FROM builds WHERE state IN ('pending', 'building') OR lease_until > clock_timestamp()"
_KEPT_READY = "compile_program.py"
"""A compiler waits for the next build."""


def assert_builds_left_nothing(platform: Platform, build_uid: int | None = None) -> None:
    """No process, folder, queue row or mount of a build: a moment after all builds have ended.

    `build_uid`: the user that this platform alone builds as; None when its builds have no user of their own.
    """
    left: dict[str, Callable[[], list[str]]] = {
        "process": lambda: _processes(platform, build_uid),
        "folder": lambda: _folders(platform),
        "queue row": lambda: asyncio.run(_queue(platform)),
        "mount": lambda: _mounts(platform),
    }
    for what, look in left.items():
        until(lambda look=look: not look(), f"no {what} of builds to be left: {look()}")  # type: ignore[misc]


async def builder_rows(platform: Platform, query: str) -> list[dict[str, Any]]:
    """What a query on the builder's tables gives."""
    role = role_of("builder")
    password = json.loads(platform.layout.secrets.read_text())["database_passwords"][role]
    session = await asyncpg.connect(
        host=str(platform.layout.postgres_run), port=PORT, user=role, password=password, database=DATABASE
    )
    try:
        return [dict(row) for row in await session.fetch(query)]
    finally:
        await session.close()


def _spool(platform: Platform) -> Path:
    return platform.layout.objects.parent / "spool"


def _processes(platform: Platform, build_uid: int | None) -> list[str]:
    """Processes that name a folder of builds, or run as their user."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                own = str(_spool(platform)) in command or process.stat().st_uid == build_uid
                if own and _KEPT_READY not in command:
                    found.append(f"{process.name} {command}")
            except OSError:
                continue  # it went while we looked
    return found


def _folders(platform: Platform) -> list[str]:
    places = (_spool(platform), platform.layout.layers / ".unpacking")
    under_way = [path for place in places for path in place.glob("*/*") if path.name != ".lock"]
    return [str(path) for path in (*under_way, *(platform.data / "packages").glob("old-*"))]


async def _queue(platform: Platform) -> list[str]:
    return [row["version_uid"] for row in await builder_rows(platform, _WAITING)]


def _mounts(platform: Platform) -> list[str]:
    mounts = [Path(f"/proc/{name}/mounts").read_text() for name in ("self", str(platform.pid("builder")))]
    return [line for text in mounts for line in text.splitlines() if str(platform.data) in line]
