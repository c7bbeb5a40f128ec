"""The filter of system calls that instances run under: what no function needs and much of the kernel's trouble came from.

A list of what is refused, in the manner of Docker's and Podman's default profiles (docs.docker.com/engine/security/seccomp): whoever
brings native code must not meet a call that is refused for want of a name. Refused calls answer EPERM, or what programs take as
"not in this kernel" where they then do without.

Classic BPF over struct seccomp_data (seccomp(2)); numbers from the kernel's asm/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import syscalls as sys

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x4000_0000
"""Calls of the x32 ABI carry this bit; they are the same calls by other numbers."""

_ABSENT = -1
# name: (x86_64, aarch64)
_EPERM = {
    # what is mounted where, and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # the kernel itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    # keys
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # files past their folders, whole file systems
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # the machine
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, _ABSENT),
    "ioperm": (173, _ABSENT),
    "modify_ldt": (154, _ABSENT),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
}
_ENOSYS = {
    # Its flags lie in memory, where a filter cannot look: the C library then takes clone(2).
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_secret": (447, 447),
    # System V objects outlive their makers and are in nobody's account; POSIX ones are there.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
}
_SOCKET = (41, 198)
_CLONE = (56, 220)
_IOCTL = (16, 29)
_PERSONALITY = (135, 92)

_CLONE_NAMESPACES = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_RAW, _SOCK_PACKET, _SOCK_TYPE_MASK = 3, 10, 0xF
_NETLINK_ROUTE = 0
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PERSONALITIES = (0, 0xFFFF_FFFF)
"""Linux itself, and the question which it is."""

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCH_AT = 0, 4
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_Instruction = tuple[int, int, int, int]
_Range = tuple[int, list[_Instruction]]


def supported() -> str:
    """Why there can be no filter on this machine; empty when there can."""
    machine = os.uname().machine
    if machine not in _AUDIT_ARCH:
        return f"there is no filter of system calls for {machine}"
    try:
        _set_filter(None)
    except OSError as error:
        if error.errno != errno.EFAULT:  # What a kernel that has filters says to none.
            return "this kernel has no filters of system calls"
    return ""


def program(machine: str, *, unix_sockets: bool) -> bytes:
    """The filter for this machine (`os.uname().machine`), as an array of struct sock_filter.

    `unix_sockets`: whether sockets of that family may be made; pairs of them always may, and those handed in work. Without, no socket
    that has a path can be connected to. KeyError for a machine without a table.
    """
    column = tuple(_AUDIT_ARCH).index(machine)
    judged = {
        **{numbers[column]: [_return(_ERRNO | errno.EPERM)] for numbers in _EPERM.values()},
        **{numbers[column]: [_return(_ERRNO | errno.ENOSYS)] for numbers in _ENOSYS.values()},
        _CLONE[column]: _judge_clone(),
        _SOCKET[column]: _judge_socket(unix_sockets=unix_sockets),
        _IOCTL[column]: _judge_argument(1, (_TIOCSTI, _TIOCLINUX), refuse=True),
        _PERSONALITY[column]: _judge_argument(0, _PERSONALITIES, refuse=False),
    }
    judged.pop(_ABSENT, None)
    if machine == "x86_64":
        judged[_X32] = [_return(_ERRNO | errno.ENOSYS)]
    instructions = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        _return(_ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        *_search(_ranges(judged)),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def install(filter_program: bytes) -> None:
    """Put this process, and what it forks and executes from now on, under the filter. Needs no_new_privs. Raises OSError."""
    _set_filter(filter_program)


def _ranges(judged: dict[int, list[_Instruction]]) -> list[_Range]:
    """All numbers, in ranges that are judged alike: (the first, how), in order. What begins at _X32 goes on to the end."""
    allowed = [_return(_ALLOW)]
    found: list[_Range] = [(0, allowed)]
    for number in sorted(judged):
        if found[-1][0] == number:
            found.pop()
        if not found or found[-1][1] != judged[number]:
            found.append((number, judged[number]))
        if number != _X32:
            found.append((number + 1, allowed))
    return found


def _search(ranges: list[_Range]) -> list[_Instruction]:
    """By halves: the kernel works a new filter out for every call's number at once, and a long way through it takes 0.3 ms of a start."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    lower, upper = _search(ranges[:middle]), _search(ranges[middle:])
    return [(_JUMP_AT_LEAST, len(lower), 0, ranges[middle][0]), *lower, *upper]


def _judge_clone() -> list[_Instruction]:
    return [
        _load_argument(0),
        (_JUMP_SET, 0, 1, _CLONE_NAMESPACES),
        _return(_ERRNO | errno.EPERM),
        _return(_ALLOW),
    ]


def _judge_socket(*, unix_sockets: bool) -> list[_Instruction]:
    internet = [
        _load_argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        *_judge_value((_SOCK_RAW, _SOCK_PACKET), refuse=True),
    ]
    # The C library asks the kernel for addresses by a raw netlink socket of the routing family; the others are for administration.
    netlink = _judge_argument(2, (_NETLINK_ROUTE,), refuse=False)
    unix = [_return(_ALLOW if unix_sockets else _ERRNO | errno.EPERM)]
    return [
        _load_argument(0),
        (_JUMP_EQUAL, 0, len(unix), _AF_UNIX),
        *unix,
        (_JUMP_EQUAL, 0, len(netlink), _AF_NETLINK),
        *netlink,
        (_JUMP_EQUAL, 2, 0, _AF_INET),
        (_JUMP_EQUAL, 1, 0, _AF_INET6),
        _return(_ERRNO | errno.EAFNOSUPPORT),
        *internet,
    ]


def _judge_argument(index: int, values: tuple[int, ...], *, refuse: bool) -> list[_Instruction]:
    return [_load_argument(index), *_judge_value(values, refuse=refuse)]


def _judge_value(values: tuple[int, ...], *, refuse: bool) -> list[_Instruction]:
    """Refuse what is among the values, or what is not."""
    refused = _return(_ERRNO | errno.EPERM)
    found, other = (refused, _return(_ALLOW)) if refuse else (_return(_ALLOW), refused)
    last = len(values) - 1
    return [*((_JUMP_EQUAL, last - place + 1, 0, value) for place, value in enumerate(values)), other, found]


def _load_argument(index: int) -> _Instruction:
    # The lower half, on these little-endian machines; the kernel looks at no more of these arguments.
    return (_LOAD, 0, 0, 16 + 8 * index)


def _return(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _set_filter(filter_program: bytes | None) -> None:
    if filter_program is None:
        sys.prctl_pointer(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None)
        return
    given = _FilterProgram(len(filter_program) // 8, filter_program)
    sys.prctl_pointer(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(given))
