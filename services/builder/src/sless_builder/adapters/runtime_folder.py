"""Runtimes: the folders of runtimes/ as they are installed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sless_platform.errors import FailedPrecondition

from sless_builder.ports import RuntimeFile

_LEFT_OUT: Final = frozenset({"tests", "__pycache__"})


class FolderRuntimes:
    """Runtimes below `root`, each a folder with the runtime's name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def files(self, runtime: str) -> tuple[RuntimeFile, ...]:
        """See Runtimes."""
        files = await asyncio.to_thread(lambda: tuple(_files(self._root / runtime)))
        if not files:
            raise FailedPrecondition(f"the runtime {runtime} is not installed: {self._root / runtime} has no files")
        return files


def _files(folder: Path) -> Iterator[RuntimeFile]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not name.startswith((".", "test_")) and not name.endswith((".pyc", ".md")):
                executable = bool(path.stat().st_mode & 0o100)
                yield RuntimeFile(path.relative_to(folder).as_posix(), path.read_bytes(), executable)
