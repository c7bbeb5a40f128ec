"""Where control groups may be made on this machine: looked for, and tried out."""

from __future__ import annotations

import contextlib
import errno
import os

from .cgroups import CONTROLLERS, OURS, Cgroups, enabling, read, removed, write

_PLATFORM = "sless-platform"
"""Where version 2 wants controllers for groups below, their parent may hold no process itself: the platform's go here."""

_MOVE_ROUNDS = 10


def find(run_folder: str, supervisor: int) -> tuple[Cgroups | None, str]:
    """The groups for this run folder, tried out; or None and why there are none.

    `supervisor`: the process that the platform's all descend from.
    """
    mounts, own = _mounts(), _own_groups()
    if "memory" in own and "pids" in own:
        version, candidates = 1, [_v1_parents(mounts, own)]
    else:
        version, candidates = 2, [(parent,) for parent in _v2_parents(mounts, own)]
    reason = "there are no control groups here"
    for parents in candidates:
        try:
            if version == 2:
                prepare_v2(parents[0], supervisor, CONTROLLERS)
            groups = Cgroups(version, parents, escaped(run_folder))
            for parent in parents:
                _remove_forsaken(f"{parent}/{OURS}")
            _try_out(groups)
        except OSError as error:
            where = error.filename or parents[0]
            reason = f"control groups may not be written ({where}: {error.strerror})"
        else:
            return groups, ""
    return None, reason


def escaped(path: str) -> str:
    """A path as one name, as systemd.unit(5) writes it."""
    return path.strip("/").replace("-", "\\x2d").replace("/", "-")


def _unescaped(name: str) -> str:
    return "/" + name.replace("-", "/").replace("\\x2d", "-")


def _remove_forsaken(folder: str) -> None:
    """Take away the groups of run folders that are not there any more, and so of platforms that nobody will start again."""
    for entry in os.scandir(folder):
        if entry.is_dir() and not os.path.isdir(_unescaped(entry.name)):
            for below in os.scandir(entry.path):
                if below.is_dir():
                    removed(below.path)
            removed(entry.path)


def own_memory_groups() -> list[str]:
    """The folders of the groups whose limits on memory this process is under, as far as they are to be seen."""
    mounts, own = _mounts(), _own_groups()
    controller = "memory" if "memory" in own else ""
    mount = mounts.get(controller)
    if mount is None or controller not in own:
        return []
    folder, found = _path(mount, own[controller]), []
    while folder.startswith(mount[1]) and os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def prepare_v2(parent: str, supervisor: int, controllers: tuple[str, ...]) -> None:
    """Have the controllers passed on to groups below `parent`. Raises OSError.

    Where processes stand in the way they are moved to a group of their own, if all are the platform's or the group was given to
    whoever runs it for such purposes.
    """
    offered = read(f"{parent}/cgroup.controllers").split()
    missing = [controller for controller in controllers if controller not in offered]
    if missing:
        raise OSError(errno.ENOENT, f"the controller {missing[0]} is not available", parent)
    for _ in range(_MOVE_ROUNDS):  # The platform may be starting further processes meanwhile.
        try:
            write(f"{parent}/cgroup.subtree_control", enabling(controllers))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return
        _move_processes(parent, supervisor)
    raise OSError(errno.EBUSY, "it keeps getting new processes", parent)


def _move_processes(parent: str, supervisor: int) -> None:
    present = [int(pid) for pid in read(f"{parent}/cgroup.procs").split()]
    if not _is_delegated(parent) and not all(_descends(pid, supervisor) for pid in present):
        raise OSError(errno.EBUSY, "others' processes are in the same group", parent)
    own = f"{parent}/{_PLATFORM}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(own)
    for pid in present:
        with contextlib.suppress(ProcessLookupError):
            write(f"{own}/cgroup.procs", str(pid))


def _try_out(groups: Cgroups) -> None:
    """A child joins a group, as an instance would. Raises OSError."""
    group = groups.create("probe", memory_bytes=64 << 20, processes=8)
    try:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                group.join()
                code = 0
            except OSError as error:
                code = error.errno or 1
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise OSError(code, os.strerror(abs(code)), "cgroup.procs")
    finally:
        groups.remove(group)


def _v1_parents(mounts: dict[str, tuple[str, str]], own: dict[str, str]) -> tuple[str, ...]:
    return tuple(_path(mounts.get(controller), own[controller]) for controller in CONTROLLERS)


def _v2_parents(mounts: dict[str, tuple[str, str]], own: dict[str, str]) -> list[str]:
    """Where groups might be made: in the platform's own, in the one above if that was delegated, as root at the top."""
    mount = mounts.get("")
    if mount is None or "" not in own:
        return []
    present = _path(mount, own[""])
    above = os.path.dirname(present)
    if os.path.basename(present) == _PLATFORM:  # This platform's processes were moved there before.
        return [above]
    found = [present]
    if present != mount[1] and _is_delegated(above):
        found.append(above)
    if os.geteuid() == 0 and mount[1] not in found:
        found.append(mount[1])
    return found


def _path(mount: tuple[str, str] | None, group: str) -> str:
    """The folder of a group: `mount` is (the group that is mounted, where)."""
    if mount is None:
        return "/nonexistent"
    root, point = mount
    inside = group.removeprefix(root) if root != "/" else group
    return os.path.normpath(f"{point}/{inside}")


def _mounts() -> dict[str, tuple[str, str]]:
    """(root, mount point) of each controller's hierarchy; version 2's under "" (proc_pid_mountinfo(5))."""
    found: dict[str, tuple[str, str]] = {}
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] == "cgroup2":
            found.setdefault("", (fields[3], fields[4]))
        elif kind[0] == "cgroup":
            for option in kind[2].split(","):
                found.setdefault(option, (fields[3], fields[4]))
    return found


def _own_groups() -> dict[str, str]:
    """The group that this process is in, by controller; version 2's under "" (cgroups(7))."""
    found = {}
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), group))
    return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return True  # It has ended: no reason to leave the others.
    return pid == ancestor


def _is_delegated(folder: str) -> bool:
    """Whether systemd marked the group as given away to its unit (Delegate=yes)."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False
