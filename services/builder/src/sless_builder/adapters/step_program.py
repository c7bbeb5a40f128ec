"""The last thing before a step's own program; run inside its sandbox by `python -I -S`, and replaced by the program.

Arguments: a JSON object, then the program's. The object has
    gate    the number of a socket: a byte is sent, and the program begins when one comes back; never when it is closed,
            for whoever watches over it is gone.
    uid     the user to become, 0 for none.
    cwd     the program's folder.
    env     the names of its variables.
    limits  by names of the resource module.
    status  null, or a descriptor: then this process stays as the program's keeper, tells there what bubblewrap tells
            elsewhere, and ends all that came of the program when that ends, or when the gate is closed.
"""

import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress

_CANNOT_RUN = 126
_NOT_FOUND = 127
_SIGNALLED = 128
_CHUNK_BYTES = 65_536
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def confine(uid: int, limits: dict[str, int]) -> None:
    """Become the user, who is in no group but its own, and take limits that hold for all that comes."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for name, value in limits.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))


def become(argv: list[str], *, cwd: str, names: list[str]) -> None:
    """Be the program from now on; ends with the shell's codes when it cannot be started."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    try:
        os.chdir(cwd)
        # Others come from those who were here before: bubblewrap, and this interpreter.
        os.execve(argv[0], argv, {name: os.environ[name] for name in names})  # noqa: S606 - a shell is not wanted
    except OSError as error:
        os.write(2, f"{argv[0]} can't be started: {error.strerror}\n".encode())
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def keep(program: int, gate: int, woken: int) -> int | None:
    """Wait for the program's end, or for the gate's; nothing that came of it is left then. Gives the shell's code of its end."""
    code = None
    while code is None and gate not in select.select([gate, woken], [], [])[0]:
        os.read(woken, _CHUNK_BYTES)
        code = reap(program)
    while left := descendants():
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, number)
        reap(program)
    return code


def reap(program: int) -> int | None:
    """Bury who is dead; gives how the program ended, if it is among them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                code = os.waitstatus_to_exitcode(ended[1])
                found = code if code >= 0 else _SIGNALLED - code
    return found


def descendants() -> list[int]:
    """All that came of this process: who loses its parent becomes a child of this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def begin_keeping(status: int) -> int:
    """Have every descendant's end told here; gives where that wakes this process."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for option in (_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS):
        prctl(option, 1, 0, 0, 0)
    os.write(status, f'{{"child-pid": {os.getpid()}}}\n'.encode())
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    return woken


def main() -> None:
    """Confine this process and become the program, or its keeper."""
    asked = json.loads(sys.argv[1])
    gate, status = asked["gate"], asked["status"]
    woken = -1 if status is None else begin_keeping(status)
    os.write(gate, b"+")
    if not os.read(gate, 1):
        return
    program = 0 if status is None else os.fork()
    if program:
        code = keep(program, gate, woken)
        if code is not None:
            os.write(status, f'{{"exit-code": {code}}}\n'.encode())
        return
    for number in (gate, *(() if status is None else (status,))):
        os.close(number)
    confine(asked["uid"], asked["limits"])
    become(sys.argv[2:], cwd=asked["cwd"], names=asked["env"])


if __name__ == "__main__":
    main()
