"""What this machine allows: tried out, not guessed from its settings."""

from __future__ import annotations

import errno
import os
import select
import signal

from . import sandbox, seccomp
from .folder import RunFolder
from .instance import describe, launch
from .protocol import EXHAUSTED, RequestError, StartSpec
from .rootfs import Roots
from .sandbox import Confinement

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


def find_confinement(tenant_base: int | None, run_folder: RunFolder, null: int) -> tuple[Confinement, str]:
    """The strongest confinement that works here, and one sentence on why it isn't more (empty when it is all).

    Each is tried by a child that starts a program under it, as an instance would be; nothing of it stays in `run_folder`.
    Raises BlockingIOError when the machine is too busy to tell: that must not be taken for the weaker answer.
    """
    unfiltered = seccomp.supported()
    system_calls = None if unfiltered else seccomp.program(os.uname().machine, unix_sockets=True)
    found, reason = _find_level(tenant_base, system_calls, run_folder, null)
    return found, "; ".join(filter(None, (reason, unfiltered)))


def _find_level(
    tenant_base: int | None, system_calls: bytes | None, run_folder: RunFolder, null: int
) -> tuple[Confinement, str]:
    def confinement(*, namespaces: bool, user_namespaces: bool) -> Confinement:
        return Confinement(
            namespaces=namespaces,
            user_namespaces=user_namespaces,
            tenant_base=tenant_base,
            system_calls=system_calls,
        )

    full = confinement(namespaces=True, user_namespaces=True)
    failure = _try_out(full, run_folder, null)
    if failure is None:
        return full, ""
    if tenant_base is not None:
        without_users = confinement(namespaces=True, user_namespaces=False)
        if _try_out(without_users, run_folder, null) is None:
            return without_users, f"{_NO_USER_NAMESPACES} ({failure}{_advice()})"
    return confinement(namespaces=False, user_namespaces=False), f"namespaces cannot be used here: {failure}{_advice()}"


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
        sandbox.enter_own_mounts()
        instance = launch(_spec(program), confinement, Roots(run_folder.roots), run_folder.folder_of("probe"), null)
        instance.reaped(os.waitpid(instance.pid, 0)[1])
        instance.release(None)
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
