"""`sless activate`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from sless_cli.api import Api, ApiError
from sless_cli.completing import any_name
from sless_cli.context import load_context
from sless_cli.output import JSON, note, output_option, print_json, progress
from sless_cli.resources import Found, address_of, existing
from sless_cli.versions import activate, missing

wait_option = click.option("--wait/--no-wait", default=True, show_default=True, help="Return when it serves.")


@click.command("activate")
@click.argument("name", shell_complete=any_name)
@click.argument("version", type=click.IntRange(min=1))
@wait_option
@output_option
def command(*, name: str, version: int, wait: bool, output: str) -> None:
    """Let a built version serve, older or newer; its URL goes to stdout."""
    with Api(load_context(os.environ)) as api:
        resource = activated(api, existing(api, name), version, wait=wait)
    tell(resource, f"version {version} of {name} {'serves' if wait else 'is to serve'}", output)


def activated(api: Api, found: Found, version: int, *, wait: bool) -> Mapping[str, Any]:
    """Activate with progress on stderr."""
    with progress() as shown:
        shown.step(f"starting version {version}")
        try:
            return activate(api, found, version, wait=wait)
        except ApiError as error:
            raise missing(error, str(found.resource["name"]), version) from None


def tell(resource: Mapping[str, Any], sentence: str, output: str) -> None:
    """What was done: the resource for programs, a sentence and its address for people."""
    if output == JSON:
        print_json(resource)
        return
    note(sentence)
    click.echo(address_of(resource))
