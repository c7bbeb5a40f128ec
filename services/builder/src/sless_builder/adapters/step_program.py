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

import errno
import json
import os
import resource
import select
import signal
import struct
import sys
from contextlib import suppress

_CANNOT_RUN = 126
_NOT_FOUND = 127
_SIGNALLED = 128
_CHUNK_BYTES = 65_536
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# seccomp(2): offsets in its data, and a program's instructions.
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _REFUSE, _ALLOW = 0x8000_0000, 0x0005_0000, 0x7FFF_0000
_CLONE_NEWUSER, _CLONE3, _X32 = 0x1000_0000, 435, 0x4000_0000
_SYSTEM_CALLS = {"x86_64": (0xC000_003E, 56, 272, 308), "aarch64": (0xC000_00B7, 220, 97, 268)}
"""The architecture's number, and those of clone, unshare and setns."""


def confine(uid: int, limits: dict[str, int]) -> None:
    """Become the user, who is in no group but its own, and take limits that hold for all that comes."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        forbid_user_namespaces()
    for name, value in limits.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))


def forbid_user_namespaces() -> None:
    """Have the kernel refuse to make one, for good: in it a program would have capabilities again, and more of the kernel to try.

    An ordinary user's sandbox is one already, in which bubblewrap has forbidden it. Nothing happens on machines whose numbers
    are not known here. Raises OSError.
    """
    import ctypes

    if os.uname().machine not in _SYSTEM_CALLS:
        return
    arch, clone, unshare, setns = _SYSTEM_CALLS[os.uname().machine]

    def step(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    def refuse(number: int, error: int) -> tuple[bytes, bytes]:
        return step(_EQUAL, 0, 1, number), step(_RETURN, 0, 0, _REFUSE | error)

    program = (
        step(_LOAD, 0, 0, _ARCH),
        step(_EQUAL, 1, 0, arch),
        step(_RETURN, 0, 0, _KILL),
        step(_LOAD, 0, 0, _NUMBER),
        step(_AT_LEAST, 0, 1, _X32),  # x86_64's other numbers
        step(_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        *refuse(_CLONE3, errno.ENOSYS),  # whose flags cannot be seen; libraries then take clone
        *refuse(setns, errno.EPERM),
        step(_EQUAL, 2, 0, clone),
        step(_EQUAL, 1, 0, unshare),
        step(_RETURN, 0, 0, _ALLOW),
        step(_LOAD, 0, 0, _FIRST_ARGUMENT),
        step(_ANY_BIT, 0, 1, _CLONE_NEWUSER),
        step(_RETURN, 0, 0, _REFUSE | errno.EPERM),
        step(_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0):
        raise OSError(ctypes.get_errno(), "system calls can't be filtered")


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
