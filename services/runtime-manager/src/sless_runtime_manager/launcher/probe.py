"""What this machine allows: tried out, not guessed from its settings."""

from __future__ import annotations

import errno
import os
import select
import signal

from . import landlock, sandbox, seccomp
from .confinement import Confinement
from .folder import RunFolder
from .instance import describe, launch
from .protocol import EXHAUSTED, RequestError, StartSpec
from .rootfs import Roots
from .scratch import Scratch

PROBE_SEC = 10
_DONE = "done"
_BUSY = "busy: "
_PROGRAMS = ("/bin/true", "/usr/bin/true")
# Settings that forbid user namespaces: where, the value that does so, and what to set instead.
_SETTINGS = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
)
_NO_USER_NAMESPACES = "no user namespaces here: the limit on processes counts all instances of one owner together"


def find_confinement(
    tenant_base: int | None, run_folder: RunFolder, null: int, wanted: str | None = None
) -> tuple[Confinement, str]:
    """The strongest confinement that works here, and one sentence on why it isn't more (empty when it is all).

    `wanted`: that level and no other; None: the strongest. Raises LevelError when it is not to be had.

    Each is tried by a child that starts a program under it, as an instance would be; nothing of it stays in `run_folder`.
    Raises BlockingIOError when the machine is too busy to tell: that must not be taken for the weaker answer.
    """
    unfiltered = seccomp.supported()
    trials = _Trials(tenant_base, run_folder, null, filtered=not unfiltered)
    lacking: list[str] = []
    for level, tries in (("namespaces", trials.namespaces), ("landlock", trials.landlock), ("none", trials.none)):
        if wanted not in (None, level):
            continue
        found, reason = tries()
        lacking += [reason] if reason else []
        if found is not None:
            return found, "; ".join(filter(None, (*lacking, unfiltered)))
    raise LevelError(f"isolation by {wanted} is demanded: {'; '.join(lacking)}")


class LevelError(Exception):
    """The level that is demanded cannot be had; the message is a sentence."""


class _Trials:
    """Each level as it would be here: a confinement that works, or None and why not."""

    def __init__(self, tenant_base: int | None, run_folder: RunFolder, null: int, *, filtered: bool) -> None:
        self._tenant_base = tenant_base
        self._run_folder = run_folder
        self._null = null
        self._filtered = filtered

    def namespaces(self) -> tuple[Confinement | None, str]:
        full = self._confinement(namespaces=True, user_namespaces=True)
        failure = self._try_out(full)
        if failure is None:
            return full, ""
        if self._tenant_base is not None:
            without_users = self._confinement(namespaces=True)
            if self._try_out(without_users) is None:
                return without_users, f"{_NO_USER_NAMESPACES} ({failure}{_advice()})"
        return None, f"namespaces cannot be used here: {failure}{_advice()}"

    def landlock(self) -> tuple[Confinement | None, str]:
        interface = landlock.version()
        if not interface:
            return None, "this kernel has no Landlock"
        if not self._filtered:
            return None, "Landlock without a filter of system calls would keep no socket out of reach"
        found = self._confinement(landlock=interface)
        failure = self._try_out(found)
        return (found, "") if failure is None else (None, f"Landlock cannot be used here: {failure}")

    def none(self) -> tuple[Confinement | None, str]:
        return self._confinement(), ""

    def _confinement(
        self, *, namespaces: bool = False, user_namespaces: bool = False, landlock: int = 0
    ) -> Confinement:
        machine = os.uname().machine
        return Confinement(
            namespaces=namespaces,
            user_namespaces=user_namespaces,
            tenant_base=self._tenant_base,
            system_calls=seccomp.program(machine, unix_sockets=not landlock) if self._filtered else None,
            landlock=landlock,
        )

    def _try_out(self, confinement: Confinement) -> str | None:
        return _try_out(confinement, self._run_folder, self._null)


def _try_out(confinement: Confinement, run_folder: RunFolder, null: int) -> str | None:
    """None when a program ran to its end, else what failed."""
    result, result_end = os.pipe()
    child = os.fork()
    if child == 0:
        _run_trial(confinement, run_folder, null, result_end)
    os.close(result_end)
    answered, _, _ = select.select([result], [], [], PROBE_SEC)
    text = os.read(result, 65536).decode() if answered else f"{_BUSY}no program ran within {PROBE_SEC} s"
    os.close(result)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if text.startswith(_BUSY):
        raise BlockingIOError(errno.EAGAIN, text.removeprefix(_BUSY))
    return None if text == _DONE else text or "the probe ended without an answer"


def _run_trial(confinement: Confinement, run_folder: RunFolder, null: int, result: int) -> None:
    """In the probe's child; never returns."""
    try:
        text = _trial(confinement, run_folder, null)
        os.write(result, text.encode())
    finally:
        os._exit(0)


def _trial(confinement: Confinement, run_folder: RunFolder, null: int) -> str:
    """_DONE, or what failed."""
    program = next((path for path in _PROGRAMS if os.path.exists(path)), None)
    if program is None:
        return f"none of {', '.join(_PROGRAMS)} is there to try with"
    try:
        roots = None
        if confinement.namespaces:
            sandbox.enter_own_mounts()
            roots = Roots(run_folder.roots)
        else:
            confinement.scratch = Scratch(f"probe-{os.getpid()}")
        instance = launch(_spec(program), confinement, roots, run_folder.folder_of("probe"), null)
        instance.reaped(os.waitpid(instance.pid, 0)[1])
        instance.release(None)
        if confinement.scratch is not None:
            confinement.scratch.close()
    except OSError as error:
        return describe(error)
    except RequestError as error:
        return _explain(error)
    if instance.failure is not None:
        return _explain(instance.failure)
    return _DONE if instance.exit_code == 0 else f"{program} ended with {instance.exit_code or instance.signal}"


def _explain(failure: RequestError) -> str:
    # No space: so many namespaces are not allowed, which is for the administrator to change and no matter of waiting.
    busy = failure.code == EXHAUSTED and failure.errno != errno.ENOSPC
    return f"{_BUSY if busy else ''}{failure.message}"


def _spec(program: str) -> StartSpec:
    return StartSpec(
        {
            "instance_id": "probe",
            "uid_index": 0,
            "argv": [program],
            "env": {},
            "prefixes": [],
            "layers": [],
            "memory_mb": 64,
            "allowance_mb": 64,
        }
    )


def _advice() -> str:
    for path, forbidden, setting in _SETTINGS:
        try:
            with open(path, encoding="ascii") as file:
                if file.read().strip() == forbidden:
                    return f"; the administrator can allow it: sysctl {setting}"
        except OSError:
            continue
    return ""
