"""Read-only views of parts of the machine, for roots of instances."""

from __future__ import annotations

import errno
import os

from . import syscalls as sys
from .syscalls import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT

SEALED = MS_RDONLY | MS_NOSUID | MS_NODEV

# statvfs(3) flags of a mount and the mount(2) flags that keep them.
_KEEP = (
    (os.ST_RDONLY, MS_RDONLY),
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, sys.MS_NOEXEC),
    (os.ST_NOATIME, sys.MS_NOATIME),
    (os.ST_NODIRATIME, sys.MS_NODIRATIME),
    (os.ST_RELATIME, sys.MS_RELATIME),
)


def expose(source: str, target: str, flags: int = SEALED) -> None:
    """Show `source` (a folder with all that is mounted below it, or a file) at `target`, with `flags`."""
    sys.mount(source, target, None, MS_BIND | MS_REC)
    seal(target, flags)


def seal(target: str, flags: int) -> None:
    """Add `flags` to the mount at `target` and to all below it."""
    try:
        sys.mount_setattr(target, flags)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        for path in _mounts_below(target):
            _remount(path, flags)


def _remount(target: str, flags: int) -> None:
    present = os.statvfs(target).f_flag
    kept = sum(flag for shown, flag in _KEEP if present & shown and not flags & flag)
    sys.mount(None, target, None, MS_REMOUNT | MS_BIND | flags | kept)


def _mounts_below(target: str) -> list[str]:
    """Mount points at and below `target` (proc_pid_mountinfo(5), field 5), the outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        points = [_unescape(line.split(" ")[4]) for line in table]
    inside = target.rstrip("/") + "/"
    return sorted({point for point in points if point == target or point.startswith(inside)}, key=len)


def _unescape(path: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(octal, character)
    return path
