"""Where no control group may be written: looks about once a second at what instances use, and says which use too much.

An instance's memory is what its processes alone have, and their part of what they share (PSS: proc_pid_smaps(5)), and files that lie
in memory: in its /tmp and /dev/shm, and those without a name (memfd_create(2)). Between two looks it may use more:
hence "approximate".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

LOOK_SEC = 1.0
MEMORY = "memory"
DISK = "disk"

MAX_FILES = 16_384
"""Files of an instance in a private folder on disk; in a /tmp in memory the file system itself counts them."""

_KB = 1024
_BLOCK = 512
_MEMORY_MOUNTS = ("/tmp", "/dev/shm")  # noqa: S108 - the instance's own
_FILES_IN_MEMORY = (b"/memfd:", b"/tmp/", b"/dev/shm/")
_RESIDENT = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_PARTS = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class Bounds:
    """What an instance may use.

    memory_bytes  of all its processes together; None: a control group keeps it to that.
    mounts        whether its /tmp and /dev/shm are file systems of its own, in memory.
    folder        its private folder on disk, None where it has none; at most `disk_bytes` in it.
    """

    __slots__ = ("disk_bytes", "folder", "memory_bytes", "mounts")

    def __init__(
        self, *, memory_bytes: int | None, mounts: bool, folder: str | None = None, disk_bytes: int = 0
    ) -> None:
        self.memory_bytes = memory_bytes
        self.mounts = mounts
        self.folder = folder
        self.disk_bytes = disk_bytes


def families(roots: Iterable[int], proc: str = "/proc") -> dict[int, list[int]]:
    """The processes below each of `roots`, by one look at all processes."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parent = int(_read(f"{proc}/{name}/stat").rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = {}
    for root in roots:
        family, todo = [], [root]
        while todo:
            below = children.get(todo.pop(), [])
            family += below
            todo += below
        found[root] = family
    return found


def resident(processes: list[int], proc: str = "/proc") -> int:
    """Bytes that these processes hold, as if they shared none: cheap to ask, and never too little."""
    return sum(_resident(f"{proc}/{pid}") for pid in processes)


def exceeded(processes: list[int], bounds: Bounds, proc: str = "/proc") -> str | None:
    """MEMORY or DISK when these processes of one instance use more than they may, else None."""
    folders = [f"{proc}/{pid}" for pid in processes]
    if bounds.folder is not None and _disk(bounds.folder, folders, bounds.disk_bytes) > bounds.disk_bytes:
        return DISK
    if bounds.memory_bytes is None:
        return None
    files = _files_in_memory(folders, mounts=bounds.mounts)
    # At first as if nothing were shared, which is cheap to ask; who seems to use too much is looked at closely.
    if sum(_resident(folder) for folder in folders) + files <= bounds.memory_bytes:
        return None
    return MEMORY if sum(_proportional(folder) for folder in folders) + files > bounds.memory_bytes else None


def _resident(folder: str) -> int:
    """Bytes of the process that have no file on disk, shared or not (proc_pid_status(5))."""
    return _sum(_lines(f"{folder}/status"), _RESIDENT)


def _sum(lines: list[bytes], names: tuple[bytes, ...]) -> int:
    return sum(int(line.split()[1]) * _KB for line in lines if line.startswith(names))


def _proportional(folder: str) -> int:
    """Its part of the bytes that are in no file. A process whose memory may not be looked at counts as if it shared nothing."""
    try:
        rolled, mappings = _read(f"{folder}/smaps_rollup"), _read(f"{folder}/smaps")
    except PermissionError:
        return _resident(folder)
    except OSError:
        return 0
    return _sum(rolled.splitlines(), _PARTS) - _in_files(mappings.splitlines())


def _in_files(lines: list[bytes]) -> int:
    """Of mappings of files in memory, which are counted as files: their part, without what was written to a private copy."""
    total, of_file, part = 0, False, 0
    for line in lines:
        words = line.split(maxsplit=5)
        if not words[0].endswith(b":"):
            of_file = len(words) > 5 and words[5].startswith(_FILES_IN_MEMORY)
        elif of_file and words[0] == b"Pss:":
            part = int(words[1])
        elif of_file and words[0] == b"Anonymous:":
            total += max(0, part - int(words[1])) * _KB
    return total


def _files_in_memory(folders: list[str], *, mounts: bool) -> int:
    total = sum(_unnamed(folders, "/memfd:").values())
    if not mounts:
        return total
    for folder in folders:
        used = [_used(f"{folder}/root{mount}") for mount in _MEMORY_MOUNTS]
        if None not in used:
            return total + sum(size or 0 for size in used)
    return total


def _used(mount: str) -> int | None:
    try:
        found = os.statvfs(mount)
    except OSError:
        return None
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _unnamed(folders: list[str], beginning: str) -> dict[tuple[int, int], int]:
    """Bytes of each file that these processes have open and that is (or was) at a path with this beginning, once for each file."""
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"{folder}/fd"):
                link = f"{folder}/fd/{number}"
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if target.startswith(beginning) and target.endswith("(deleted)"):
                        stat = os.stat(link)
                        found[stat.st_dev, stat.st_ino] = stat.st_blocks * _BLOCK
    return found


def _disk(folder: str, processes: list[str], enough: int) -> int:
    """Bytes in the folder, and in files of it that were removed but are open still. Counts no further than it must."""
    total = sum(_unnamed(processes, f"{folder}/").values())
    files, todo = 0, [folder]
    while todo and total <= enough:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                files += 1
                if files > MAX_FILES:
                    return enough + 1
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
    return total


def _lines(path: str) -> list[bytes]:
    try:
        return _read(path).splitlines()
    except OSError:
        return []


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while chunk := os.read(descriptor, 1 << 16):
            parts.append(chunk)
        return b"".join(parts)
    finally:
        os.close(descriptor)
