"""The system calls that Python's library lacks. Each raises OSError whose `filename` names the call and its object.

Sources: the manual pages of the calls; numbers from the kernel's asm/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_RELATIME = 0x200000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_KILL = 5
CAP_SETPCAP = 8
CAP_SYS_ADMIN = 21
_LINUX_CAPABILITY_VERSION_3 = 0x20080522

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_KEYCTL_JOIN_SESSION_KEYRING = 1
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_CLONE3 = 435
_CLOSE_RANGE = 436
_MOUNT_SETATTR = 442
# Calls without a function in libc whose numbers differ by machine: (pivot_root, keyctl).
_NUMBERS = {
    "x86_64": (155, 250),
    "aarch64": (41, 219),
    "riscv64": (41, 219),
    "ppc64le": (203, 271),
    "s390x": (217, 280),
}

# PyDLL keeps the interpreter's lock during the call, as a fork needs it; nothing else runs in this process anyway.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _CloneArgs(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    )


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def fork_into(namespaces: int, *, as_sibling: bool = False) -> int:
    """clone3(2) as fork(2) whose child begins in new `namespaces` (CLONE_NEW…, at least one). Linux 5.3.

    `as_sibling`: the child's parent is this process's own parent (CLONE_PARENT); its end is told as this one's would be.
    The interpreter is told as its C API asks of whatever forks (docs.python.org/3/c-api/sys.html#c.PyOS_BeforeFork).
    """
    how = {"flags": namespaces | CLONE_PARENT} if as_sibling else {"flags": namespaces, "exit_signal": signal.SIGCHLD}
    arguments = _CloneArgs(**how)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = _syscall(_CLONE3, ctypes.byref(arguments), size)
    code = ctypes.get_errno()
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, os.strerror(code), "clone")
    return pid


def unshare(namespaces: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(namespaces), "unshare")


def mount(source: str | None, target: str, filesystem: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, filesystem, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {target}")


def umount2(target: str, flags: int) -> None:
    """umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def mount_setattr(target: str, flags: int) -> None:
    """mount_setattr(2): add MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC to `target` and every mount below it.

    Attributes that are set already stay, which a remount could not promise. Linux 5.12.
    """
    attributes = _MountAttr(attr_set=_attributes(flags))
    where = (ctypes.c_int(_AT_FDCWD), os.fsencode(target), ctypes.c_uint(_AT_RECURSIVE))
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _check(_syscall(_MOUNT_SETATTR, *where, ctypes.byref(attributes), size), f"mount_setattr {target}")


def open_tree(source: str, flags: int) -> int:
    """open_tree(2): a descriptor of a copy of what is mounted at and below `source`, attached nowhere, with `flags` as of
    `mount_setattr`. Linux 5.12."""
    how = ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    tree = _syscall(_OPEN_TREE, ctypes.c_int(_AT_FDCWD), os.fsencode(source), how)
    _check(tree, f"open_tree {source}")
    attributes = _MountAttr(attr_set=_attributes(flags), propagation=MS_PRIVATE)
    where = (ctypes.c_int(tree), b"", ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE))
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = _syscall(_MOUNT_SETATTR, *where, ctypes.byref(attributes), size)
    if result < 0:
        code = ctypes.get_errno()
        os.close(tree)
        raise OSError(code, os.strerror(code), f"mount_setattr {source}")
    return tree


def move_mount(tree: int, target: str) -> None:
    """move_mount(2): attach what `open_tree` gave at `target`. Linux 5.2."""
    where = (ctypes.c_int(tree), b"", ctypes.c_int(_AT_FDCWD), os.fsencode(target))
    _check(_syscall(_MOVE_MOUNT, *where, ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)), f"move_mount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    _check(_syscall(_number(0), os.fsencode(new_root), os.fsencode(put_old)), "pivot_root")


def join_session_keyring() -> None:
    """keyctl(2): a session keyring of one's own, so that no key of the parent's is possessed any more."""
    _check(_syscall(_number(1), ctypes.c_int(_KEYCTL_JOIN_SESSION_KEYRING), None), "keyctl")


def call(number: int, *arguments: object) -> int:
    """A system call that libc may lack and whose number is the same on all machines; its result."""
    result = _syscall(number, *arguments)
    _check(result, f"system call {number}")
    return result


def prctl(option: int, argument: int) -> None:
    """prctl(2) with one number."""
    _check(_prctl(option, argument), f"prctl {option}")


def prctl_pointer(option: int, argument: int, pointer: object) -> None:
    """prctl(2) with a number and a pointer (`ctypes.byref(…)`, or None)."""
    _check(_libc.prctl(option, ctypes.c_ulong(argument), pointer, 0, 0), f"prctl {option}")


def set_name(name: str) -> None:
    """prctl(2) PR_SET_NAME: the process's name in ps, at most 15 bytes."""
    _check(_libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0), "prctl PR_SET_NAME")


def drop_bounding_set() -> None:
    """Empty the bounding set, so that no program file can give a capability back.

    Without CAP_SETPCAP it stays as it is; PR_SET_NO_NEW_PRIVS forbids the same.
    """
    capability = 0
    while _prctl(PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    if ctypes.get_errno() not in (errno.EINVAL, errno.EPERM):  # EINVAL: the kernel knows no further one
        _check(-1, "prctl PR_CAPBSET_DROP")


def drop_capabilities(*, keep: int | None = None) -> None:
    """Empty the ambient, inheritable, permitted and effective sets (capabilities(7)), but for one of the lower 32."""
    _prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapHeader(version=_LINUX_CAPABILITY_VERSION_3, pid=0)
    kept = (_CapData * 2)()
    if keep is not None:
        kept[0].permitted = kept[0].effective = 1 << keep
    _check(_libc.capset(ctypes.byref(header), kept), "capset")


def keep_capabilities(*capabilities: int) -> None:
    """Let these capabilities, which this process has, outlive an execve(2) by an ordinary user (capabilities(7), ambient)."""
    header = _CapHeader(version=_LINUX_CAPABILITY_VERSION_3, pid=0)
    present = (_CapData * 2)()
    _check(_libc.capget(ctypes.byref(header), present), "capget")
    for capability in capabilities:
        present[capability // 32].inheritable |= 1 << capability % 32
    _check(_libc.capset(ctypes.byref(header), present), "capset")
    for capability in capabilities:
        raised = _libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_RAISE), ctypes.c_ulong(capability), 0, 0)
        _check(raised, "prctl PR_CAP_AMBIENT")


def close_from(lowest: int) -> None:
    """Close every descriptor from `lowest` on: close_range(2), or one by one where the kernel is older than 5.9."""
    if _syscall(_CLOSE_RANGE, ctypes.c_uint(lowest), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0)) != 0:
        os.closerange(lowest, os.sysconf("SC_OPEN_MAX"))


def _prctl(option: int, argument: int) -> int:
    zero = ctypes.c_ulong(0)
    result: int = _libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero)
    return result


def _attributes(flags: int) -> int:
    """Those of `flags` that mount_setattr(2) takes; its numbers for them are the same."""
    return flags & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _number(index: int) -> int:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), f"system calls of {machine}")
    return _NUMBERS[machine][index]


def _syscall(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    return result


def _check(result: int, name: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
