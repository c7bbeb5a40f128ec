"""What the launcher says of how instances are confined, for `sless status`; docs/security.md explains the words."""

from __future__ import annotations

from .confinement import Confinement


def answer(confinement: Confinement, reason: str) -> dict[str, object]:
    """What `isolation` is answered with.

    level      `namespaces`, `landlock` or `none`.
    memory     `control group v1`, `control group v2`, or `approximate`: looked at once a second.
    processes  how their number is limited: by a control group, `counted for each user`, `not limited`.
    landlock   version of the kernel's interface where that is the level.
    seccomp    whether system calls are filtered.
    user       whose processes instances are.
    reason     why not more; empty when it is all.
    """
    groups = confinement.groups
    by_group = None if groups is None else f"control group v{groups.version}"
    by_user = "counted for each user" if confinement.counts_users else "not limited"
    return {
        "level": confinement.level,
        "memory": by_group or "approximate",
        "processes": by_group or by_user,
        "landlock": confinement.landlock or None,
        "seccomp": confinement.system_calls is not None,
        "network": "host",
        "user": _user(confinement),
        "reason": reason,
    }


def _user(confinement: Confinement) -> str:
    if confinement.tenant_base is not None:
        return "one for each namespace"
    return "the platform's, in a user namespace" if confinement.user_namespaces else "the platform's"
