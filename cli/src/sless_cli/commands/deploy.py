"""`sless deploy`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sless_cli.api import Api
from sless_cli.context import load_context
from sless_cli.deployment import Deployment, Extent, Teller, deploy
from sless_cli.output import JSON, output_option, print_json, progress
from sless_cli.planning import Plan, Wishes, plan
from sless_cli.source import read_source
from sless_cli.variables import env_option, secret_option, secrets, variables

_FIELDS = ("runtime", "entrypoint", "memory_mb", "timeout_sec", "access")


@click.command("deploy")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the service; the folder's by default.")
@click.option("--runtime", help="Runtime, such as python3.11; what the files say by default.")
@click.option("--entrypoint", help="Handler as module.function; found in the code by default.")
@env_option
@secret_option
@click.option("--memory-mb", type=int, help="Memory of one instance in MiB.")
@click.option("--timeout-sec", type=int, help="Seconds that a call may take; 0: no limit (services only).")
@click.option("--min", "low", type=int, help="Instances kept at least.")
@click.option("--max", "high", type=int, help="Instances at most.")
@click.option("--concurrency", type=int, help="Calls that one instance takes at once.")
@click.option(
    "--private", is_flag=True, help="Make a function, called by `sless invoke`, instead of a service with a URL."
)
@click.option(
    "--access",
    type=click.Choice(["public", "authenticated"]),
    help="Who may call the URL: anybody, or who has a token of the owner.",
)
@click.option(
    "--activate/--no-activate",
    default=True,
    show_default=True,
    help="Let the new version serve; or only build it, while what serves goes on.",
)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Return when it serves; or once it is uploaded."
)
@output_option
def command(*, path: Path, activate: bool, wait: bool, output: str, **given: Any) -> None:
    """Put the code in PATH (a folder or a zip) behind a URL.

    A name that exists is changed: what is given here or in sless.toml changes, all else stays; code and configuration
    change together. The URL goes to stdout.
    """
    planned = plan(read_source(path), wishes_of(given))
    with Api(load_context(os.environ)) as api:
        deployed = deploy_watched(api, planned, Extent(activate=activate, wait=wait))
    if output == JSON:
        print_json({**deployed.resource, "version": deployed.version})
    else:
        click.echo(deployed.address)


def deploy_watched(api: Api, planned: Plan, extent: Extent) -> Deployment:
    """Deploy with progress and build log on stderr."""
    with progress() as shown:
        return deploy(api, planned, extent=extent, tell=Teller(step=shown.step, note=shown.line, log=shown.log))


def wishes_of(given: dict[str, Any]) -> Wishes:
    """The options of `sless deploy` as wishes. Raises UsageFault."""
    bounds = {"min": given["low"], "max": given["high"], "concurrency": given["concurrency"]}
    return Wishes(
        name=given["name"],
        private=given["private"],
        fields={name: given[name] for name in _FIELDS if given[name] is not None},
        replicas={name: value for name, value in bounds.items() if value is not None},
        env_vars=variables(given["variables"]),
        secret_env=secrets(given["secrets"], os.environ),
    )
