"""How commands speak: tables for people, JSON for programs, progress only where a person watches a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

# How lines of a build log begin that people should see at once.
_STYLES = {"error: ": "bold red", "warning: ": "yellow"}

JSON = "json"
TABLE = "table"

output_option = click.option(
    "-o", "--output", type=click.Choice([TABLE, JSON]), default=TABLE, show_default=True, help="json for programs."
)


def print_json(value: object) -> None:
    """A value for programs, on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people, on stdout; None and "" are shown as a dash."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold", show_header=bool(columns))
    for row in rows:
        table.add_row(*("-" if cell is None or cell == "" else str(cell) for cell in row))
    # Into a pipe each row stays on one line, however long it is.
    console = Console(width=None if sys.stdout.isatty() else 10_000, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def note(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """step  shows what is being done now, where a person watches
    line  writes a line that stays, on stderr
    log   as `line`, a line of a build log: on a terminal, what went wrong stands out
    """

    step: Callable[[str], None]
    line: Callable[[str], None]
    log: Callable[[str], None]


@contextmanager
def progress(*, watched: bool = True) -> Iterator[Progress]:
    """Progress of long work; steps are silent unless stderr is a terminal that nothing else writes to (`watched`)."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not (watched and console.is_terminal):
        yield Progress(step=lambda _text: None, line=note, log=note)
        return
    emphasis = _Emphasis()
    with console.status("") as status:
        yield Progress(
            step=lambda text: status.update(f"{text} …"),
            # Through the console, so that it does not run into the step that is shown.
            line=lambda text: console.print(text, soft_wrap=True),
            log=lambda text: console.print(text, soft_wrap=True, style=emphasis.of(text)),
        )


class _Emphasis:
    """How lines of a build log look: what went wrong stands out, with the lines that are quoted below it."""

    def __init__(self) -> None:
        self._style = ""

    def of(self, line: str) -> str:
        if not line.startswith(" "):
            self._style = next((style for start, style in _STYLES.items() if line.startswith(start)), "")
        return self._style
