"""What an instance may reach of the machine's files at level `landlock`: what it would find in a root of its own, where it lies."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import landlock
from .confinement import Confinement
from .rootfs import DEVICES, ETC_FILES, ETC_FOLDERS, SYSTEM_FOLDERS

_ACCOUNTS = ("passwd", "group")
# Of the machine, without anybody's process; more of /proc would show those of others.
_PROC_FILES = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys/kernel", "uptime", "version")
_PROCESSORS = "/sys/devices/system/cpu"


def put_up(confinement: Confinement, prefixes: Sequence[str], layers: Sequence[str], scratch: str) -> None:
    """In the program's process, as its user, before its program: leave it these files alone. Raises OSError.

    What it forks cannot look at its own /proc/PID: a rule for all that will ever be would be one for everybody's.
    """
    readable = [
        "/usr",
        *(f"/{name}" for name in SYSTEM_FOLDERS),
        *(f"/etc/{name}" for name in (*ETC_FOLDERS, *ETC_FILES, *_ACCOUNTS)),
        *(f"/proc/{name}" for name in (*_PROC_FILES, str(os.getpid()))),
        _PROCESSORS,
        *prefixes,
        *layers,
    ]
    landlock.restrict(
        [
            *((path, landlock.READ) for path in readable),
            *((f"/dev/{name}", landlock.USE) for name in DEVICES),
            (scratch, landlock.all_rights(confinement.landlock)),
        ],
        confinement.landlock,
    )
