"""The code that `sless deploy` sends: a folder as a zip made in memory, or a zip as it is."""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sless_contracts.limits import ARCHIVE_BYTES, ARCHIVE_FILES, MIB, UNPACKED_BYTES

from sless_cli.errors import UsageFault
from sless_cli.ignoring import ALWAYS_OUT, Rules, ignored, rules_in

MANIFEST = "sless.toml"
_ZERO_TIME = (1980, 1, 1, 0, 0, 0)
_READ_LIMIT = 4 * MIB


@dataclass(frozen=True, slots=True)
class Source:
    """name      of the folder or of the zip without its ending
    archive   the zip to send
    files     path → content, of files in the top folder, for detection
    manifest  text of sless.toml; None when there is none
    """

    name: str
    archive: bytes
    files: Mapping[str, bytes]
    manifest: str | None


def read_source(path: Path) -> Source:
    """A folder or a zip. Raises UsageFault."""
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_zip(path)
    raise UsageFault(f"{path} is not there: give the folder with the code, or a zip of it")


def _from_folder(folder: Path) -> Source:
    found = dict(_measured(folder, _walk(folder)))
    # The manifest is for us, not for the handler: a change of configuration is then no change of code.
    manifest = found.pop(MANIFEST, None)
    if not found:
        raise UsageFault(f"{folder} has no files to deploy: put the handler's code there")
    files = {name: (_read(Path(entry.path)), _mode(entry)) for name, entry in found.items()}
    top = {name: data for name, (data, _) in files.items() if "/" not in name}
    text = None if manifest is None else _decoded(folder / MANIFEST, _read(Path(manifest.path)))
    archive = make_zip(files)
    _check_archive(folder, len(archive))
    return Source(name=folder.resolve().name, archive=archive, files=top, manifest=text)


def make_zip(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """The same files (path → content and mode) give the same bytes: sorted, without times and owners."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=_ZERO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, on which the mode below is read
            content, mode = files[name]
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, content)
    return target.getvalue()


def _walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All files that are not ignored, by their paths from the folder. Raises UsageFault for what no archive may hold."""
    yield from _walk_below(folder, PurePosixPath(), [])


def _walk_below(root: Path, below: PurePosixPath, rules: Rules) -> Iterator[tuple[str, os.DirEntry[str]]]:
    own = rules_in(root / below)
    rules = [*rules, (below, own)] if own else rules
    for entry in sorted(_entries(root / below), key=lambda found: found.name):
        path = below / entry.name
        if entry.name in ALWAYS_OUT or ignored(path, entry.is_dir(follow_symlinks=False), rules):
            continue
        if entry.is_symlink():
            raise UsageFault(
                f"{path} is a symbolic link, which no archive may hold: replace it by what it points to, or ignore it"
            )
        if entry.is_dir():
            yield from _walk_below(root, path, rules)
        elif entry.is_file():
            yield _in_archive(path), entry
        else:
            raise UsageFault(f"{path} is neither a file nor a folder: remove it, or name it in .gitignore")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError as error:
        raise UsageFault(f"cannot read the folder {folder}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageFault(f"cannot read {path}: {error.strerror}") from error


def _mode(entry: os.DirEntry[str]) -> int:
    """Readable by all, and executable where its owner may execute it; nothing else lasts in an archive."""
    return 0o755 if entry.stat().st_mode & stat.S_IXUSR else 0o644


def _in_archive(path: PurePosixPath) -> str:
    name = str(path)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageFault(f"the name of {name!r} is not UTF-8: rename it, or name it in .gitignore") from error
    return name


def _measured(folder: Path, found: Iterator[tuple[str, os.DirEntry[str]]]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The same files; raises UsageFault as soon as they are too many or too large, before any is read."""
    count = size = 0
    for name, entry in found:
        count, size = count + 1, size + entry.stat().st_size
        if count > ARCHIVE_FILES.value:
            raise UsageFault(
                f"{folder} has more than {ARCHIVE_FILES.value} files: ignore what is not code in .gitignore"
            )
        if size > UNPACKED_BYTES.value:
            limit = UNPACKED_BYTES.value // MIB
            raise UsageFault(f"{folder} has more than {limit} MiB of files: ignore what is not code in .gitignore")
        yield name, entry


def _check_archive(path: Path, size: int) -> None:
    if size > ARCHIVE_BYTES.value:
        limit = ARCHIVE_BYTES.value // MIB
        raise UsageFault(
            f"the zip of {path} has {size / MIB:.1f} MiB, at most {limit} are allowed: leave out what is not code"
        )


def _from_zip(path: Path) -> Source:
    _check_archive(path, path.stat().st_size)
    data = _read(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {
                entry.filename: _looked_at(archive, entry) for entry in archive.infolist() if "/" not in entry.filename
            }
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, ValueError, zlib.error) as error:
        raise UsageFault(
            f"{path} is no zip that can be read ({error}): give the folder with the code, or a zip of it"
        ) from error
    manifest = files.pop(MANIFEST, None)
    text = None if manifest is None else _decoded(path / MANIFEST, manifest)
    return Source(name=path.stem, archive=data, files=files, manifest=text)


def _looked_at(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of what detection reads; a file that claims to be huge is left to the platform's checks."""
    wanted = entry.filename.endswith(".py") or entry.filename == MANIFEST
    return archive.read(entry) if wanted and entry.file_size <= _READ_LIMIT else b""


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageFault(f"{path} is not UTF-8: {error}") from error
