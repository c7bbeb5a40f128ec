"""ArchiveInspector: whether an uploaded zip may become a function's code, and what is in it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from sless_builder.domain import paths, zip_format
from sless_builder.domain.entrypoint import require_module
from sless_builder.domain.zip_format import RawEntry, shown
from sless_builder.errors import ArchiveInvalid, ArchiveTooLarge

MAGIC_BYTES: Final = len(zip_format.LOCAL_MAGIC)
_BOMB_RATIO: Final = 100
"""Text packs to a tenth, now and then to a thirtieth; what unpacks to more than this was made to do so."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may have at most; sizes in bytes."""

    archive_bytes: int
    unpacked_bytes: int
    files: int
    path_bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file of an archive. `size` in bytes; `entry` and `start` say where the content is."""

    path: str
    size: int
    executable: bool
    entry: RawEntry
    start: int


@dataclass(frozen=True, slots=True)
class Archive:
    """What is in a zip: files by path, sorted; what desktop systems left there is `left_out`."""

    files: tuple[ArchiveFile, ...]
    left_out: tuple[str, ...]

    @property
    def unpacked_bytes(self) -> int:
        """The files' size, unpacked."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """The files' paths."""
        return frozenset(file.path for file in self.files)


def check_magic(head: bytes) -> None:
    """Judge an archive by its first MAGIC_BYTES. Raises ArchiveInvalid."""
    if head[:MAGIC_BYTES] == zip_format.EMPTY_MAGIC:
        raise ArchiveInvalid("code is an empty zip: it has no files")
    if head[:MAGIC_BYTES] != zip_format.LOCAL_MAGIC:
        begins = f"it begins with {head[:MAGIC_BYTES]!r}" if head else "it is empty"
        raise ArchiveInvalid(f"code is not a zip: {begins}")


class ArchiveInspector:
    """Judges zips; touches nothing but the file that it is given."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits

    def inspect(self, file: BinaryIO, entrypoint: str | None) -> Archive:
        """Everything about the archive, its content unpacked and counted; None: whatever is to run in it.

        Raises ArchiveInvalid, ArchiveTooLarge.
        """
        archive, all_files = self._contents(file)
        if entrypoint is not None:
            require_module(entrypoint, archive.paths)
        for item in all_files:
            for _ in read(file, item):
                pass
        return archive

    def contents(self, file: BinaryIO) -> Archive:
        """What is in an archive that has been inspected before: its directory alone is read."""
        return self._contents(file)[0]

    def _contents(self, file: BinaryIO) -> tuple[Archive, list[ArchiveFile]]:
        file.seek(0)
        check_magic(file.read(MAGIC_BYTES))
        directory = zip_format.read_directory(file)
        tree = _Tree(self._limits)
        for entry in zip_format.read_entries(file, directory, self._limits.path_bytes):
            tree.add(entry)
        files = [tree.placed(path, entry, file) for path, entry in tree.files.items()]
        _check_extents(files, directory.offset)
        kept = sorted((item for item in files if not paths.left_out(item.path)), key=lambda item: item.path)
        if not kept:
            raise ArchiveInvalid("code is a zip without files: there is nothing to run in it")
        return Archive(tuple(kept), tuple(item.path for item in files if paths.left_out(item.path))), files


def read(file: BinaryIO, item: ArchiveFile) -> Iterator[bytes]:
    """A file's content in chunks. Raises ArchiveInvalid when it is not what the directory says."""
    return zip_format.read_content(file, item.start, item.entry)


class _Tree:
    """The files and folders that an archive's entries make together."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self.files: dict[str, RawEntry] = {}
        self._limits = limits
        self._folders: set[str] = set()
        self._by_folded: dict[str, str] = {}
        self._size = 0
        self._packed_size = 0

    def add(self, entry: RawEntry) -> None:
        """Take one entry. Raises ArchiveInvalid, ArchiveTooLarge."""
        raw_path = paths.decoded(entry.name, entry.utf8)
        path = paths.check(raw_path, self._limits.path_bytes)
        _check_kind(entry, path)
        for folder in paths.folders_of(path):
            self._add_folder(folder)
        if raw_path.endswith("/") or stat.S_ISDIR(entry.mode):
            self._add_empty(entry, path)
        else:
            self._add_file(entry, path)

    def placed(self, path: str, entry: RawEntry, file: BinaryIO) -> ArchiveFile:
        """The file with the place of its content."""
        executable = bool(entry.mode & 0o111)
        return ArchiveFile(path, entry.size, executable, entry, zip_format.data_start(file, entry))

    def _add_empty(self, entry: RawEntry, path: str) -> None:
        if entry.size or entry.packed_size > 2:  # an empty deflate stream has two bytes
            raise ArchiveInvalid(f"code is a broken zip: the folder {path!r} has content")
        if path != ".":
            self._add_folder(path)

    def _add_folder(self, path: str) -> None:
        if path in self._folders:
            return
        if path in self.files:
            raise ArchiveInvalid(f"code has {path!r} twice: as a file and as a folder")
        self._claim(path)
        self._folders.add(path)
        self._check_count(len(self._folders), "folders")

    def _add_file(self, entry: RawEntry, path: str) -> None:
        if path in self.files:
            raise ArchiveInvalid(f"code has {path!r} twice")
        if path in self._folders:
            raise ArchiveInvalid(f"code has {path!r} twice: as a file and as a folder")
        self._claim(path)
        self.files[path] = entry
        self._check_count(len(self.files), "files")
        self._check_size(entry)

    def _claim(self, path: str) -> None:
        other = self._by_folded.setdefault(paths.folded(path), path)
        if other != path:
            raise ArchiveInvalid(f"code has {other!r} and {path!r}, which are one file on some systems: rename one")

    def _check_count(self, count: int, what: str) -> None:
        if count > self._limits.files:
            raise ArchiveInvalid(f"code has more than {self._limits.files:,} {what}, which is the most a zip may have")

    def _check_size(self, entry: RawEntry) -> None:
        self._size += entry.size
        self._packed_size += entry.packed_size
        if self._size <= self._limits.unpacked_bytes:
            return
        limit = f"at most {self._limits.unpacked_bytes:,} bytes are allowed"
        if self._size > _BOMB_RATIO * self._packed_size:
            raise ArchiveInvalid(f"code is a zip bomb: {shown(entry)} brings it to {self._size:,} bytes; {limit}")
        raise ArchiveTooLarge(f"code unpacks to {self._size:,} bytes or more; {limit}")


def _check_kind(entry: RawEntry, path: str) -> None:
    kind = stat.S_IFMT(entry.mode)
    if stat.S_ISLNK(entry.mode):
        raise ArchiveInvalid(f"code has a symbolic link: {path!r}; put the file itself into the zip")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveInvalid(f"code has a special file: {path!r}; only plain files and folders are allowed")
    if entry.encrypted:
        raise ArchiveInvalid(f"code has an encrypted file: {path!r}; make the zip without a password")
    if entry.method not in (zip_format.STORED, zip_format.DEFLATED):
        raise ArchiveInvalid(f"code has {path!r} packed by method {entry.method}; only stored and deflate (8) are read")
    if entry.method == zip_format.STORED and entry.size != entry.packed_size:
        raise ArchiveInvalid(f"code is a broken zip: {path!r} is stored, and yet has two sizes")


def _check_extents(files: list[ArchiveFile], directory_offset: int) -> None:
    """No byte may belong to two files: overlapping files are how 40 kB unpack to petabytes (Fifield, WOOT 2019)."""
    end, before = 0, "the archive's beginning"
    for item in sorted(files, key=lambda item: item.entry.header_offset):
        if item.entry.header_offset < end:
            raise ArchiveInvalid(f"code is a zip bomb: {item.path!r} lies on top of {before}")
        end, before = item.start + item.entry.packed_size, repr(item.path)
    if end > directory_offset:
        raise ArchiveInvalid(f"code is a broken zip: {before} reaches into the archive's directory")
