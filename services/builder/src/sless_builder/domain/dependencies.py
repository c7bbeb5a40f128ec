"""Whether code asks for packages, which this platform does not install yet."""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sless_builder.domain.build import Problem

REQUIREMENTS: Final = "requirements.txt"
PYPROJECT: Final = "pyproject.toml"

_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_PACKAGE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ASKS_FOR_NOTHING: Final = re.compile(
    r"(-i|-f|--(index-url|extra-index-url|no-index|find-links|trusted-host|pre|prefer-binary|no-binary|only-binary"
    r"|require-hashes|use-feature))(\s|=|$)"
)
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Demand:
    """The first thing that a file asks for: the line it stands in, from 1 (0 when unknown), and its text."""

    file: str
    line: int
    text: str

    def problem(self) -> Problem:
        """What to tell the author."""
        package = _PACKAGE.match(self.text)
        where = f"{self.file} line {self.line}" if self.line else self.file
        shown = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        return Problem(
            "DEPENDENCIES_UNSUPPORTED",
            f"dependencies are not installed yet: {where} asks for `{shown}`; vendor it in the folder or remove the line",
            file=self.file,
            line=self.line,
            package=package[0] if package else "",
            quote=shown,
        )


def required(content: bytes) -> Demand | None:
    """The first requirement of a requirements.txt; None when it has comments, blank lines and index options alone."""
    for number, line in _logical_lines(_text(content)):
        if line and not _ASKS_FOR_NOTHING.match(line):
            return Demand(REQUIREMENTS, number, line)
    return None


def declared(content: bytes) -> Demand | None:
    """The first of a pyproject.toml's `project.dependencies` (PEP 621). Raises ValueError when it is no TOML."""
    text = _text(content)
    project = tomllib.loads(text).get("project", {})
    listed = project.get("dependencies", []) if isinstance(project, dict) else []
    first = next((str(item) for item in listed), None) if isinstance(listed, list) else None
    if first is None:
        return None
    line = next((number for number, line in enumerate(text.splitlines(), 1) if first in line), 0)
    return Demand(PYPROJECT, line, first)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines as pip joins them: a backslash at the end continues; comments are taken away."""
    start, pending = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield start, _COMMENT.sub("", pending + line).strip()
        start, pending = 0, ""
    yield start, _COMMENT.sub("", pending).strip()


def _text(content: bytes) -> str:
    """pip's own rule: a byte order mark decides (Windows' shells write UTF-16), else UTF-8, else Latin-1."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")
