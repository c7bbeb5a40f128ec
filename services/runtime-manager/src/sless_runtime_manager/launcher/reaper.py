"""Pid 1 of an instance: runs the program as pid 2, hands SIGTERM on, reaps what is left over, reports how the program ended.

As pid 1 the program itself could not be ended by signals it has no handler for, and orphans would pile up.
At level `none` the same process stands above the program without being pid 1; it then also has to end what the program leaves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable

WATCHED = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP})
"""Blocked from before this process exists; SIGHUP means: end everything now."""

_PURGE_ROUNDS = 200


def report(status: int, message: dict[str, object]) -> None:
    """Tell the launcher, one JSON object a line. OSError when there is no launcher any more."""
    os.write(status, json.dumps(message).encode() + b"\n")


def failure(step: str, error: OSError) -> dict[str, object]:
    """What to report when `step` failed."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return {"state": "failed", "step": step, "errno": error.errno, "message": what}


class Begun:
    """The program's process, and the end of what it tells until its program runs."""

    __slots__ = ("pid", "told")

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self.told = told


def run(status: int, program: Callable[[int], None], *, purge: bool) -> int:
    """Fork `program` (which never returns when all is well), see it through, answer the exit code to end with.

    `purge`: no pid namespace will take the program's descendants away, so this does.
    """
    return see_through(status, begin(program), purge=purge)


def begin(program: Callable[[int], None]) -> Begun:
    """Fork `program`. It is given a descriptor to report failures by, which closes when it has been started."""
    ours, theirs = (one.detach() for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    main = os.fork()
    if main == 0:
        os.close(ours)
        _become(program, theirs)
    os.close(theirs)
    return Begun(main, ours)


def see_through(status: int, begun: Begun, *, purge: bool) -> int:
    """From the program's begin to its end; the exit code to end with."""
    _let_go(keep={status, begun.told})
    failed = os.read(begun.told, 4096)  # Empty once the program runs.
    os.close(begun.told)
    if failed:
        os.waitpid(begun.pid, 0)
        os.write(status, failed)
        return 127
    report(status, {"state": "running"})
    code = _wait(begun.pid, purge=purge)
    report(status, {"state": "ended", "exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None})
    return code if code >= 0 else 128 - code


def _become(program: Callable[[int], None], told: int) -> None:
    try:
        program(told)
    except OSError as error:
        report(told, failure("run the program", error))
    finally:
        os._exit(127)


def _let_go(keep: set[int]) -> None:
    """Close the program's ends of its pipes and its socket, which must close when the program closes them."""
    for descriptor in (0, 1, 2, 3):
        if descriptor not in keep:
            os.close(descriptor)


def _wait(main: int, *, purge: bool) -> int:
    """Until `main` is gone: its exit code, or minus the signal that ended it."""
    while True:
        number = signal.sigwait(WATCHED)
        if number == signal.SIGTERM:
            os.kill(main, signal.SIGTERM)
        elif number == signal.SIGHUP and purge:
            os.kill(main, signal.SIGKILL)
        code = _reap(main)
        if code is not None:
            if purge:
                _end_descendants()
            return code


def _reap(main: int) -> int | None:
    """Collect every ended child; `main`'s code when it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == main:
            found = os.waitstatus_to_exitcode(status)


def _end_descendants() -> None:
    """Kill children, and theirs as they become ours (this process is their subreaper), until none is left."""
    for _ in range(_PURGE_ROUNDS):
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def children() -> list[int]:
    """This process's."""
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == me:
                found.append(int(name))
    return found
