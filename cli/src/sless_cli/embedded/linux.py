"""The few Linux calls that Python's standard library does not have: prctl(2), unshare(2), mount(2)."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15

# Loaded by the parent: a forked child then only calls.
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this signal when the parent ends; at once when it has ended already.

    To be called after any change of user: that clears the setting (prctl(2), PR_SET_PDEATHSIG).
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """Name this process for ps and top; 15 bytes of it are kept (prctl(2), PR_SET_NAME)."""
    _check(_libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    """Leave the namespaces that are named by CLONE_NEW* flags. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, *, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """mount(2). Raises OSError that names the target."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        options and options.encode(),
    )
    _check(result, target)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
