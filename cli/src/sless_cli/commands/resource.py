"""What `sless function` and `sless service` have in common: everything but the kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from sless_cli.api import Api, ApiNotFound, resource_path
from sless_cli.completing import name_of
from sless_cli.context import load_context
from sless_cli.errors import NotFound
from sless_cli.output import JSON, output_option, print_json, print_table

_COLUMNS = ("NAME", "PHASE", "RUNTIME", "VERSION", "MEMORY", "URL", "UPDATED")


def commands_for(kind: str) -> click.Group:
    """The group `sless KIND` with list, get and delete."""
    group = click.Group(kind, help=f"List, show and delete {kind}s.")
    group.add_command(_list_command(kind))
    group.add_command(_get_command(kind))
    group.add_command(_delete_command(kind))
    return group


def _list_command(kind: str) -> click.Command:
    @click.command("list", help=f"All {kind}s of the namespace.")
    @output_option
    def list_(*, output: str) -> None:
        with Api(load_context(os.environ)) as api:
            found = api.call("GET", resource_path(api.namespace(), kind)).json()
        if output == JSON:
            print_json(found)
        elif found:
            print_table(_COLUMNS, [_row(resource) for resource in found])
        else:
            click.echo(f"There are no {kind}s yet: make one with `sless deploy PATH`.", err=True)

    return list_


def _get_command(kind: str) -> click.Command:
    @click.command("get", help=f"One {kind}, with its configuration.")
    @click.argument("name", shell_complete=name_of(kind))
    @output_option
    def get(*, name: str, output: str) -> None:
        with Api(load_context(os.environ)) as api:
            resource = _get(api, kind, name)
        if output == JSON:
            print_json(resource)
        else:
            print_table(("FIELD", "VALUE"), [(field, _cell(value)) for field, value in resource.items()])

    return get


def _delete_command(kind: str) -> click.Command:
    @click.command("delete", help=f"Delete a {kind}; its URL answers 404 when this returns.")
    @click.argument("name", shell_complete=name_of(kind))
    def delete(*, name: str) -> None:
        with Api(load_context(os.environ)) as api:
            _delete(api, kind, name)
        click.echo(f"{kind} {name} is deleted", err=True)

    return delete


def _get(api: Api, kind: str, name: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = api.call("GET", resource_path(api.namespace(), kind, name)).json()
    except ApiNotFound:
        raise _missing(kind, name) from None
    return found


def _delete(api: Api, kind: str, name: str) -> None:
    answer = api.send("DELETE", resource_path(api.namespace(), kind, name))
    try:
        api.checked(answer)
    except ApiNotFound:
        # A first try whose answer was lost has deleted it.
        if not answer.retried:
            raise _missing(kind, name) from None


def _missing(kind: str, name: str) -> NotFound:
    return NotFound(f"there is no {kind} {name}: `sless {kind} list` shows those there are")


def _row(resource: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        resource["name"],
        _state(resource),
        resource["runtime"],
        resource.get("active_version"),
        f"{resource['memory_mb']} MiB",
        resource.get("url"),
        resource.get("updated_at"),
    )


def _state(resource: Mapping[str, Any]) -> str:
    """The phase; of one that is switched off, which is Ready to be switched on again, that it is off."""
    off = resource["replicas"]["max"] == 0 and resource["phase"] == "Ready"
    return "Off" if off else str(resource["phase"])


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_cell(item)}" for name, item in value.items())
    return "" if value is None else str(value)
