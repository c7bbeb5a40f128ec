"""Which paths an archive may have: those that mean one file, inside the archive, on every machine."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from sless_builder.errors import ArchiveInvalid

MAX_SEGMENT_BYTES: Final = 255  # NAME_MAX of the file systems that layers are unpacked on
MAX_DEPTH: Final = 64

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_LEFT_OUT_FOLDERS: Final = ("__MACOSX", "__pycache__")
_LEFT_OUT_FILES: Final = (".DS_Store", "Thumbs.db", "desktop.ini")


def decoded(name: bytes, utf8: bool) -> str:
    """The path that a zip's raw name stands for.

    Names without the UTF-8 flag are code page 437 by the book; macOS and Info-ZIP write UTF-8 there all the same.
    Raises ArchiveInvalid for a flagged name that is not UTF-8.
    """
    try:
        return name.decode()
    except UnicodeDecodeError:
        if utf8:
            raise ArchiveInvalid(f"code has a path that is not the UTF-8 it says to be: {name[:100]!r}") from None
        return name.decode("cp437")


def check(path: str, max_bytes: int) -> str:
    """The path in its plain form: relative, parted by `/`, a folder's without its `/`. Raises ArchiveInvalid."""
    said = _shown(path)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise ArchiveInvalid(f"code has a path with control characters: {said}")
    if "\\" in path:
        raise ArchiveInvalid(f"code has a path with a backslash: {said}; make the zip with forward slashes")
    if path.startswith("/") or _DRIVE.match(path):
        raise ArchiveInvalid(f"code has an absolute path: {said}; paths must lie inside the archive")
    segments = path.removesuffix("/").removeprefix("./").split("/")
    if ".." in segments:
        raise ArchiveInvalid(f"code has a path that leaves the archive: {said}")
    if segments != ["."] and not all(segment.strip(". ") for segment in segments):
        raise ArchiveInvalid(f"code has a path with an empty part: {said}")
    _check_lengths(path, segments, max_bytes)
    return "/".join(segments)


def folders_of(path: str) -> list[str]:
    """The folders that a path lies in, the outermost first: `a/b/c.py` → `a`, `a/b`."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def folded(path: str) -> str:
    """The same for two paths that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def left_out(path: str) -> bool:
    """Whether a path is what a desktop system or an interpreter left behind: no part of anybody's code."""
    segments = path.split("/")
    return segments[-1] in _LEFT_OUT_FILES or any(segment in _LEFT_OUT_FOLDERS for segment in segments)


def _check_lengths(path: str, segments: list[str], max_bytes: int) -> None:
    if len(path.encode()) > max_bytes:
        raise ArchiveInvalid(f"code has a path of {len(path.encode())} bytes; at most {max_bytes} are allowed")
    if len(segments) > MAX_DEPTH:
        raise ArchiveInvalid(
            f"code has a path of {len(segments)} parts; at most {MAX_DEPTH} are allowed: {_shown(path)}"
        )
    if any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in segments):
        raise ArchiveInvalid(f"code has a name of more than {MAX_SEGMENT_BYTES} bytes: {_shown(path)}")


def _shown(path: str) -> str:
    return repr(path if len(path) <= 100 else path[:100] + "…")
