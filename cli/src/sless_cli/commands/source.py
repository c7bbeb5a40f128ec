"""`sless source`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sless_cli.api import Api, ApiNotFound
from sless_cli.completing import any_name
from sless_cli.context import load_context
from sless_cli.errors import NotFound
from sless_cli.output import JSON, TABLE, note, print_json
from sless_cli.resources import Found, existing
from sless_cli.saved_source import check_target, unpack
from sless_cli.transport import wrong_host

_ZIP = "application/zip"
_DOWNLOAD_SEC = 300.0


@click.command("source")
@click.argument("name", shell_complete=any_name)
@click.option("-o", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Save the files in this folder.")
@click.option("--version", type=click.IntRange(min=1), help="Of this version; by default of the one that serves.")
@click.option("--force", is_flag=True, help="Write over files that the folder has.")
@click.option("--output", type=click.Choice([TABLE, JSON]), default=TABLE, show_default=True, help="json for programs.")
def command(*, name: str, folder: Path | None, version: int | None, force: bool, output: str) -> None:
    """Show or save the code of a function or service, as it was uploaded."""
    if folder is not None:
        check_target(folder, overwrite=force)
    with Api(load_context(os.environ)) as api:
        found = existing(api, name)
        try:
            _save(api, found, version, folder, output) if folder else _show(api, found, version, output)
        except ApiNotFound:
            what = f"version {version} of {name} is not there" if version else f"{name} has no code yet"
            raise NotFound(f"{what}: `sless versions {name}` shows what there is") from None


def _show(api: Api, found: Found, version: int | None, output: str) -> None:
    source: Mapping[str, Any] = api.call("GET", _path(found, version), timeout=_DOWNLOAD_SEC).json()
    if output == JSON:
        print_json(source)
        return
    note(f"version {source['version']}, entrypoint {source['entrypoint']}")
    for file in source["files"]:
        click.echo(f"==> {file['path']} ({file['size']} bytes) <==")
        if file["encoding"] == "utf-8":
            click.echo(file["content"], nl=not file["content"].endswith("\n"))
    if source["truncated"]:
        note(f"some files are too large to be shown: `sless source {found.resource['name']} -o DIR` saves them all")


def _save(api: Api, found: Found, version: int | None, folder: Path, output: str) -> None:
    answer = api.checked(api.send("GET", _path(found, version), headers={"Accept": _ZIP}, timeout=_DOWNLOAD_SEC))
    if answer.headers.get("content-type", "") != _ZIP:
        raise wrong_host(api.context.endpoint, answer)
    paths = unpack(answer.body, folder)
    if output == JSON:
        print_json({"folder": str(folder), "files": paths})
    else:
        note(f"{len(paths)} files of {found.resource['name']} are in {folder}")


def _path(found: Found, version: int | None) -> str:
    return f"{found.path}/versions/{version}/source" if version else f"{found.path}/source"
