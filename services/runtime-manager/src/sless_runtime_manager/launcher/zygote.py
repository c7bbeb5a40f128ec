"""A zygote's process: an interpreter that has the runtime loaded, and forks blanks (blank.py) from itself.

    python3.11 -I -S launcher/__main__.py zygote …

The launcher starts one for each interpreter and base layer, in a root as instances have it. It runs none of a user's code, and has
no descriptor but its socket to the launcher. What is said on it:

    launcher: how instances are confined, and the runtime's place (settings)
    zygote:   {"state": "ready"} | {"state": "failed", "step", "errno", "message"}
    launcher: "blank" with the blank's socket, the ends of its output pipes, and its control groups' lists of processes; no answer:
              the blank speaks for itself

It ends with the launcher, and when the launcher closes the socket. Blanks are the launcher's children (CLONE_PARENT): they live on.
"""

from __future__ import annotations

import base64
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import cast

from . import blank, reaper, sandbox, syscalls
from .blank import Runtime
from .confinement import Confinement

CONTROL_FD = 3
_LONGEST = 256 << 10
_REHEARSALS = 16
"""So many runs and the interpreter has specialised the code (PEP 659), which forks then share."""

_NULL_FD = 0
_DESCRIPTORS = 3
_MOST_DESCRIPTORS = 8


def settings(confinement: Confinement, runtime: str) -> bytes:
    """The launcher's first message."""
    system_calls = confinement.system_calls
    return json.dumps(
        {
            "namespaces": confinement.namespaces,
            "user_namespaces": confinement.user_namespaces,
            "tenant_base": confinement.tenant_base,
            "counts_users": confinement.counts_users,
            "system_calls": None if system_calls is None else base64.b64encode(system_calls).decode(),
            "runtime": runtime,
        }
    ).encode()


def main() -> int:
    """The process's life; its exit code."""
    control = socket.socket(fileno=CONTROL_FD)
    syscalls.set_name("sless-zygote")
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    given = json.loads(control.recv(_LONGEST) or b"{}")
    if not given:
        return 0
    confinement = _confinement(given)
    try:
        runtime = _load(given["runtime"])
        for _ in range(_REHEARSALS):
            blank.rehearse(confinement, runtime)
    except Exception as error:  # noqa: BLE001 - the layer is another release's, or broken: instances are executed then
        control.send(json.dumps({"state": "failed", "message": repr(error)}).encode())
        return 1
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"state": "ready"}).encode())
    while _serve(control, confinement, runtime):
        pass
    return 0


def _confinement(given: dict[str, object]) -> Confinement:
    system_calls, tenant_base = given["system_calls"], given["tenant_base"]
    confinement = Confinement(
        namespaces=bool(given["namespaces"]),
        user_namespaces=bool(given["user_namespaces"]),
        tenant_base=tenant_base if isinstance(tenant_base, int) else None,
        system_calls=base64.b64decode(system_calls) if isinstance(system_calls, str) else None,
    )
    confinement.counts_users = bool(given["counts_users"])
    return confinement


def _load(folder: str) -> Runtime:
    """Import what the runtime in this folder offers for this."""
    sys.path.insert(0, folder)
    runtime = importlib.import_module("sless_runtime.zygote")
    del sys.path[0]
    runtime.prepare()
    return cast(Runtime, runtime)


def _serve(control: socket.socket, confinement: Confinement, runtime: Runtime) -> bool:
    """One request; False when there will be none any more."""
    data, given, _, _ = socket.recv_fds(control, 64, _MOST_DESCRIPTORS)
    if not data:
        return False
    try:
        if len(given) >= _DESCRIPTORS:
            _fork(confinement, runtime, given)
    except OSError:
        return True  # The blank's socket closes, which says it all.
    finally:
        for descriptor in given:
            os.close(descriptor)
    return True


def _fork(confinement: Confinement, runtime: Runtime, given: list[int]) -> None:
    channel, stdout, stderr, *groups = given
    before = signal.pthread_sigmask(signal.SIG_BLOCK, reaper.WATCHED)
    try:
        if syscalls.fork_into(sandbox.NAMESPACES, as_sibling=True) == 0:
            passed = blank.Given(null=_NULL_FD, stdout=stdout, stderr=stderr, channel=channel, groups=groups)
            blank.live(confinement, runtime, passed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
