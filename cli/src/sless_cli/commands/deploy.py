"""`sless deploy`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sless_cli.api import Api
from sless_cli.context import load_context
from sless_cli.deployment import Deployment, Plan, Teller, Wishes, deploy, plan
from sless_cli.errors import UsageFault
from sless_cli.output import progress
from sless_cli.source import read_source


@click.command("deploy")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the service; the folder's by default.")
@click.option("--runtime", help="Runtime, such as python3.11; what the files say by default.")
@click.option("--entrypoint", help="Handler as module.function; found in the code by default.")
@click.option(
    "--env", "variables", metavar="K=V", multiple=True, help="A variable for the handler; may be given again."
)
@click.option("--memory-mb", type=int, help="Memory of one instance in MiB.")
@click.option("--timeout-sec", type=int, help="Seconds that a call may take; 0: no limit (services only).")
@click.option("--min", "low", type=int, help="Instances kept at least.")
@click.option("--max", "high", type=int, help="Instances at most.")
@click.option("--concurrency", type=int, help="Calls that one instance takes at once.")
@click.option(
    "--private", is_flag=True, help="Make a function, called by `sless invoke`, instead of a service with a URL."
)
@click.option("--no-wait", is_flag=True, help="Return when the code is uploaded.")
def command(*, path: Path, no_wait: bool, **given: Any) -> None:
    """Put the code in PATH (a folder or a zip) behind a URL.

    A name that exists is changed: what is given here or in sless.toml changes, all else stays.
    """
    planned = plan(read_source(path), wishes_of(given))
    with Api(load_context(os.environ)) as api:
        deployed = deploy_watched(api, planned, wait=not no_wait)
    click.echo(deployed.address)


def deploy_watched(api: Api, planned: Plan, *, wait: bool) -> Deployment:
    """Deploy with progress and build log on stderr."""
    with progress() as shown:
        return deploy(api, planned, wait=wait, tell=Teller(step=shown.step, note=shown.line, log=shown.line))


def wishes_of(given: dict[str, Any]) -> Wishes:
    """The options of `sless deploy` as wishes. Raises UsageFault."""
    fields = {
        name: given[name] for name in ("runtime", "entrypoint", "memory_mb", "timeout_sec") if given[name] is not None
    }
    bounds = {"min": given["low"], "max": given["high"], "concurrency": given["concurrency"]}
    return Wishes(
        name=given["name"],
        private=given["private"],
        fields=fields,
        replicas={name: value for name, value in bounds.items() if value is not None},
        env_vars=dict(_variable(text) for text in given["variables"]),
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageFault(f"--env {text!r} must be NAME=VALUE")
    return name, value
