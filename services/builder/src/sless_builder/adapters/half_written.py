"""Leftovers of the object store on files: what a killed process had half written."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

_OLD: Final = timedelta(hours=1)


class HalfWrittenObjects:
    """Files below `root/.tmp`, where FileObjectStore has what is not whole yet."""

    def __init__(self, root: Path) -> None:
        self._folder = root / ".tmp"

    async def sweep(self) -> None:
        """See Leftovers. What was written to within the last hour may still be under way."""
        await asyncio.to_thread(self._sweep, time.time() - _OLD.total_seconds())

    def _sweep(self, before: float) -> None:
        for file in self._folder.glob("*"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < before:
                    file.unlink()
