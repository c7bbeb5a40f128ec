"""What an installer left in a folder, as a layer's files. Code that nobody trusts may have written there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sless_builder.domain.build import Problem, UserError
from sless_builder.domain.layers import LayerFile

_MOST_FILES: Final = 100_000
_CHUNK_BYTES: Final = 1 << 20
_UVS_OWN: Final = (".lock", "uv_build.json", "uv_cache.json")
"""What the installer notes for itself: times, which differ from run to run."""


def installed_files(folder: Path, most_bytes: int) -> list[LayerFile]:
    """The regular files below a folder; links and whatever else is there is left out, and never followed.

    Raises UserError when it is more than a layer may have.
    """
    files: list[LayerFile] = []
    size = 0
    for path, about in _regular(folder):
        size += about.st_size
        if size > most_bytes:
            raise _too_much(f"unpack to more than {most_bytes >> 20:,} MiB")
        if len(files) >= _MOST_FILES:
            raise _too_much(f"have more than {_MOST_FILES:,} files")
        files.append(_file(folder, path, about))
    return files


def _regular(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and name not in _UVS_OWN and _writable_name(path):
                yield path, about


def _writable_name(path: Path) -> bool:
    return str(path).isprintable()


def _file(folder: Path, path: Path, about: os.stat_result) -> LayerFile:
    executable = bool(about.st_mode & 0o100)
    return LayerFile(path.relative_to(folder).as_posix(), about.st_size, executable, lambda: _content(path))


def _content(path: Path) -> Iterator[bytes]:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _too_much(what: str) -> UserError:
    return UserError(Problem("DISK_LIMIT", f"the dependencies {what}, the most that they may"))
