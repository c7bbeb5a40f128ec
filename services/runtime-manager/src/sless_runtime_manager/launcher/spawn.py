"""From the launcher to a running instance: one fork, the confinement, one more fork, the program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal

from . import fences, reaper, sandbox
from . import syscalls as sys
from .confinement import Confinement, Grounds
from .places import Places
from .protocol import StartSpec

LISTEN_FD = 3
_STATUS_FD = 4
_FIRST_FREE = 5
_ABOVE_ALL = 16
_COMMAND_LINE = sandbox.CommandLine()


class Descriptors:
    """What of the launcher's an instance gets: its null device, output pipes, listening socket, and the status pipe."""

    __slots__ = ("listen", "null", "status", "stderr", "stdout")

    def __init__(self, *, null: int, stdout: int, stderr: int, listen: int, status: int) -> None:
        self.null = null
        self.stdout = stdout
        self.stderr = stderr
        self.listen = listen
        self.status = status

    def take(self) -> None:
        """Put them at 0, 1, 2, LISTEN_FD and the status pipe's place, and close everything else."""
        wanted = (self.null, self.stdout, self.stderr, self.listen, self.status)
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL) for descriptor in wanted]
        for place, descriptor in enumerate(moved):
            os.dup2(descriptor, place, inheritable=place != _STATUS_FD)
        sys.close_from(_FIRST_FREE)


def spawn(confinement: Confinement, spec: StartSpec, grounds: Grounds, descriptors: Descriptors) -> int:
    """Start the process that becomes the instance's pid 1; its pid. What happens to it further comes by the status pipe.

    Raises OSError when not even the process could be made.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, reaper.WATCHED)
    try:
        pid = sys.fork_into(sandbox.NAMESPACES) if confinement.namespaces else os.fork()
        if pid == 0:
            _become_instance(confinement, spec, grounds, descriptors)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_instance(confinement: Confinement, spec: StartSpec, grounds: Grounds, descriptors: Descriptors) -> None:
    """The child's whole life; never returns."""
    code = 127
    step = "take over the descriptors"
    places = Places(spec, grounds.scratch)
    try:
        signal.set_wakeup_fd(-1)
        descriptors.take()
        _disguise()
        if not confinement.namespaces:
            step = "open the layers"
            if confinement.tenant_base is not None:
                places.open()
            places.apply(spec)
        for name, action in sandbox.steps(confinement, spec, grounds):
            step = name
            action()
        step = "follow the launcher"
        _follow_launcher(confinement)
        code = reaper.run(
            _STATUS_FD,
            lambda _told: _run_program(confinement, spec, places, grounds.scratch),
            purge=not confinement.namespaces,
        )
    except OSError as error:
        with contextlib.suppress(OSError):  # The launcher is gone; so is this process in a moment.
            reaper.report(_STATUS_FD, reaper.failure(step, error))
    finally:
        os._exit(code)


def _disguise() -> None:
    sys.set_name("sless-init")
    _COMMAND_LINE.replace(b"sless-init")


def _follow_launcher(confinement: Confinement) -> None:
    """End when the launcher ends. Had it ended already, the report would fail, and with it this process."""
    if confinement.namespaces:
        sandbox.die_with_parent(signal.SIGKILL)
    else:
        sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
        sandbox.die_with_parent(signal.SIGHUP)
    reaper.report(_STATUS_FD, {"state": "confined"})


def _run_program(confinement: Confinement, spec: StartSpec, places: Places, scratch: str | None) -> None:
    """In the program's process: the last steps, then the program. Returns never; raises OSError."""
    os.setsid()
    if not confinement.namespaces:
        sandbox.die_with_parent(signal.SIGKILL)
    # RLIMIT_NPROC counts all processes of the user in this user namespace: without one of its own it would count
    # the whole desktop of an ordinary user.
    sandbox.limit_resources(spec, count_processes=confinement.counts_users, scratch=scratch)
    if scratch is not None:
        fences.put_up(confinement, spec.prefixes, places.readable(), scratch)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    os.chdir(spec.cwd)
    os.execve(spec.argv[0], spec.argv, {**spec.env, "SLESS_LISTEN_FD": str(LISTEN_FD)})  # noqa: S606
