"""`sless status`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sless_cli.context import layout_of_known
from sless_cli.embedded import control, lock
from sless_cli.embedded.layout import Layout
from sless_cli.errors import CliError
from sless_cli.output import JSON, output_option, print_json, print_table

_LIMIT_SEC = 5.0
_UNKNOWN = dict.fromkeys(("level", "memory", "processes", "seccomp", "network", "user", "reason"))
_UNKNOWN_SANDBOX = dict.fromkeys(("level", "memory", "network", "reason"))
_LEVELS: Mapping[str | None, str] = {
    "namespaces": "namespaces: own files, processes and users",
    "landlock": "landlock: own files, signals kept in; the numbers of other processes are seen",
    "none": "none: functions are not kept apart here",
}
_BUILD_LEVELS: Mapping[str | None, str] = {
    "namespaces": "namespaces: own files and processes",
    "limits": "limits: builds are not kept apart here",
    "none": "none: what is not trusted can't be built here",
}
_BUILD_MEMORY: Mapping[str | None, str] = {
    "exact": "limited exactly, by a control group",
    "approximate": "limited approximately: looked at ten times a second",
}
_FILTERED = {True: "filtered", False: "not filtered", None: "unknown"}
_NETWORKS: Mapping[str | None, str] = {"host": "this machine's: no boundary"}


@click.command("status")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the platform.")
@output_option
def command(*, data: Path | None, output: str) -> None:
    """Show what runs, and how well functions are kept apart."""
    status = status_of(layout_of_known(data, os.environ))
    if output == JSON:
        print_json(status)
    else:
        _print(status)


def status_of(where: Layout) -> dict[str, Any]:
    """What `--output json` prints. Raises CliError when nothing runs."""
    holder = lock.holder_of(where.lock)
    if holder is None:
        raise CliError(f"no platform runs on {where.data}: start it with `sless up --data {where.data}`")
    # Its own run folder: this shell may have another XDG_RUNTIME_DIR.
    running = Layout(data=where.data, run=Path(holder.run))
    try:
        status = control.ask(running.supervisor_socket, "status", limit=_LIMIT_SEC)
    except (OSError, ValueError) as error:
        raise CliError(
            f"the platform on {where.data} (pid {holder.pid}) does not answer ({error}): it may be starting; try again"
        ) from error
    return {
        **status,
        "isolation": _isolation(running.launcher_socket),
        "build_sandbox": _build_sandbox(running.build_sandbox),
        "pid": holder.pid,
    }


def _isolation(launcher: Path) -> dict[str, Any]:
    """What the launcher says of itself; unknown while it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_LIMIT_SEC)
            connection.connect(str(launcher))
            connection.sendall(b'{"id": 1, "op": "isolation"}\n')
            with connection.makefile("rb") as answer:
                result = json.loads(answer.readline())["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return dict(_UNKNOWN)
    return dict(result)


def _build_sandbox(file: Path) -> dict[str, Any]:
    """What the builder said of its sandbox; unknown before its first start."""
    try:
        return {**_UNKNOWN_SANDBOX, **json.loads(file.read_text())}
    except (OSError, ValueError, TypeError):
        return dict(_UNKNOWN_SANDBOX)


def _print(status: dict[str, Any]) -> None:
    rows = [(each["name"], each["pid"], each["state"], each["rss_mb"], each["restarts"]) for each in status["services"]]
    print_table(("SERVICE", "PID", "STATE", "RSS MiB", "RESTARTS"), rows)
    whole = [*in_words(status["isolation"]), *builds_in_words(status["build_sandbox"])]
    print_table((), [("endpoint", status["endpoint"]), ("data", status["data_dir"]), *whole])


def in_words(isolation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What separates functions, a row each, as docs/security.md explains them."""
    reason = isolation.get("reason")
    return [
        ("isolation", _LEVELS.get(isolation.get("level"), "unknown")),
        ("  users", str(isolation.get("user") or "unknown")),
        ("  memory", _memory(isolation.get("memory"))),
        ("  processes", _processes(isolation.get("processes"))),
        ("  system calls", _FILTERED[isolation.get("seccomp")]),
        ("  network", _NETWORKS.get(isolation.get("network"), "unknown")),
        *([("  why no more", str(reason))] if reason else []),
    ]


def builds_in_words(sandbox: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What untrusted steps of builds may do, a row each."""
    reason = sandbox.get("reason")
    return [
        ("builds", _BUILD_LEVELS.get(sandbox.get("level"), "unknown")),
        ("  memory", _BUILD_MEMORY.get(sandbox.get("memory"), "unknown")),
        ("  network", _NETWORKS.get(sandbox.get("network"), "unknown")),
        *([("  why no more", str(reason))] if reason else []),
    ]


def _memory(memory: str | None) -> str:
    if memory is None:
        return "unknown"
    if memory == "approximate":
        return "limited approximately: looked at once a second"
    return f"limited exactly, by a {memory}"


def _processes(processes: str | None) -> str:
    if processes is None or processes == "not limited":
        return processes or "unknown"
    return f"limited, {processes}" if processes.startswith("counted") else f"limited, by a {processes}"
