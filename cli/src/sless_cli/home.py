"""The user's XDG folders (XDG Base Directory Specification)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sless_cli.errors import UsageFault


def xdg_folder(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """The folder that the variable names, else the one below the home folder. Raises UsageFault when there is neither."""
    given = environ.get(variable, "")
    if os.path.isabs(given):
        return Path(given)
    home = environ.get("HOME", "") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise UsageFault(f"this user has no home folder: set HOME, or {variable}")
    return Path(home) / below_home
