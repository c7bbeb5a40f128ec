"""Control groups: exact limits on the memory and the processes of an instance as a whole.

One group an instance: PARENT/sless/RUN/INSTANCE, where PARENT is the group that the platform runs in, or another that it may write to,
and RUN names the run folder. What a launcher that was killed has left there is cleared by the next one with the same run folder.

Sources: the kernel's admin-guide/cgroup-v1/memory.rst, cgroup-v1/pids.rst and cgroup-v2.rst; for delegation systemd's CGROUP_DELEGATION.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

CONTROLLERS = ("memory", "pids")
OURS = "sless"
"""The folder of all platforms' groups."""

JOIN = "0"
"""What a process writes to a group's list of processes for itself."""

UNLIMITED = 1 << 60
_CLEAR_SEC = 2.0


class Group:
    """An instance's group: one folder in each hierarchy."""

    __slots__ = ("_folders", "_version")

    def __init__(self, version: int, folders: tuple[str, ...]) -> None:
        self._version = version
        self._folders = folders

    def join(self) -> None:
        """Put this process into it, and so all that it forks from now on. Raises OSError."""
        for folder in self._folders:
            write(f"{folder}/cgroup.procs", JOIN)

    def entrances(self) -> list[int]:
        """Descriptors by which a process that does not see the folders joins: it writes `JOIN` to each. Raises OSError."""
        opened: list[int] = []
        try:
            for folder in self._folders:
                opened.append(os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """Lower its limits. Raises OSError."""
        memory, pids = self._folders[0], self._folders[-1]
        if self._version == 2:
            write(f"{memory}/memory.max", str(memory_bytes))
            _write_if_there(f"{memory}/memory.swap.max", "0")
        else:
            write(f"{memory}/memory.limit_in_bytes", str(memory_bytes))
            _write_if_there(f"{memory}/memory.memsw.limit_in_bytes", str(memory_bytes))
        write(f"{pids}/pids.max", str(processes))

    def used(self) -> int:
        """Bytes that its processes hold."""
        return used_memory(self._folders[0])

    def ran_out(self) -> bool:
        """Whether the kernel ended a process of it because its memory was used up."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        return _counted(f"{self._folders[0]}/{name}", "oom_kill") > 0

    def remove(self) -> bool:
        """End what is left in it, and take it away; False when that has to be tried again."""
        for folder in self._folders:
            _end_all(folder)
        return all(removed(folder) for folder in self._folders)


class Cgroups:
    """The groups of one run folder.

    version  1 or 2.
    """

    def __init__(self, version: int, parents: tuple[str, ...], run_name: str) -> None:
        """`parents`: the group of the platform in the memory hierarchy and in that of processes; one folder where they are one.

        Raises OSError where no group can be made below them.
        """
        self.version = version
        self._folders = tuple(f"{parent}/{OURS}/{run_name}" for parent in dict.fromkeys(parents))
        self._late: list[Group] = []
        for folder in self._folders:
            os.makedirs(folder, exist_ok=True)
            if version == 2:
                for above in (os.path.dirname(folder), folder):
                    write(f"{above}/cgroup.subtree_control", enabling(CONTROLLERS))
            else:
                _count_below(folder)
        self._clear()

    def create(self, name: str, *, memory_bytes: int, processes: int) -> Group:
        """An empty group with these limits; swapped memory counts. Raises OSError, and leaves nothing then."""
        self.remove_late()
        folders = tuple(f"{folder}/{name}" for folder in self._folders)
        group = Group(self.version, folders)
        try:
            for folder in folders:
                os.mkdir(folder)
            group.limit(memory_bytes=memory_bytes, processes=processes)
        except OSError:
            group.remove()
            raise
        return group

    def remove(self, group: Group) -> None:
        """Take an instance's group away, now or as soon as its last process is gone."""
        if not group.remove():
            self._late.append(group)

    def remove_late(self) -> None:
        """Take away what could not be before."""
        self._late = [group for group in self._late if not group.remove()]

    def close(self) -> None:
        """Take everything away that this made."""
        self._clear()
        for folder in self._folders:
            removed(folder)
            removed(os.path.dirname(folder))  # Unless another platform's are there.

    def _clear(self) -> None:
        """Remove the groups of instances that are none any more; their processes are dying with their launcher, or are ended."""
        until = time.monotonic() + _CLEAR_SEC
        left = [entry.path for folder in self._folders for entry in os.scandir(folder) if entry.is_dir()]
        while left and time.monotonic() < until:
            for folder in left:
                _end_all(folder)
            left = [folder for folder in left if not removed(folder)]
            if left:
                time.sleep(0.01)


def used_memory(folder: str) -> int:
    """Bytes that a group and those below it hold, without files that the kernel can drop; 0 where that cannot be told."""
    for name in ("memory.current", "memory.usage_in_bytes"):
        with contextlib.suppress(OSError):
            droppable = _counted(f"{folder}/memory.stat", "total_inactive_file")  # version 1, with the groups below
            droppable = droppable or _counted(f"{folder}/memory.stat", "inactive_file")
            return max(0, int(read(f"{folder}/{name}")) - droppable)
    return 0


def memory_limit(folder: str) -> int | None:
    """Of a group, in bytes; None without one."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError):
            text = read(f"{folder}/{name}").strip()
            return None if text == "max" or int(text) >= UNLIMITED else int(text)
    return None


def enabling(controllers: tuple[str, ...]) -> str:
    """What is written to have these passed on."""
    return " ".join(f"+{controller}" for controller in controllers)


def _count_below(folder: str) -> None:
    """Old kernels count a group's memory in the groups above only when told so, before there is one below."""
    for one in (os.path.dirname(folder), folder):
        with contextlib.suppress(OSError):
            write(f"{one}/memory.use_hierarchy", "1")


def _end_all(folder: str) -> None:
    try:
        pids = read(f"{folder}/cgroup.procs").split()
    except OSError:
        return
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)


def removed(folder: str) -> bool:
    """Whether the group is away; not while it holds a process or another group."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _counted(path: str, name: str) -> int:
    try:
        lines = read(path).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)


def read(path: str) -> str:
    """What a file of the kernel says. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while chunk := os.read(descriptor, 65536):
            parts.append(chunk)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(descriptor)


def write(path: str, text: str) -> None:
    """Tell a file of the kernel something, at once. Raises OSError that names the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def _write_if_there(path: str, text: str) -> None:
    """A limit on swap, where swap is counted."""
    with contextlib.suppress(FileNotFoundError):
        write(path, text)
