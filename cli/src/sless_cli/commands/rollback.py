"""`sless rollback`."""

from __future__ import annotations

import os

import click

from sless_cli.api import Api
from sless_cli.commands.activate import activated, tell, wait_option
from sless_cli.completing import any_name
from sless_cli.context import load_context
from sless_cli.output import output_option
from sless_cli.resources import existing
from sless_cli.versions import version_before, versions_of


@click.command("rollback")
@click.argument("name", shell_complete=any_name)
@wait_option
@output_option
def command(*, name: str, wait: bool, output: str) -> None:
    """Go back to the built version before the one that serves; its URL goes to stdout."""
    with Api(load_context(os.environ)) as api:
        found = existing(api, name)
        serving, earlier = version_before(versions_of(api, found), name)
        resource = activated(api, found, earlier, wait=wait)
    tell(resource, f"version {earlier} of {name} {'serves' if wait else 'is to serve'}, no more {serving}", output)
