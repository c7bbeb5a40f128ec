"""What of the platform is installed on this machine: the runtimes' code, and interpreters for it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from sless_cli.errors import StartFailed


def python311(environ: Mapping[str, str]) -> tuple[Path | None, tuple[str, ...]]:
    """The interpreter of runtime python3.11, and what people should know about it."""
    from sless_runtime_manager.adapters.local import find_python311

    given = environ.get("SLESS_PYTHON311")
    if given:
        return Path(given), ()
    found, looked_at = find_python311(environ)
    if found is None:
        places = ", ".join(looked_at)
        return None, (
            f"Runtime python3.11 needs a Python 3.11, and none was found; its functions cannot run. Looked at {places}. "
            f"Install one, or name it by SLESS_PYTHON311, and start again.",
        )
    if sys.version_info[:2] == (3, 11):
        return found, ()
    return found, (f"Runtime python3.11 uses {found}: the platform itself runs on Python {platform.python_version()}.",)


def runtimes_folder(environ: Mapping[str, str]) -> Path:
    """The folder with one folder a runtime: SLESS_RUNTIMES_DIR, or the repository's that this file lies in."""
    given = environ.get("SLESS_RUNTIMES_DIR")
    candidates = [Path(given)] if given else [folder / "runtimes" for folder in Path(__file__).resolve().parents]
    for candidate in candidates:
        if (candidate / "python3.11").is_dir():
            return candidate
    raise StartFailed("the folder `runtimes` of the repository is not found: set SLESS_RUNTIMES_DIR to it")
