"""Child processes of the supervisor: forked, tied to its life, with nothing of it but what they are given."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from sless_cli.embedded import linux
from sless_cli.errors import CliError

CRASHED = 70  # EX_SOFTWARE of sysexits.h


def fork(
    body: Callable[[], int | None],
    *,
    name: str,
    output: int,
    keep: Collection[int] = (),
    parent_death: signal.Signals = signal.SIGKILL,
) -> int:
    """Fork a child that runs `body` and ends with what it returns (None: 0); its pid. `name` is what ps calls it.

    The child leads a process group of its own, so that Ctrl-C at the terminal reaches the supervisor alone; it has default
    signal handlers, /dev/null as its input, `output` as its stdout and stderr, and of all other descriptors only `keep`.
    `parent_death` is what it gets when the supervisor ends.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        linux.set_name(name)
        _run_child(body, parent, output, keep, parent_death)
    _lead_group(pid)
    return pid


def execute(
    path: str, arguments: Sequence[str], environment: Mapping[str, str], *, keep: Collection[int] = ()
) -> NoReturn:
    """Replace this (forked) process by a program that inherits the descriptors in `keep`."""
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    os.execve(path, [path, *arguments], dict(environment))  # noqa: S606 - no shell is wanted


def wait_status(pid: int) -> int:
    """Wait for a child; its exit code, 128 + signal number when a signal ended it."""
    _, status = os.waitpid(pid, 0)
    return exit_code(status)


def exit_code(status: int) -> int:
    """A wait status as shells show it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def signal_process(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_group(pid: int) -> None:
    """Kill a child and what it left behind in its process group."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _lead_group(pid: int) -> None:
    """Both parent and child do this, whoever comes first (setpgid(2))."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        return


def _run_child(
    body: Callable[[], int | None], parent: int, output: int, keep: Collection[int], parent_death: signal.Signals
) -> NoReturn:
    """Never returns, whatever happens: two supervisors must not run on in one code path."""
    code = CRASHED
    try:
        _lead_group(0)
        _reset_signals()
        linux.die_with_parent(parent_death, parent)
        _redirect(output)
        _close_all_but({0, 1, 2, *keep})
        code = body() or 0
    except SystemExit as leaving:
        code = _code_of(leaving)
    except CliError as error:
        print(error.message, file=sys.stderr)
        code = error.exit_code
    except BaseException:  # noqa: BLE001 - the boundary of a process: reported, and it ends
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _redirect(output: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _close_all_but(kept: set[int]) -> None:
    """The parent's Python objects of these descriptors stay referenced by its frames below us, so none closes a number twice."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the listing's own descriptor


def _code_of(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
