"""A blank: an instance that waits for its spec, forked ahead from a zygote.

Its namespaces stand, pid 1 is a reaper (reaper.py) that has given up its rights, and pid 2 waits for the spec, which comes by a socket
with the listening socket and the layers (as mounts, for the machine's folders are out of sight). Then pid 2 shows the layers, gives up
all rights and goes on with the runtime in the same process. What pid 1 reports on that socket: {"state": "blank"} when all is ready,
which by its credentials tells the launcher its pid, then what any instance reports (spawn.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from . import reaper, sandbox, syscalls
from .cgroups import JOIN
from .confinement import Confinement
from .protocol import StartSpec

LISTEN_FD = 3
CHANNEL_FD = 4
MAX_SPEC = 96 << 10
"""Longest spec in bytes that a blank takes: one message."""

_FIRST_FREE = 5
_ABOVE_ALL = 16
_MOST_DESCRIPTORS = 16
_COMMAND_LINE = sandbox.CommandLine()
_SAMPLE = json.dumps(
    {
        **{
            "instance_id": "i-0000000000000000",
            "uid_index": 0,
            "argv": ["/python", "-I", "-S", "/opt/sless/runtime/main.py"],
        },
        **{
            "env": {f"SLESS_{number}": "/srv/function" for number in range(12)},
            "prefixes": ["/usr"],
            "cwd": "/srv/function",
        },
        "layers": [{"source": "/layer", "target": target} for target in ("/opt/sless/runtime", "/srv/function")],
        **{"zygote": "/opt/sless/runtime", "memory_mb": 128, "allowance_mb": 64},
    }
)


class Given:
    """Descriptors of the zygote's that a blank gets."""

    __slots__ = ("channel", "groups", "null", "stderr", "stdout")

    def __init__(self, *, null: int, stdout: int, stderr: int, channel: int, groups: Sequence[int]) -> None:
        self.null = null
        self.stdout = stdout
        self.stderr = stderr
        self.channel = channel
        self.groups = groups

    def join_groups(self) -> None:
        """Enter the control groups whose lists of processes these are."""
        for descriptor in self.groups:
            os.write(descriptor, JOIN.encode())

    def take(self) -> None:
        """Put them at 0, 1, 2 and CHANNEL_FD, null also where the listening socket will be, and close everything else."""
        wanted = (self.null, self.stdout, self.stderr, self.null, self.channel)
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL) for descriptor in wanted]
        for place, descriptor in enumerate(moved):
            os.dup2(descriptor, place, inheritable=place != CHANNEL_FD)
        syscalls.close_from(_FIRST_FREE)


def encoded(spec: StartSpec) -> bytes:
    """What is sent to a blank, with the listening socket and a descriptor for each layer but the zygote's."""
    return json.dumps(spec.fields()).encode()


class Runtime(Protocol):
    """What a base layer offers (its sless_runtime.zygote)."""

    def prepare(self) -> None:
        """Import what instances use."""

    def rehearse(self) -> None:
        """Do for nothing what a start does."""

    def run(self) -> None:
        """Begin as the layer's main.py does."""


def rehearse(confinement: Confinement, runtime: Runtime) -> None:
    """Do for nothing what pid 2 does from its spec on, as far as it can be undone: see the runtime's rehearsal."""
    spec = StartSpec(json.loads(_SAMPLE))
    _program_steps(confinement, spec, [0, 0])
    _take_variables({})
    runtime.rehearse()


def live(confinement: Confinement, runtime: Runtime, given: Given) -> None:
    """Pid 1's whole life; never returns."""
    code, step = 127, "enter the control group"
    try:
        given.join_groups()
        step = "take over the descriptors"
        given.take()
        syscalls.set_name("sless-init")
        _COMMAND_LINE.replace(b"sless-init")
        sandbox.die_with_parent(signal.SIGKILL)
        for name, action in sandbox.blank_steps():
            step = name
            action()
        step = "fork the program's process"
        begun = reaper.begin(lambda told: _be_program(confinement, runtime, told))
        for name, action in sandbox.reaper_steps(confinement):
            step = name
            action()
        sandbox.die_with_parent(signal.SIGKILL)  # A change of user forgets it.
        reaper.report(CHANNEL_FD, {"state": "blank"})
        code = reaper.see_through(CHANNEL_FD, begun, purge=False)
    except OSError as error:
        with contextlib.suppress(OSError):  # The launcher is gone; so is this process in a moment.
            reaper.report(CHANNEL_FD, reaper.failure(step, error))
    finally:
        os._exit(code)


def _be_program(confinement: Confinement, runtime: Runtime, told: int) -> None:
    """Pid 2: wait, become what the spec says, run; never returns."""
    step = "take over the spec"
    try:
        os.setsid()
        rehearse(confinement, runtime)
        with socket.socket(fileno=CHANNEL_FD) as channel:
            data, given, _, _ = socket.recv_fds(channel, MAX_SPEC, _MOST_DESCRIPTORS)
        if not data:
            os._exit(0)  # Not wanted any more.
        spec = StartSpec(json.loads(data))
        for name, action in _program_steps(confinement, spec, given):
            step = name
            action()
    except OSError as error:
        reaper.report(told, reaper.failure(step, error))
        os._exit(127)
    os.close(told)
    _run(spec, runtime)


def _program_steps(confinement: Confinement, spec: StartSpec, given: list[int]) -> list[sandbox.Step]:
    listener, *trees = given
    places = [target for _, target in spec.layers if target != spec.zygote]
    return [
        ("take over the listening socket", lambda: os.dup2(listener, LISTEN_FD)),
        *sandbox.assigned_steps(confinement, spec, list(zip(trees, places, strict=True))),
        ("limit resources", lambda: sandbox.limit_resources(spec, count_processes=confinement.counts_users)),
        ("run the program", lambda: _settle(spec, given)),
    ]


def _settle(spec: StartSpec, given: list[int]) -> None:
    for descriptor in given:
        os.close(descriptor)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    os.chdir(spec.cwd)
    _COMMAND_LINE.replace("\0".join(spec.argv).encode() + b"\0")
    syscalls.set_name(os.path.basename(spec.argv[0]))


def _take_variables(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()


def _run(spec: StartSpec, runtime: Runtime) -> None:
    """The runtime, as if the interpreter had just been started with the spec's arguments and variables."""
    _take_variables({**spec.env, "SLESS_LISTEN_FD": str(LISTEN_FD)})
    script = 3  # argv is the interpreter, -I, -S, the script and its arguments.
    sys.orig_argv[:] = spec.argv
    sys.argv[:] = spec.argv[script:]
    ours = [name for name in sys.modules if name == "launcher" or name.startswith("launcher.")]
    kept = [sys.modules.pop(name) for name in ours]  # To take them apart would cost more than to keep them.
    code = 1
    try:
        runtime.run()
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        kept.clear()
        os._exit(code)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
