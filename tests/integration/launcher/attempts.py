"""What a hostile handler tries. Runs as the program of an instance: each attempt that gets through is REACHED.

Printed as one JSON object: attempt → "REACHED …" or the error that refused it.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import sys
from collections.abc import Callable

GIVEN = json.loads(os.environ.get("GIVEN", "{}"))
LIBC = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT_BIND = 0x1020
_NEW_CALLS = {"clone3": 435, "io_uring_setup": 425}
CALLS = {
    "x86_64": {
        **_NEW_CALLS,
        "clone": 56,
        "add_key": 248,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "shmget": 29,
    },
    "aarch64": {
        **_NEW_CALLS,
        "clone": 220,
        "add_key": 217,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "shmget": 194,
    },
}


def libc(name: str, *arguments: object) -> int:
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return int(result)


def system_call(name: str, *arguments: object) -> int:
    """A call by its number; refused ones never look at their arguments."""
    number = CALLS[os.uname().machine][name]
    before = os.getpid()
    result = int(LIBC.syscall(ctypes.c_long(number), *arguments))
    if os.getpid() != before:
        os._exit(0)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result


def read(path: str) -> str:
    with open(path, "rb") as file:
        return repr(file.read(100))


def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
    return path


def others() -> list[str]:
    """All processes but this attempt's and the one that makes the attempts."""
    return [name for name in os.listdir("/proc") if name.isdecimal() and int(name) not in (os.getpid(), os.getppid())]


def called(function: Callable[..., object], *arguments: object) -> str:
    return str(function(*arguments))


def write(path: str) -> str:
    with open(path, "w") as file:
        return str(file.write("x"))


def any_of(names: list[str], action: Callable[[str], str]) -> str:
    """REACHED by the first that works; the last error when none does."""
    error: Exception = PermissionError("there is none")
    for name in names:
        try:
            return f"{name}: {action(name)}"
        except OSError as refused:
            error = refused
    raise error


def write_anywhere() -> str:
    """Put a file into any folder but those that are the instance's own."""
    for folder, folders, _ in os.walk("/"):
        folders[:] = [one for one in folders if os.path.join(folder, one) not in ("/proc", "/tmp", "/dev/shm", "/sys")]
        path = os.path.join(folder, f".sless-attempt-{os.getpid()}")
        with contextlib.suppress(OSError):
            open(path, "x").close()
            os.unlink(path)
            return path
    raise PermissionError("no folder can be written to")


def see_others() -> str:
    """See a process that is not of this instance: pid 1 is its reaper where it has a namespace of its own."""
    strangers = [pid for pid in others() if pid != "1"]
    if not strangers:
        raise PermissionError("only this instance's processes are there")
    return str(strangers)


def read_pages(pid: str) -> str:
    """Bytes of another process's memory, by process_vm_readv's file."""
    with open(f"/proc/{pid}/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(start)
        return repr(memory.read(16))


def become(uid: int) -> str:
    os.setuid(uid)
    return str(os.getuid())


ATTEMPTS: dict[str, Callable[[], str]] = {
    "read the data folder": lambda: read(GIVEN["data"] + "/secrets.json"),
    "list the data folder": lambda: str(os.listdir(GIVEN["data"])),
    "list the run folder": lambda: str(os.listdir(GIVEN["run"])),
    "read the password file": lambda: read("/etc/shadow"),
    "list the users' homes": lambda: str(os.listdir("/home")),
    "read a neighbour's files": lambda: read(GIVEN["neighbour"] + "/instance.json"),
    "connect to a neighbour": lambda: connect(GIVEN["neighbour"] + "/instance.sock"),
    "read a sibling's files": lambda: read(GIVEN["sibling"] + "/instance.json"),
    "connect to a sibling": lambda: connect(GIVEN["sibling"] + "/instance.sock"),
    "connect to the launcher": lambda: connect(GIVEN["launcher"]),
    "connect to a socket in /tmp of the host": lambda: connect(GIVEN["host_socket"]),
    "see other processes": see_others,
    "read the launcher's environment": lambda: read(f"/proc/{GIVEN['launcher_pid']}/environ"),
    "read a neighbour's environment": lambda: read(f"/proc/{GIVEN['neighbour_pid']}/environ"),
    "read a sibling's environment": lambda: read(f"/proc/{GIVEN['sibling_pid']}/environ"),
    "read any environment": lambda: any_of(others(), lambda pid: read(f"/proc/{pid}/environ")),
    "read any memory map": lambda: any_of(others(), lambda pid: read(f"/proc/{pid}/maps")),
    "read any memory": lambda: any_of(others(), read_pages),
    "read any descriptor table": lambda: any_of(others(), lambda pid: str(os.listdir(f"/proc/{pid}/fd"))),
    "look through any root": lambda: any_of(others(), lambda pid: str(os.listdir(f"/proc/{pid}/root"))),
    "read the reaper's environment": lambda: read("/proc/1/environ"),
    "trace any process": lambda: any_of(others(), lambda pid: str(libc("ptrace", 16, int(pid), None, None))),
    "signal the launcher": lambda: called(os.kill, GIVEN["launcher_pid"], 0),
    "signal a neighbour": lambda: called(os.kill, GIVEN["neighbour_pid"], 0),
    "signal a sibling": lambda: called(os.kill, GIVEN["sibling_pid"], 0),
    "write outside of /tmp": write_anywhere,
    "make the root writable": lambda: str(libc("mount", None, b"/", None, ctypes.c_ulong(MS_REMOUNT_BIND), None)),
    "mount": lambda: str(libc("mount", b"x", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None)),
    "unmount": lambda: str(libc("umount2", b"/proc", 2)),
    "make a user namespace": lambda: str(libc("unshare", 0x10000000)),
    "change the root": lambda: called(os.chroot, "/tmp"),
    "make a device": lambda: called(os.mknod, "/tmp/disk", 0o60644, os.makedev(8, 0)),
    "become root": lambda: become(0),
    "become another tenant": lambda: become(GIVEN["neighbour_uid"]),
    "set a kernel parameter": lambda: write("/proc/sys/kernel/core_pattern"),
    "set the host's name": lambda: called(socket.sethostname, "taken"),
    "make a raw socket": lambda: called(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "listen to the wire": lambda: called(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0),
    "use the kernel's cryptography": lambda: called(socket.socket, socket.AF_ALG, socket.SOCK_SEQPACKET),
    "ask the kernel's auditing": lambda: called(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "make a process in a user namespace": lambda: str(system_call("clone", 0x10000000 | 17, None, None, None, 0)),
    "make a process by flags that no filter sees": lambda: str(system_call("clone3", None, 0)),
    "add a key": lambda: str(system_call("add_key", b"user", b"x", b"x", 1, -3)),
    "load a program into the kernel": lambda: str(system_call("bpf", 5, None, 0)),
    "watch the processor": lambda: str(system_call("perf_event_open", None, 0, -1, -1, 0)),
    "handle its own page faults": lambda: str(system_call("userfaultfd", 1)),
    "use io_uring": lambda: str(system_call("io_uring_setup", 8, bytes(120))),
    "type into its terminal": lambda: called(fcntl.ioctl, 0, 0x5412, b"x"),
    "make memory that outlives it": lambda: str(system_call("shmget", 0, 4096, 0o1600)),
    "raise a limit": lambda: called(resource.setrlimit, resource.RLIMIT_NOFILE, (4096, 4096)),
}


def outcome(name: str) -> str:
    try:
        return f"REACHED {ATTEMPTS[name]()}"
    except OSError as error:
        return f"{type(error).__name__}: {errno.errorcode.get(error.errno or 0)}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def outcomes(names: list[str]) -> dict[str, str]:
    """Each in a child of its own: one may change its process for the worse."""
    results = {}
    for name in names:
        mine, theirs = os.pipe()
        if os.fork() == 0:
            os.write(theirs, outcome(name).encode())
            os._exit(0)
        os.close(theirs)
        with open(mine, "rb") as answers:
            results[name] = answers.read().decode()
        os.wait()
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(outcomes(GIVEN["attempts"])) + "\n")
