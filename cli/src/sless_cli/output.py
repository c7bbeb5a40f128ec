"""How commands speak: tables for people, JSON for programs, progress only where a person watches a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.table import Table

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
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*("-" if cell is None or cell == "" else str(cell) for cell in row))
    # Into a pipe each row stays on one line, however long it is.
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, markup=False, highlight=False, emoji=False, soft_wrap=width is not None).print(table)


def note(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done now; silent unless stderr is a terminal."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda _text: None
        return
    with console.status("") as status:
        yield lambda text: status.update(f"{text} …")
