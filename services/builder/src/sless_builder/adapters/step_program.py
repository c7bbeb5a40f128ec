"""The last thing before a step's own program; run inside its sandbox by `python -I -S`, and replaced by the program.

Arguments: a JSON object, then the program's. The object has
    gate    the number of a socket: a byte is sent, and the program begins when one comes back; never when it is closed,
            for whoever watches over it is gone.
    uid     the user to become, 0 for none.
    cwd     the program's folder.
    env     the names of its variables.
    limits  by names of the resource module.
"""

import json
import os
import resource
import signal
import sys

_CANNOT_RUN = 126
_NOT_FOUND = 127


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
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    try:
        os.chdir(cwd)
        # Others come from those who were here before: bubblewrap, and this interpreter.
        os.execve(argv[0], argv, {name: os.environ[name] for name in names})  # noqa: S606 - a shell is not wanted
    except OSError as error:
        os.write(2, f"{argv[0]} can't be started: {error.strerror}\n".encode())
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def main() -> None:
    """Confine this process and become the program."""
    asked = json.loads(sys.argv[1])
    os.write(asked["gate"], b"+")
    if not os.read(asked["gate"], 1):
        return
    os.close(asked["gate"])
    confine(asked["uid"], asked["limits"])
    become(sys.argv[2:], cwd=asked["cwd"], names=asked["env"])


if __name__ == "__main__":
    main()
