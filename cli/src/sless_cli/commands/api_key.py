"""`sless api-key`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from urllib.parse import quote

import click

from sless_cli.api import Api, ApiNotFound
from sless_cli.commands.token import duration
from sless_cli.context import TOKEN_VARIABLE, load_context
from sless_cli.errors import NotFound
from sless_cli.output import JSON, note, output_option, print_json, print_table

_COLUMNS = ("ID", "NAME", "HINT", "CREATED", "CREATED BY", "EXPIRES", "LAST USED")


@click.group("api-key")
def command() -> None:
    """Make, list and revoke API keys: tokens for programs."""


@command.command("create")
@click.argument("name")
@click.option("--expires", help="After how long it stops working, such as 12h or 90d; never by default.")
@output_option
def create(*, name: str, expires: str | None, output: str) -> None:
    """Make a key and print its secret, which is shown this once."""
    ends = None if expires is None else datetime.now(UTC) + duration(expires, option="--expires")
    body = {"name": name, "expires_at": None if ends is None else ends.isoformat()}
    with Api(load_context(os.environ)) as api:
        made = api.call("POST", _path(api), body=body).json()
    if output == JSON:
        print_json(made)
        return
    click.echo(made["secret"])
    note(f"Keep it: it can't be shown again. Programs send it as bearer token, `sless` takes it as {TOKEN_VARIABLE}.")


@command.command("list")
@output_option
def list_(*, output: str) -> None:
    """All keys of the namespace, newest first."""
    with Api(load_context(os.environ)) as api:
        found = api.call("GET", _path(api)).json()
    if output == JSON:
        print_json(found)
    elif found:
        fields = ("id", "name", "hint", "created_at", "created_by", "expires_at", "last_used_at")
        print_table(_COLUMNS, [[key.get(field) for field in fields] for key in found])
    else:
        note("There are no API keys yet: make one with `sless api-key create NAME`.")


@command.command("delete")
@click.argument("key_id", metavar="ID")
def delete(*, key_id: str) -> None:
    """Revoke a key; within five seconds nobody can use it any more."""
    with Api(load_context(os.environ)) as api:
        answer = api.send("DELETE", f"{_path(api)}/{quote(key_id, safe='')}")
        try:
            api.checked(answer)
        except ApiNotFound:
            # A first try whose answer was lost has revoked it.
            if not answer.retried:
                raise NotFound(f"there is no API key {key_id}: `sless api-key list` shows those there are") from None
    note(f"API key {key_id} is revoked")


def _path(api: Api) -> str:
    return f"/v1/namespaces/{quote(api.namespace(), safe='')}/api-keys"
