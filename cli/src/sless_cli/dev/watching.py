"""Notices when files of a folder are saved, by looking at them: no dependency, on any file system."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path, PurePosixPath

from sless_contracts.limits import ARCHIVE_FILES

from sless_cli.errors import UsageFault
from sless_cli.ignoring import ALWAYS_OUT, IGNORE_FILE, Rules, ignored, rules_in

PAUSE_SEC = 0.05
_SHARE = 10
"""A look may take a tenth of the time: a large folder is looked at less often."""
_SETTLE_SEC = 0.02
"""A save may be several writes: it counts when this long nothing more has changed."""
_NEVER_WATCHED = ALWAYS_OUT | {"__pycache__"}

Snapshot = dict[str, tuple[int, int, int]]
"""Path → time of change, size and inode of every file that is not ignored."""


class Watch:
    """What changed since the last time that was asked; the first time, since it was made."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageFault for a folder that cannot be read, or has more files than may be deployed."""
        self._folder = folder
        self._rules: dict[PurePosixPath, Rules] = {}
        self._verdicts: dict[PurePosixPath, bool] = {}
        self._known: Snapshot = {}
        self._known = self._look()

    async def changed(self) -> list[str]:
        """Wait for a change; the paths that are new, gone or different. Raises UsageFault."""
        while True:
            began = time.monotonic()
            now = self._look()
            if now != self._known:
                return await self._settled(now)
            await asyncio.sleep(max(PAUSE_SEC, _SHARE * (time.monotonic() - began)))

    async def _settled(self, now: Snapshot) -> list[str]:
        while True:
            await asyncio.sleep(_SETTLE_SEC)
            before, now = now, self._look()
            if now == before:
                break
        known, self._known = self._known, now
        return sorted(path for path in known.keys() | now.keys() if known.get(path) != now.get(path))

    def _look(self) -> Snapshot:
        found: Snapshot = {}
        self._look_below(PurePosixPath(), [], found)
        if _ignore_files(found) != _ignore_files(self._known):
            # The rules are others now: what was decided by the old ones is decided anew, next time.
            self._rules.clear()
            self._verdicts.clear()
        return found

    def _look_below(self, below: PurePosixPath, rules: Rules, found: Snapshot) -> None:
        rules = self._rules_of(below, rules)
        try:
            entries = list(os.scandir(self._folder / below))
        except FileNotFoundError:
            if below == PurePosixPath():
                raise UsageFault(f"{self._folder} is gone") from None
            return
        except OSError as error:
            raise UsageFault(f"cannot read the folder {self._folder / below}: {error.strerror}") from error
        for entry in entries:
            path = below / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in _NEVER_WATCHED or self._is_ignored(path, is_folder, rules):
                continue
            if is_folder:
                self._look_below(path, rules, found)
            else:
                self._note(path, entry, found)

    def _note(self, path: PurePosixPath, entry: os.DirEntry[str], found: Snapshot) -> None:
        try:
            state = entry.stat()
        except OSError:
            return  # gone since the folder was read, or a link to nowhere
        found[str(path)] = (state.st_mtime_ns, state.st_size, state.st_ino)
        if len(found) > ARCHIVE_FILES.value:
            raise UsageFault(
                f"{self._folder} has more than {ARCHIVE_FILES.value} files: ignore what is not code in .gitignore"
            )

    def _rules_of(self, below: PurePosixPath, above: Rules) -> Rules:
        if below not in self._rules:
            own = rules_in(self._folder / below)
            self._rules[below] = [*above, (below, own)] if own else above
        return self._rules[below]

    def _is_ignored(self, path: PurePosixPath, is_folder: bool, rules: Rules) -> bool:
        if path not in self._verdicts:
            self._verdicts[path] = ignored(path, is_folder, rules)
        return self._verdicts[path]


def _ignore_files(snapshot: Snapshot) -> Snapshot:
    return {path: state for path, state in snapshot.items() if path.rpartition("/")[2] == IGNORE_FILE}
