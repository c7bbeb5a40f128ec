"""What code asks for: the packages of a requirements.txt or a pyproject.toml. Pure; nothing of it is believed."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sless_builder.domain.build import Problem, UserError
from sless_builder.domain.requirements_text import Line

REQUIREMENTS_INVALID: Final = "REQUIREMENTS_INVALID"
_SHOWN: Final = 200


class Origin(enum.Enum):
    """Where a package's bytes come from: the platform's index, an address that the author names, or the archive itself."""

    INDEX = "index"
    URL = "url"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One package that is asked for.

    name    normalised (PEP 503); "" when only its file's name tells.
    text    as PEP 508 writes it; for a file of the archive its path there.
    hashes  "sha256:…", sorted; the package's file must have one of them.
    """

    name: str
    text: str
    origin: Origin
    line: Line
    hashes: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The hashes as a requirements file has them."""
        return "".join(f" --hash={value}" for value in self.hashes)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is asked for, in one place.

    constraints  versions that hold for whatever is installed, asked for or not.
    choices      options that hold for all: `--no-binary`, `--only-binary`, `--pre`, `--require-hashes`, with their values.
    indexes      options that name another index, where operators allow them.
    files        the archive's files that are installed from, by path, with their SHA-256.
    warnings     what was passed over, as sentences.
    """

    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def hashed(self) -> bool:
        """Whether every file must have a hash that is stated: pip's rule once one has."""
        named = any(requirement.hashes for requirement in self.requirements)
        return named or any(name == "--require-hashes" for name, _ in self.choices)

    @property
    def wants_sources(self) -> bool:
        """Whether it asks for a source build in so many words."""
        packed = any(not path.endswith(".whl") for path in self.files)
        return packed or any(name == "--no-binary" and value != ":none:" for name, value in self.choices)

    @property
    def shared(self) -> bool:
        """Whether all its bytes come from the platform's index, so that other namespaces may have what came of it."""
        return not self.indexes and all(item.origin is Origin.INDEX for item in self.requirements + self.constraints)

    @property
    def counted(self) -> str:
        """How much is asked for, and where: for people."""
        files = sorted({item.line.file for item in self.requirements})
        count = len(self.requirements)
        return f"{count:,} requirement{'' if count == 1 else 's'} of {', '.join(files)}"

    def text(self) -> str:
        """The same for two manifests that ask for the same."""
        return json.dumps(
            {
                "requirements": sorted({item.text + item.options for item in self.requirements}),
                "constraints": sorted({item.text + item.options for item in self.constraints}),
                "choices": sorted(self.choices),
                "indexes": list(self.indexes),
                "files": sorted(self.files.items()),
            },
            sort_keys=True,
        )

    def line_of(self, package: str) -> Line | None:
        """Where a package is asked for; None when it comes with another."""
        asked = self.requirements + self.constraints
        return next((item.line for item in asked if item.name == package and package), None)


def refused(line: Line, why: str, *, package: str = "") -> UserError:
    """The error for a line that can't be followed."""
    shown = line.text if len(line.text) <= _SHOWN else line.text[:_SHOWN] + "…"
    return UserError(
        Problem(
            REQUIREMENTS_INVALID,
            f"{line.where}: {why}",
            file=line.file,
            line=line.number,
            package=package,
            quote=shown,
        )
    )
