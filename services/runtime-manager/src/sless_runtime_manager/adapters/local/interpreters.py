"""Finds interpreters on this machine and tells what of the file system they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_SEC = 10
# `_base_executable` is the interpreter that a virtual environment was made from (venv's documentation, "How venvs work"). Shims
# such as pyenv's are scripts that end in the real one.
_QUESTION = """
import json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "prefixes": sorted({os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that was run once: its file, its version, and the folders that it was installed into."""

    executable: Path
    version: tuple[int, int]
    prefixes: tuple[Path, ...]

    def exposed(self, private: Sequence[Path]) -> list[str]:
        """What a sandbox must show for it to run. A prefix that holds one of the `private` folders as well (a Python that was
        installed right into somebody's home) is not shown whole."""
        shown: list[str] = []
        for prefix in self.prefixes:
            if prefix == Path("/usr"):
                continue
            if any(folder.is_relative_to(prefix) for folder in private):
                shown += [str(prefix / part) for part in ("bin", "lib") if (prefix / part).is_dir()]
            else:
                shown.append(str(prefix))
        return sorted(set(shown))


def inspect(candidate: Path) -> Interpreter | None:
    """What the interpreter says of itself; None when it isn't there or isn't a Python that runs."""
    try:
        answer = subprocess.run(
            [candidate, "-I", "-S", "-c", _QUESTION], capture_output=True, timeout=_TIMEOUT_SEC, check=True
        )
        told = json.loads(answer.stdout)
        return Interpreter(
            executable=Path(told["executable"]),
            version=(told["version"][0], told["version"][1]),
            prefixes=tuple(Path(prefix) for prefix in told["prefixes"]),
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def find_python311(environ: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    """A Python 3.11 of this machine, by its real path, and the places that were looked at.

    Looked at in this order: PATH, the interpreter that runs this, /usr/bin, /usr/local/bin, pyenv's and /opt's installations.
    """
    looked_at: list[str] = []
    for candidate in _candidates(environ):
        if str(candidate) in looked_at:
            continue
        looked_at.append(str(candidate))
        found = inspect(candidate)
        if found is not None and found.version == (3, 11):
            return found.executable, looked_at
    return None, looked_at


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder.startswith("/"):
            yield Path(folder, "python3.11")
    if sys.version_info[:2] == (3, 11):
        yield Path(sys.executable)
    for folder in ("/usr/bin", "/usr/local/bin"):
        yield Path(folder, "python3.11")
    home = environ.get("HOME", "")
    if home.startswith("/"):
        root = Path(environ.get("PYENV_ROOT") or Path(home, ".pyenv"))
        yield from _newest(root / "versions", "3.11*/bin/python3.11")
    yield from _newest(Path("/opt"), "*/bin/python3.11")


def _newest(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern), reverse=True)
    except OSError:
        return []
