"""Imports that nothing satisfies: found when code is compiled, told once it is known what is installed beside it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sless_builder.domain.dependencies import modules_in

_GONE_SINCE_311: Final = frozenset(
    (
        *(
            "aifc",
            "asynchat",
            "asyncore",
            "audioop",
            "cgi",
            "cgitb",
            "chunk",
            "crypt",
            "distutils",
            "imghdr",
            "imp",
            "lib2to3",
        ),
        *(
            "mailcap",
            "msilib",
            "nis",
            "nntplib",
            "ossaudiodev",
            "pipes",
            "smtpd",
            "sndhdr",
            "spwd",
            "sunau",
            "telnetlib",
            "uu",
        ),
        "xdrlib",
    )
)
STANDARD: Final = sys.stdlib_module_names | _GONE_SINCE_311 | {"sless_runtime"}
"""What the runtime has by itself, whichever Python this service runs on."""

_MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's module. `level`: its leading dots; `guarded`: the code is ready for its absence."""

    line: int
    level: int
    module: str
    names: tuple[str, ...]
    guarded: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """A module that neither the standard library nor the code itself has."""

    file: str
    line: int
    module: str

    def warning(self) -> str:
        """What to tell the author."""
        has = "which neither the standard library nor the dependencies have"
        return f"warning: {self.file} line {self.line} imports '{self.module}', {has}"


@dataclass(frozen=True, slots=True)
class Imports:
    """What a code's files import: from each other, and from elsewhere."""

    wanted: tuple[Wanted, ...] = ()
    uses: Mapping[str, tuple[str, ...]] | None = None

    def unsatisfied(self, entry_module: str, installed: Collection[str]) -> list[Wanted]:
        """What is imported, by files that the entrypoint's module leads to, and not installed; one a file and module."""
        reached = self._reached(entry_module)
        found = {
            (item.file, item.module): item
            for item in sorted(self.wanted, key=lambda item: -item.line)
            if item.file in reached and item.module not in installed
        }
        return sorted(found.values(), key=lambda item: (item.file, item.line, item.module))

    def _reached(self, entry_module: str) -> set[str]:
        reached, ahead = set[str](), [entry_module]
        while ahead:
            if (file := ahead.pop()) not in reached:
                reached.add(file)
                ahead.extend((self.uses or {}).get(file, ()))
        return reached

    def facts(self) -> dict[str, Any]:
        """As it is kept with a layer; nothing when nothing is wanted."""
        if not self.wanted:
            return {}
        wanted = [[item.file, item.line, item.module] for item in self.wanted]
        return {"wanted": wanted, "uses": {file: list(used) for file, used in (self.uses or {}).items()}}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Imports:
        """What was kept."""
        uses = {file: tuple(used) for file, used in facts.get("uses", {}).items()}
        return cls(tuple(Wanted(*item) for item in facts.get("wanted", ())), uses)


def imports_of(found: Mapping[str, Iterable[Import]], paths: Collection[str]) -> Imports:
    """What the files of a code import; `found` by file, `paths`: all that is in the code."""
    own = set(modules_in(paths)) | STANDARD
    wanted: list[Wanted] = []
    uses = {}
    for file, items in found.items():
        used = set[str]()
        for item in items:
            used.update(path for path in _candidates(file, item) if path in paths)
            top = item.module.partition(".")[0]
            if item.level == 0 and not item.guarded and top and top not in own:
                wanted.append(Wanted(file, item.line, top))
        if used:
            uses[file] = tuple(sorted(used))
    return Imports(tuple(wanted[:_MOST]), uses)


def _candidates(file: str, item: Import) -> Iterator[str]:
    """The files that an import may run, if they are there."""
    package = file.split("/")[: -item.level] if item.level else []
    parts = [*package, *(item.module.split(".") if item.module else [])]
    for count in range(1, len(parts) + 1):
        yield from _files("/".join(parts[:count]))
    for name in item.names:
        yield from _files("/".join([*parts, name]))


def _files(module: str) -> tuple[str, str]:
    return f"{module}.py", f"{module}/__init__.py"
