"""What a process does to itself on its way from a fork of the launcher to pid 1 of an instance.

Each level is a list of named steps; the name of the one that fails stands in the answer to `start`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial

from . import seccomp
from . import syscalls as sys
from .confinement import PROCESSES, Confinement, Grounds
from .mounts import SEALED, expose, seal
from .protocol import StartSpec
from .rootfs import HOSTNAME, TEMPORARY
from .syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID

Step = tuple[str, Callable[[], object]]

NAMESPACES = sys.CLONE_NEWNS | sys.CLONE_NEWPID | sys.CLONE_NEWIPC | sys.CLONE_NEWUTS
"""What the process is forked into at level `namespaces`; the user namespace follows once the root stands."""

OPEN_FILES = 1024
FILE_BYTES = 512 << 20
"""Longest file; where its /tmp is a folder on disk an instance may write no more than that holds either."""

OOM_SCORE = 500
_MIB = 1 << 20
_TMP_INODES = 16_384
_SHM_MB = 64
_SHM_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC
LAUNCHER_TARGET = "/opt/sless/launcher"
"""Where a zygote sees this program; its blanks do no more."""


def enter_own_mounts() -> None:
    """Give the launcher a mount namespace of its own, by a user namespace when it is an ordinary user.

    Instances then begin with the rights that their set-up needs, the machine never shows one of their mounts, and all of
    them are gone with the launcher. Raises OSError.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        sys.unshare(sys.CLONE_NEWNS)
    else:
        sys.unshare(sys.CLONE_NEWUSER | sys.CLONE_NEWNS)
        _map_own_ids(uid, gid)
    sys.mount(None, "/", None, sys.MS_SLAVE | sys.MS_REC)


def steps(confinement: Confinement, spec: StartSpec, grounds: Grounds) -> list[Step]:
    """All that happens before the instance's program is forked."""
    user = confinement.user_of(spec)
    group, root = grounds.group, grounds.root
    listed: list[Step] = [] if group is None else [("enter the control group", group.join)]
    listed.append(("leave the launcher's keyring", _leave_keyring))
    if confinement.namespaces:
        listed += _namespace_steps(spec, root or "", os.geteuid() if user is None else user)
    listed.append(("let the kernel end this process first when memory runs out", _offer_to_oom_killer))
    return listed + confining_steps(confinement, user)


def blank_steps() -> list[Step]:
    """What a blank (blank.py) does ahead, in the root that its zygote has: all that no spec is needed for."""
    plain = MS_NOSUID | MS_NODEV
    return [
        ("leave the launcher's keyring", _leave_keyring),
        ("name the host", lambda: socket.sethostname(HOSTNAME)),
        ("mount /proc", _replace_proc),
        ("mount /tmp", lambda: sys.mount("tmp", TEMPORARY, "tmpfs", plain, "mode=1777")),
        ("mount /dev/shm", lambda: sys.mount("shm", "/dev/shm", "tmpfs", plain | MS_NOEXEC, "mode=1777")),  # noqa: S108
        ("mount /run", lambda: _mount_accounts("/run")),
        ("hide the launcher", lambda: sys.umount2(LAUNCHER_TARGET, sys.MNT_DETACH)),
        ("let the kernel end this process first when memory runs out", _offer_to_oom_killer),
    ]


def assigned_steps(confinement: Confinement, spec: StartSpec, trees: Sequence[tuple[int, str]]) -> list[Step]:
    """What the program's process of a blank does once it knows its spec. `trees`: the layers (open_tree) and their places."""
    user = confinement.user_of(spec)
    tmp, shm = _sizes(spec)
    listed: list[Step] = [(f"show {target}", partial(sys.move_mount, tree, target)) for tree, target in trees]
    listed += [
        ("size /tmp", lambda: sys.mount(None, TEMPORARY, None, sys.MS_REMOUNT | MS_NOSUID | MS_NODEV, tmp)),
        ("size /dev/shm", lambda: sys.mount(None, "/dev/shm", None, sys.MS_REMOUNT | _SHM_FLAGS, shm)),  # noqa: S108
        ("write /etc/passwd", lambda: _write_accounts("/run", os.geteuid() if user is None else user)),
    ]
    return listed + confining_steps(confinement, user)


def confining_steps(confinement: Confinement, user: int | None) -> list[Step]:
    """The last ones: they take from this process what the ones before needed."""
    listed: list[Step] = []
    if user is not None and not confinement.user_namespaces:
        listed.append(("drop the bounding set", sys.drop_bounding_set))
    if user is not None:
        listed.append((f"become user {user}", lambda: _become(user)))
    if confinement.user_namespaces:
        listed.append(("enter a user namespace", _enter_user_namespace))
        listed.append(("drop the bounding set", sys.drop_bounding_set))  # A new user namespace begins with a full one.
    return listed + _last_steps(confinement, keep=None)


def reaper_steps(confinement: Confinement) -> list[Step]:
    """What the first process of a blank does ahead, whoever the instance will be for. As root it becomes a user of its own, which
    only has the right to send signals, to those whom it sees: the instance's processes."""
    if confinement.tenant_base is None:
        return _last_steps(confinement, keep=None)
    user = confinement.tenant_base - 1
    return [
        ("drop the bounding set", sys.drop_bounding_set),
        ("keep capabilities", lambda: sys.prctl(sys.PR_SET_KEEPCAPS, 1)),
        (f"become user {user}", lambda: _become(user)),
        *_last_steps(confinement, keep=sys.CAP_KILL),
    ]


def _last_steps(confinement: Confinement, *, keep: int | None) -> list[Step]:
    listed: list[Step] = [
        ("refuse new privileges", lambda: sys.prctl(sys.PR_SET_NO_NEW_PRIVS, 1)),
        ("drop all capabilities", lambda: sys.drop_capabilities(keep=keep)),
        ("close this process's memory to others", lambda: sys.prctl(sys.PR_SET_DUMPABLE, 0)),
    ]
    system_calls = confinement.system_calls
    if system_calls is not None:
        # The last: it refuses what the steps above do.
        listed.append(("filter system calls", lambda: seccomp.install(system_calls)))
    return listed


def take_root(root: str, shown: Sequence[tuple[str, str]]) -> None:
    """Show folders of the machine at places of the prepared root, and make it this process's root, /proc with it.

    For a process with a mount namespace of its own. Raises OSError.
    """
    for source, target in shown:
        _shower(source, root + target)()
    sys.mount("/proc", f"{root}/proc", None, sys.MS_BIND | sys.MS_REC)
    _change_root(root)


def limit_resources(spec: StartSpec, *, count_processes: bool, scratch: str | None = None) -> None:
    """Set the program's limits (setrlimit(2)). `scratch`: its temporary folder on disk, where it has one.

    RLIMIT_DATA is the approximate memory limit: unlike RLIMIT_AS it counts only memory that a process may write to and shares
    with nobody, neither files that it maps nor address space that it merely reserves. It still counts what is never touched, thread
    stacks above all; `allowance_mb` stands for those. Past it an allocation fails, which a program can report.
    """
    data = (spec.memory_mb + spec.allowance_mb) * _MIB
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, FILE_BYTES if scratch is None else min(FILE_BYTES, spec.memory_mb * _MIB)),
        (resource.RLIMIT_DATA, data),
    ]
    if count_processes:
        limits.append((resource.RLIMIT_NPROC, PROCESSES))
    for kind, wanted in limits:
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send `number` when the parent ends. A change of user forgets it, so this comes after."""
    sys.prctl(sys.PR_SET_PDEATHSIG, number)


def _sizes(spec: StartSpec) -> tuple[str, str]:
    """Mount options of /tmp and /dev/shm."""
    memory = spec.memory_mb
    return f"size={memory}m,nr_inodes={_TMP_INODES}", f"size={min(memory, _SHM_MB)}m,nr_inodes={_TMP_INODES}"


def _namespace_steps(spec: StartSpec, root: str, user: int) -> list[Step]:
    tmp, shm = (f"mode=1777,{size}" for size in _sizes(spec))
    plain = MS_NOSUID | MS_NODEV
    return [
        ("name the host", lambda: socket.sethostname(HOSTNAME)),
        ("mount /proc", lambda: sys.mount("proc", f"{root}/proc", "proc", plain | MS_NOEXEC)),
        ("mount /tmp", lambda: sys.mount("tmp", f"{root}/tmp", "tmpfs", plain, tmp)),  # noqa: S108
        ("mount /dev/shm", lambda: sys.mount("shm", f"{root}/dev/shm", "tmpfs", _SHM_FLAGS, shm)),  # noqa: S108
        ("mount /run", lambda: _mount_accounts(f"{root}/run")),
        ("write /etc/passwd", lambda: _write_accounts(f"{root}/run", user)),
        *(
            (f"show {source}", _shower(source, root + source))
            for source in spec.prefixes
            if source.startswith(TEMPORARY)
        ),
        *((f"show {source} at {target}", _shower(source, root + target)) for source, target in spec.layers),
        ("change the root", lambda: _change_root(root)),
    ]


def _shower(source: str, target: str) -> Callable[[], object]:
    def show() -> None:
        os.makedirs(target, exist_ok=True)
        expose(source, target)

    return show


def _mount_accounts(folder: str) -> None:
    sys.mount("run", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k,nr_inodes=16")


def _write_accounts(folder: str, user: int) -> None:
    for name, line in (("passwd", f"function:x:{user}:{user}::/tmp:/bin/sh\n"), ("group", f"function:x:{user}:\n")):
        with open(f"{folder}/{name}", "xb") as file:
            file.write(line.encode())
    seal(folder, SEALED)


def _replace_proc() -> None:
    """The zygote's /proc, of the launcher's processes, gives way to one of this pid namespace."""
    # The kernel lets an ordinary user mount a /proc only where another is to be seen, so the old one goes last.
    sys.mount("proc", "/run", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    sys.umount2("/proc", sys.MNT_DETACH)
    sys.mount("/run", "/proc", None, sys.MS_MOVE)


def _change_root(root: str) -> None:
    # pivot_root(2), "pivot_root(".", ".")": the old root ends up on top of the new one and is taken off.
    os.chdir(root)
    sys.pivot_root(".", ".")
    sys.umount2(".", sys.MNT_DETACH)
    os.chdir("/")
    sys.mount(None, "/", None, sys.MS_REMOUNT | sys.MS_BIND | SEALED)


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    sys.unshare(sys.CLONE_NEWUSER)
    _map_own_ids(uid, gid)
    # A namespace below this one would give its maker all capabilities in it, and much more of the kernel to attack.
    _write("/proc/sys/user/max_user_namespaces", "0")


def _map_own_ids(uid: int, gid: int) -> None:
    # user_namespaces(7): without privileges one may map one's own ids only, and must give up setgroups(2) before.
    sys.prctl(sys.PR_SET_DUMPABLE, 1)  # Otherwise these files belong to root.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")


def _offer_to_oom_killer() -> None:
    sys.prctl(sys.PR_SET_DUMPABLE, 1)  # As above.
    with open("/proc/self/oom_score_adj", "rb") as file:
        present = int(file.read())
    if present < OOM_SCORE:
        _write("/proc/self/oom_score_adj", str(OOM_SCORE))


def _leave_keyring() -> None:
    with contextlib.suppress(OSError):  # No keyrings in this kernel, or none for this process: nothing to leave.
        sys.join_session_keyring()


def _write(path: str, text: str) -> None:
    # Unbuffered: the kernel judges the text at the write, which must be one.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"write {path}") from None
    finally:
        os.close(descriptor)


class CommandLine:
    """Where this process's argument strings stand, which any process that sees it may read (proc_pid_cmdline(5))."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._start, self._end = int(fields[45]), int(fields[46])

    def replace(self, text: bytes) -> None:
        """Overwrite them, in this process or in a fork of it."""
        size = self._end - self._start
        if self._start and size > 0:
            ctypes.memset(self._start, 0, size)
            ctypes.memmove(self._start, text, min(len(text), size - 1))
