"""Variables of a handler as options give them: `--env K=V`, and secrets that need not stand on a command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from sless_cli.errors import UsageFault
from sless_cli.output import note

env_option = click.option(
    "--env", "variables", metavar="K=V", multiple=True, help="A variable for the handler; may be given again."
)
secret_option = click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="A secret variable, read from this shell's variable of that name, else asked for; NAME=@FILE reads a file. "
    "May be given again.",
)


def variables(texts: Iterable[str]) -> dict[str, str]:
    """Names and values of `--env`. Raises UsageFault."""
    return dict(_pair("--env", text) for text in texts)


def secrets(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Names and values of `--secret`. Raises UsageFault when a value can be had from nowhere."""
    return dict(_secret(text, environ) for text in texts)


def _secret(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    if "=" not in text:
        return text, _value_of(text, environ)
    name, value = _pair("--secret", text)
    if value.startswith("@"):
        return name, _content(Path(value[1:]))
    note(f"the value of {name} stands on a command line, where others may read it: --secret {name} takes it from the "
         f"variable {name}, or asks for it")  # fmt: skip
    return name, value


def _value_of(name: str, environ: Mapping[str, str]) -> str:
    if not name:
        raise UsageFault("--secret must be NAME, or NAME=@FILE")
    if name in environ:
        return environ[name]
    if not sys.stdin.isatty():
        raise UsageFault(f"--secret {name}: there is no variable {name} to read it from; set it, or give {name}=@FILE")
    value: str = click.prompt(f"value of {name}", hide_input=True, err=True)
    return value


def _content(path: Path) -> str:
    """A file's text, without the end of its last line."""
    try:
        return path.read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"cannot read {path}: {error}") from error


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        shown = text if option == "--env" else name
        raise UsageFault(f"{option} {shown!r} must be NAME=VALUE")
    return name, value
