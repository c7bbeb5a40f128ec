"""Uploaded code on its way back: a zip into a folder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sless_cli.errors import CliError, UsageFault

_EXECUTABLE = 0o111


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Raises UsageFault for a folder that has something in it which might be lost."""
    if folder.exists() and not folder.is_dir():
        raise UsageFault(f"{folder} is no folder: give another with -o")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise UsageFault(f"{folder} is not empty: give another folder with -o, or --force to write over its files")


def unpack(archive: bytes, folder: Path) -> list[str]:
    """Write an archive's files into the folder; their paths. Raises CliError, and then writes nothing outside of it."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            files = [entry for entry in opened.infolist() if not entry.is_dir()]
            targets = [_inside(folder, entry.filename) for entry in files]
            for entry, target in zip(files, targets, strict=True):
                _write(target, opened.read(entry), executable=bool(entry.external_attr >> 16 & _EXECUTABLE))
    except zipfile.BadZipFile as error:
        raise CliError(f"the code came back as no zip that can be read ({error}): try again") from error
    except OSError as error:
        raise CliError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return [entry.filename for entry in files]


def _inside(folder: Path, name: str) -> Path:
    """Where a file goes. Raises CliError for a path that would leave the folder, also by a link that lies in it."""
    path = PurePosixPath(name)
    target = folder.joinpath(*path.parts)
    if path.is_absolute() or ".." in path.parts or any(parent.is_symlink() for parent in _between(folder, target)):
        raise CliError(f"the archive has the path {name!r}, which leads out of {folder}: nothing was written")
    return target


def _between(folder: Path, target: Path) -> Iterator[Path]:
    while target != folder:
        yield target
        target = target.parent


def _write(target: Path, content: bytes, *, executable: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    if executable:
        target.chmod(target.stat().st_mode | _EXECUTABLE)
