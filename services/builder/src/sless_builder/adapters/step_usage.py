"""What a step takes while it runs, for what no limit of the kernel bounds."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_BLOCK: Final = 512
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PRIVATE: Final = ("tmp", "dev/shm")


def tree(root: int) -> list[int]:
    """A process and all that came of it."""
    children = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                # The name in brackets may hold anything; the parent is the second field after it.
                parent = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
                children[parent].append(int(name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def threads(pids: Sequence[int]) -> int:
    """How many threads processes have together."""
    return sum(_threads(pid) for pid in pids)


def threads_of(uid: int) -> int:
    """How many threads a user has on this machine."""
    pids = []
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if os.stat(f"/proc/{int(name)}").st_uid == uid:
                pids.append(int(name))
    return threads(pids)


def memory(pids: Sequence[int], folders: Sequence[Path]) -> int:
    """Bytes of memory that processes hold, with files without a name that are neither below `folders` nor in memory_files."""
    elsewhere = _devices([*folders, *(place for pid in pids[:3] for place in _places(pid))])
    nameless = {(found.st_dev, found.st_ino): found.st_blocks * _BLOCK for found in _nameless(pids)}
    return sum(map(_memory, pids)) + sum(size for (device, _), size in nameless.items() if device not in elsewhere)


def memory_files(init: int) -> int:
    """Bytes in the file systems that are memory, and a sandbox's own; `init`: its first process."""
    return sum(map(_filled, _places(init)))


def _places(pid: int) -> list[str]:
    return [f"/proc/{pid}/root/{name}" for name in _PRIVATE]


def disk(folders: Sequence[Path], pids: Sequence[int]) -> int:
    """Bytes on disk: what is in folders, and what processes hold open there that has no name any more."""
    devices = _devices(folders)
    files = {
        (found.st_dev, found.st_ino): found.st_blocks * _BLOCK
        for found in (*_in_folders(folders), *_nameless(pids))
        if found.st_dev in devices
    }
    return sum(files.values())


def _devices(paths: Sequence[Path | str]) -> set[int]:
    found = set()
    for path in paths:
        with suppress(OSError):
            found.add(os.stat(path).st_dev)
    return found


def _in_folders(folders: Sequence[Path]) -> Iterator[os.stat_result]:
    waiting = [str(folder) for folder in folders]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)


def _nameless(pids: Sequence[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    found = os.stat(f"/proc/{pid}/fd/{name}")
                    if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                        yield found


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _memory(pid: int) -> int:
    """Proportional where it may be read, so that pages that a fork shares count once; else resident."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        with suppress(OSError, IndexError):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _filled(path: str) -> int:
    """How much a file system of its own holds."""
    with suppress(OSError):
        found = os.statvfs(path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0
