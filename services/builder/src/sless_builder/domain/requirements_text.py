"""The text of a requirements file: lines, options, encodings, as pip reads them (pip.pypa.io, Requirements File Format)."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_HASH: Final = re.compile(r"\s--hash[=\s](\S+)")
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LONG: Final = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
    "-i": "--index-url",
    "-f": "--find-links",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line: where it begins, from 1, and its text without comments."""

    file: str
    number: int
    text: str

    @property
    def where(self) -> str:
        """The place as people are told it."""
        return f"{self.file} line {self.number}" if self.number else self.file


@dataclass(frozen=True, slots=True)
class Option:
    """An option that stands on a line of its own: its long name, and its value, "" without one."""

    name: str
    value: str


def lines(file: str, content: bytes) -> Iterator[Line]:
    """The lines that say something. A backslash at a line's end continues it."""
    number, pending = 0, ""
    for count, text in enumerate([*decoded(content).splitlines(), ""], 1):
        number = number or count
        if text.endswith("\\") and not _COMMENT.match(text):
            pending += text[:-1] + " "
            continue
        if line := _COMMENT.sub("", pending + text).strip():
            yield Line(file, number, line)
        number, pending = 0, ""


def decoded(content: bytes) -> str:
    """pip's own rule: a byte order mark decides (Windows' shells write UTF-16), else UTF-8, else Latin-1."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def option(text: str) -> Option | None:
    """The option that a line is, None for a requirement. Raises ValueError for quotes that don't close."""
    if not text.startswith("-"):
        return None
    first, *rest = shlex.split(text)
    name, equals, value = first.partition("=")
    if not name.startswith("--") and len(name) > 2:  # -rother.txt
        name, equals, value = first[:2], "=", first[2:].removeprefix("=")
    return Option(_LONG.get(name, name), value if equals else " ".join(rest))


def hashes(text: str) -> tuple[str, tuple[str, ...]]:
    """A requirement without its `--hash` options, and their values, sorted."""
    found = tuple(sorted(_HASH.findall(text)))
    return _HASH.sub("", text).strip(), found
