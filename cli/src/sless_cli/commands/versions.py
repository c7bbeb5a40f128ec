"""`sless versions`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from sless_cli.api import Api
from sless_cli.completing import any_name
from sless_cli.context import load_context
from sless_cli.output import JSON, output_option, print_json, print_table
from sless_cli.resources import existing
from sless_cli.versions import versions_of

_COLUMNS = ("VERSION", "STATE", "SERVES", "SIZE", "CREATED", "BY", "MESSAGE")


@click.command("versions")
@click.argument("name", shell_complete=any_name)
@output_option
def command(*, name: str, output: str) -> None:
    """List the versions of a function or service, newest first."""
    with Api(load_context(os.environ)) as api:
        versions = versions_of(api, existing(api, name))
    if output == JSON:
        print_json(versions)
    elif versions:
        print_table(_COLUMNS, [_row(version) for version in versions])
    else:
        click.echo(f"{name} has no versions yet: upload code with `sless deploy PATH --name {name}`.", err=True)


def _row(version: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        version["version"],
        version["state"],
        "yes" if version["active"] else "",
        f"{version['size_bytes'] / 1024:.1f} KiB",
        version["created_at"],
        version["created_by"],
        _reason(version),
    )


def _reason(version: Mapping[str, Any]) -> str:
    """Why it failed, in one line."""
    if version["error"]:
        return str(version["error"]["message"]).partition("\n")[0]
    return str(version["message"]).rpartition("\n")[2]
