"""How instances are confined on this machine, and what is prepared for one of them."""

from __future__ import annotations

import os

from .cgroups import UNLIMITED, Cgroups, Group
from .protocol import StartSpec
from .scratch import Scratch

PROCESSES = 512
OVERHEAD_MB = 32
"""What an instance gets on top of its function's memory, for the interpreter and what the kernel keeps for it."""

_MIB = 1 << 20


class Confinement:
    """How instances are confined on this machine; the probe finds it out.

    namespaces       level `namespaces`, else level `none`.
    user_namespaces  each instance has a user namespace of its own.
    tenant_base      as root: uid = gid = this + the instance's uid_index; None: the launcher's own user.
    system_calls     the filter of system calls (seccomp.py); None: this kernel has none.
    landlock         version of the kernel's interface (landlock.py) at level `landlock`, else 0.
    groups           where control groups for instances are made; None: they cannot be. Set by `use_groups`.
    counts_users     whether processes are limited by their user (RLIMIT_NPROC) where that counts no others than instances'.
    scratch          where instances have their temporary folders at level `landlock`.
    """

    __slots__ = (
        "counts_users",
        "groups",
        "landlock",
        "namespaces",
        "scratch",
        "system_calls",
        "tenant_base",
        "user_namespaces",
    )

    def __init__(
        self,
        *,
        namespaces: bool,
        user_namespaces: bool,
        tenant_base: int | None,
        system_calls: bytes | None = None,
        landlock: int = 0,
    ) -> None:
        self.namespaces = namespaces
        self.user_namespaces = user_namespaces
        self.tenant_base = tenant_base
        self.system_calls = system_calls
        self.landlock = landlock
        self.counts_users = user_namespaces or tenant_base is not None
        self.groups: Cgroups | None = None
        self.scratch: Scratch | None = None

    def use_groups(self, groups: Cgroups | None) -> None:
        """Have instances limited by control groups, from now on."""
        self.groups = groups
        if groups is not None:
            # Without a user namespace each, one instance would use up what all of its owner's share.
            self.counts_users = self.user_namespaces

    @property
    def level(self) -> str:
        """Its name, as people know it."""
        if self.namespaces:
            return "namespaces"
        return "landlock" if self.landlock else "none"

    def group_ahead(self, name: str) -> Group | None:
        """A control group for a blank, whose memory is limited when its spec is known. Raises OSError."""
        return None if self.groups is None else self.groups.create(name, memory_bytes=UNLIMITED, processes=PROCESSES)

    def user_of(self, spec: StartSpec) -> int | None:
        """The user id to change to, None where there is no choice."""
        return None if self.tenant_base is None else self.tenant_base + spec.uid_index


class Grounds:
    """What is prepared for one instance.

    root     the root that it begins with, at level `namespaces`.
    group    its control group, None where there are none.
    scratch  its temporary folder on disk, at level `landlock`.
    """

    __slots__ = ("group", "root", "scratch")

    def __init__(self, root: str | None) -> None:
        self.root = root
        self.group: Group | None = None
        self.scratch: str | None = None

    def prepare(self, confinement: Confinement, spec: StartSpec) -> None:
        """Make what there is to make; raises OSError."""
        if confinement.groups is not None:
            limits = {"memory_bytes": memory_bytes(spec), "processes": PROCESSES}
            self.group = confinement.groups.create(spec.instance_id, **limits)
        if confinement.scratch is not None:
            self.scratch = confinement.scratch.create(spec.instance_id, confinement.user_of(spec))

    def give_up(self) -> None:
        """Take it away again: nothing has run there."""
        if self.group is not None:
            self.group.remove()
        if self.scratch is not None:
            os.rmdir(self.scratch)


def memory_bytes(spec: StartSpec) -> int:
    """What all processes of an instance and its files in memory may take together."""
    return (spec.memory_mb + OVERHEAD_MB) * _MIB
