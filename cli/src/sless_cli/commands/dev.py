"""`sless dev`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from sless_cli.errors import StartFailed
from sless_cli.installed import python311, runtimes_folder
from sless_cli.planning import Wishes
from sless_cli.variables import env_option, secret_option, secrets, variables


@click.command("dev")
@click.argument("folder", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option("--entrypoint", help="Handler as module.function; found in the code by default.")
@click.option("--timeout-sec", type=int, help="Seconds that a call may take; 0: no limit.")
@env_option
@secret_option
def command(*, folder: Path, host: str, port: int, **given: Any) -> None:
    """Run a folder on this machine, with the new code as soon as it is saved.

    Every path is the handler's, by the runtime that runs it on a platform; none is needed. Requests, reloads and what the
    handler prints are shown as they come. While the code cannot be loaded, requests are answered 500 with the reason.
    What requirements.txt or pyproject.toml ask for is installed once, into a cache folder. Ctrl-C ends it all.

    There is no sandbox: the handler may do here what you may, and its memory has no limit.
    """
    python, notes = python311(os.environ)
    if python is None:
        raise StartFailed(notes[0])
    # Only here: these load an HTTP server.
    from sless_cli.dev.run import Options, serve

    options = Options(
        folder=folder.resolve(),
        wishes=_wishes(given),
        host=host,
        port=port,
        python=python,
        start=runtimes_folder(os.environ) / "python3.11" / "main.py",
    )
    asyncio.run(serve(options, os.environ))


def _wishes(given: dict[str, Any]) -> Wishes:
    return Wishes(
        fields={name: given[name] for name in ("entrypoint", "timeout_sec") if given[name] is not None},
        env_vars=variables(given["variables"]),
        secret_env=secrets(given["secrets"], os.environ),
    )
