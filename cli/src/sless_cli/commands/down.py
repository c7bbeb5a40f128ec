"""`sless down`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from sless_cli.context import layout_of_known
from sless_cli.embedded import control, lock
from sless_cli.embedded.layout import Layout
from sless_cli.errors import CliError
from sless_cli.output import progress

_LIMIT_SEC = 15.0
_POLL_SEC = 0.02


@click.command("down")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the platform.")
def command(*, data: Path | None) -> None:
    """Stop the platform and wait until it has stopped."""
    where = layout_of_known(data, os.environ)
    holder = lock.holder_of(where.lock)
    if holder is None:
        click.echo(f"no platform runs on {where.data}", err=True)
        return
    with progress() as shown:
        shown.step("stopping")
        _stop(where, holder)
    click.echo(f"the platform on {where.data} has stopped", err=True)


def _stop(where: Layout, holder: lock.Holder) -> None:
    until = time.monotonic() + _LIMIT_SEC
    try:
        # Its own run folder: this shell may have another XDG_RUNTIME_DIR.
        control.stop_and_wait(Path(holder.run) / where.supervisor_socket.name, limit=_LIMIT_SEC)
    except OSError:
        # It does not listen yet, or no more.
        _terminate(holder.pid)
    while lock.holder_of(where.lock) is not None:
        if time.monotonic() > until:
            raise CliError(
                f"the platform on {where.data} (pid {holder.pid}) does not stop: end it with `kill -9 {holder.pid}`"
            )
        time.sleep(_POLL_SEC)


def _terminate(pid: int) -> None:
    if pid <= 0:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise CliError(f"the platform (pid {pid}) belongs to another user: stop it as that user") from error
