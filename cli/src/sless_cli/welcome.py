"""What `sless up` says when the platform is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from sless_cli.context import TOKEN_VARIABLE, Context
from sless_cli.embedded.front import Ready
from sless_cli.errors import CliError, ExitCode
from sless_cli.output import note

_ANSWER_LIMIT_SEC = 70.0
_SHOWN_CHARACTERS = 500


def welcome(ready: Ready, code: Path | None, *, took: Callable[[], float], stop: str) -> int:
    """Deploy `code` when there is some, and print where everything is; the exit code.

    `took` gives the seconds since the start, `stop` says how to stop it.
    """
    context = Context(endpoint=ready.endpoint, token=ready.token, data_dir=ready.data_dir)
    failed = None
    url = ""
    if code is not None:
        try:
            url = _deploy(context, code)
        except CliError as error:
            failed = error
    _print(ready, context, url, took=took, stop=stop)
    if failed is None:
        return ExitCode.DONE
    note(
        f"Error: {code} was not deployed: {failed.message}\nThe platform runs on; try again with `sless deploy {code}`."
    )
    return failed.exit_code


def _deploy(context: Context, code: Path) -> str:
    # Only where something is deployed: loading an HTTP client takes longer than all else here.
    from sless_cli.api import Api
    from sless_cli.commands.deploy import deploy_watched
    from sless_cli.deployment import Extent
    from sless_cli.planning import Wishes, plan
    from sless_cli.source import read_source

    with Api(context) as api:
        deployed = deploy_watched(api, plan(read_source(code), Wishes()), Extent())
    return deployed.address


def _print(ready: Ready, context: Context, url: str, *, took: Callable[[], float], stop: str) -> None:
    if url:
        click.echo(f"function  {url}\nanswer    {_answer_of(url, context)}")
    click.echo(f"REST      {ready.endpoint}/v1")
    if context.token == os.environ.get(TOKEN_VARIABLE, ""):
        click.echo(f"token     of your issuer, in {TOKEN_VARIABLE}")
    else:
        click.echo(f"token     {context.token}")
        click.echo("          (30 days; another one: sless token)")
    deployed = f", {took():.1f} s with the deployment" if url else ""
    click.echo(f"took      {ready.seconds:.1f} s to start{deployed}")
    click.echo(f"data      {ready.data_dir}")
    for text in ready.notes:
        note(text)
    click.echo("\nNext:")
    if url:
        click.echo(f'  curl {url} -d \'{{"name": "Ada"}}\'')
    click.echo("  sless deploy PATH        your own code behind a URL of its own")
    click.echo("  sless status             what runs; `sless --help` shows all else")
    click.echo(stop)


def _answer_of(url: str, context: Context) -> str:
    """What the function answers, in one line."""
    import httpx

    from sless_cli.transport import http_client

    try:
        with http_client(context.endpoint) as client:
            answer = client.get(url, timeout=_ANSWER_LIMIT_SEC)
    except httpx.HTTPError as error:
        return f"none ({error})"
    text = " ".join(answer.text.split())
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return shown if answer.is_success else f"{answer.status_code}: {shown}"
