"""What an interpreter consists of, so that it can be shown in a sandbox."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Final

_ASK: Final = "import sys; print(sys.base_prefix, sys.base_exec_prefix, sep='\\n')"
_LIMIT_SEC: Final = 20
_SYSTEM: Final = (Path("/"), Path("/usr"))
"""What every sandbox shows."""


@functools.cache
def interpreter_files(python: Path) -> tuple[Path, ...]:
    """Folders and files beside the system's that `python` needs; it is asked once. Blocks. Raises OSError."""
    try:
        asked = subprocess.run(
            (str(python), "-I", "-S", "-c", _ASK),
            env={},
            capture_output=True,
            text=True,
            timeout=_LIMIT_SEC,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{python} does not say where its files are: {error}") from error
    folders = {Path(line) for line in asked.stdout.splitlines()} - set(_SYSTEM)
    within = any(python.is_relative_to(folder) for folder in (*folders, Path("/usr")))
    return (*sorted(folders), *(() if within else (python,)))
