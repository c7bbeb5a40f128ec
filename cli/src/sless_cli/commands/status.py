"""`sless status`."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import click

from sless_cli.context import layout_of_known
from sless_cli.embedded import control, lock
from sless_cli.embedded.layout import Layout
from sless_cli.errors import CliError
from sless_cli.output import JSON, output_option, print_json, print_table

_LIMIT_SEC = 5.0
_UNKNOWN = {"level": None, "memory": None, "seccomp": None, "network": None}
_FILTERED = {True: "filtered", False: "not filtered", None: "unknown"}
_APPROXIMATE = "The memory limit of functions is approximate here: no control group may be written."
_OPEN_NETWORK = "Functions share this machine's network: that is no boundary."


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
    return {**status, "isolation": _isolation(running.launcher_socket), "pid": holder.pid}


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


def _print(status: dict[str, Any]) -> None:
    rows = [(each["name"], each["pid"], each["state"], each["rss_mb"], each["restarts"]) for each in status["services"]]
    print_table(("SERVICE", "PID", "STATE", "RSS MiB", "RESTARTS"), rows)
    isolation = status["isolation"]
    print_table(
        (),
        [
            ("endpoint", status["endpoint"]),
            ("data", status["data_dir"]),
            ("isolation", f"{isolation['level'] or 'unknown'}, memory {isolation['memory'] or 'unknown'}"),
            ("system calls", _FILTERED[isolation.get("seccomp")]),
        ],
    )
    if isolation["memory"] == "approximate":
        click.echo(_APPROXIMATE)
    if isolation["level"] == "none":
        click.echo(f"Functions are not kept apart here: {isolation.get('reason') or 'this kernel does not allow it'}.")
    if isolation["network"] == "host":
        click.echo(_OPEN_NETWORK)
