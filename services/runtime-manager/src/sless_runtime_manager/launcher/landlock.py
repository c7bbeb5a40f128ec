"""Landlock: a process gives up its own rights to files, and what it may do to processes outside, without any privilege.

Source: the kernel's userspace-api/landlock.rst. The rights that a kernel knows depend on the version of its interface; asked for are all
of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from . import syscalls as sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # alike on all machines
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_BEFORE_2 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2

READ = _EXECUTE | _READ_FILE | _READ_DIR
USE = _READ_FILE | _WRITE_FILE
"""What is needed of a device such as /dev/null."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped"))


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Of this kernel's interface; 0: it has none, or it is switched off."""
    try:
        return sys.call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def all_rights(interface: int) -> int:
    """Every right to files that an interface of this version knows."""
    newer = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return _ALL_BEFORE_2 | sum(right for since, right in newer if interface >= since)


def scopes(interface: int) -> int:
    """What of other processes can be put out of reach: signals to them, and their abstract sockets."""
    return _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if interface >= 6 else 0


def restrict(allowed: Iterable[tuple[str, int]], interface: int) -> None:
    """Leave this process, and all that it forks and executes, these rights alone: (path, READ, USE or `all_rights`) each.

    A path that is not there is left out. Of what it has open already nothing is taken. Processes outside can't be traced or looked into
    any more, nor signalled where the kernel can tell. Needs no_new_privs. Raises OSError.
    """
    rights = all_rights(interface)
    attributes = _RulesetAttr(handled_access_fs=rights, scoped=scopes(interface))
    # An older kernel takes a shorter structure only.
    size = ctypes.sizeof(attributes) if interface >= 6 else 8
    ruleset = sys.call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, wanted in allowed:
            _allow(ruleset, path, wanted & rights)
        sys.call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneathAttr(allowed_access=rights, parent_fd=place)
        rule_type, flags = ctypes.c_int(_RULE_PATH_BENEATH), ctypes.c_uint32(0)
        sys.call(_ADD_RULE, ctypes.c_int(ruleset), rule_type, ctypes.byref(rule), flags)
    finally:
        os.close(place)
