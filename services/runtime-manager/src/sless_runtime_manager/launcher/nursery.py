"""Zygotes and the blanks that they have forked ahead (zygote.py, blank.py), as the launcher sees them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import time
from collections import deque
from functools import partial

from . import sandbox, syscalls, zygote
from .cgroups import Cgroups, Group
from .confinement import Confinement
from .mounts import SEALED
from .protocol import StartSpec
from .rootfs import TEMPORARY, Roots
from .spawn import Descriptors

POOL = 2
"""Blanks that wait for each zygote."""

REFILL_SEC = 0.05
"""From a start to the fork of the blank that takes the used one's place: the start comes first."""

RENEWED_FORKS = 256
RENEWED_SEC = 900.0
"""A zygote is replaced after so many forks, or so long: its forks share their memory layout and hash seed."""

_FIRST_PAUSE_SEC = 2.0
_LONGEST_PAUSE_SEC = 300.0
_CREDENTIALS = struct.Struct("3i")
_READ_BYTES = 64 << 10
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PADDING = "." * 256
"""Room for an instance's command line, which is written over the zygote's."""

# Read by the loader and the C library before any Python runs: a fork would not heed them.
_EXEC_VARIABLES = ("LD_", "MALLOC_", "GLIBC_", "OPENSSL_")

Key = tuple[str, tuple[str, ...], str, str]
"""Interpreter, its prefixes, the base layer's folder and its place inside."""


class Blank:
    """A process that waits for a spec, or will in a moment. `pid` 0: it has not spoken yet."""

    __slots__ = ("_groups", "channel", "group", "pid", "stderr", "stdout")

    def __init__(
        self, channel: socket.socket, stdout: int, stderr: int, group: Group | None, groups: Cgroups | None
    ) -> None:
        self.channel = channel
        self.group = group
        self._groups = groups
        self.stdout = stdout
        self.stderr = stderr
        self.pid = 0

    def receive(self) -> bytes:
        """Once what it reports; takes note of its pid, which the kernel vouches for. Empty at the end; raises BlockingIOError."""
        data, ancillary, _, _ = self.channel.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, value in ancillary:
            if data and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self.pid = _CREDENTIALS.unpack(value)[0]
        return data

    def discard(self) -> None:
        """End it: without the channel one that has not spoken yet ends when it does."""
        self.channel.close()
        os.close(self.stdout)
        os.close(self.stderr)
        if self.pid:
            # It may have ended, been reaped, and its number be another process's: only what can be waited for is this one.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                os.kill(self.pid, signal.SIGKILL)
        if self.group is not None and self._groups is not None:
            self._groups.remove(self.group)


class Zygote:
    """One zygote and its blanks. `ready`: it has said that it can fork. `over`: it is gone."""

    def __init__(
        self, selector: selectors.BaseSelector, confinement: Confinement, pid: int, control: socket.socket
    ) -> None:
        self.pid = pid
        self.ready = False
        self.over = False
        self.forks = 0
        self.born_at = self.used_at = time.monotonic()
        self._selector = selector
        self._confinement = confinement
        self._control = control
        self._blanks: deque[Blank] = deque()
        selector.register(control, selectors.EVENT_READ, self._hear)

    @property
    def is_old(self) -> bool:
        """Whether another should take its place."""
        return self.forks >= RENEWED_FORKS or time.monotonic() - self.born_at >= RENEWED_SEC

    @property
    def missing(self) -> int:
        """Blanks that have still to be forked."""
        return POOL - len(self._blanks) if self.ready else 0

    def take(self) -> Blank | None:
        """The blank that has waited longest, else a new one; None when none can be had."""
        self.used_at = time.monotonic()
        if not self._blanks:
            self.fork()
        if not self._blanks:
            return None
        taken = self._blanks.popleft()
        self._selector.unregister(taken.channel)
        return taken

    def fork(self) -> None:
        """Have one more blank; nothing when that can't be done now."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.setblocking(False)
        self.forks += 1
        with contextlib.closing(theirs):
            try:
                group = self._confinement.group_ahead(f"blank-{self.pid}-{self.forks}")
                made = Blank(ours, *self._send(theirs.fileno(), group), group, self._confinement.groups)
            except OSError:
                ours.close()
                return
        self._blanks.append(made)
        self._selector.register(ours, selectors.EVENT_READ, partial(self._hear_blank, made))

    def _send(self, channel: int, group: Group | None) -> tuple[int, int]:
        """Ask for a blank; where what it prints can be read."""
        ours, theirs = [], []
        try:
            for _ in range(2):
                end, other = os.pipe()
                os.set_blocking(end, False)
                ours.append(end)
                theirs.append(other)
            theirs += [] if group is None else group.entrances()
            socket.send_fds(self._control, [b"blank"], [channel, *theirs])
        except OSError:
            for descriptor in ours:
                os.close(descriptor)
            if group is not None:
                group.remove()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        stdout, stderr = ours
        return stdout, stderr

    def end(self) -> None:
        """Let it go, with the blanks that nobody has taken."""
        self.over = True
        self._selector.unregister(self._control)
        self._control.close()
        while self._blanks:
            self._lose(self._blanks[0])

    def _hear(self) -> None:
        try:
            data = self._control.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and json.loads(data)["state"] == "ready":
            self.ready = True
        else:
            self.end()

    def _hear_blank(self, blank: Blank) -> None:
        """It says that it waits; anything else is its end."""
        try:
            data = blank.receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or json.loads(data)["state"] != "blank":
            self._lose(blank)

    def _lose(self, blank: Blank) -> None:
        self._blanks.remove(blank)
        self._selector.unregister(blank.channel)
        blank.discard()


class Nursery:
    """Zygotes by what they have loaded, at most one each that is not about to be replaced. None of it is needed: an instance for
    which there is no blank is executed as any program is."""

    def __init__(self, selector: selectors.BaseSelector, confinement: Confinement, roots: Roots, null: int) -> None:
        self._selector = selector
        self._confinement = confinement
        self._roots = roots
        self._null = null
        self._zygotes: dict[Key, Zygote] = {}
        self._successors: dict[Key, Zygote] = {}
        self._wanted: dict[Key, float] = {}
        self._pauses: dict[Key, tuple[float, float]] = {}
        """How long a key was left alone after a zygote of it came to nothing, and until when."""
        self._refill_at = 0.0

    def blank_for(self, spec: StartSpec) -> Blank | None:
        """A blank for this spec; None when it has to be executed. One will then be there for a later start."""
        key = _key(spec)
        if key is None:
            return None
        self._refill_at = time.monotonic() + REFILL_SEC
        found = self._zygotes.get(key)
        if found is None:
            self._wanted.setdefault(key, self._refill_at)
            return None
        return found.take() if found.ready and not found.over else None

    def tend(self, now: float) -> float | None:
        """Start zygotes, renew them, fork blanks; the monotonic time to do so again, None without any."""
        self._forget_those_gone(now)
        for key in [key for key, at in self._wanted.items() if at <= now]:
            del self._wanted[key]
            if key not in self._zygotes and self._may_start(key, now):
                self._start(key, self._zygotes)
        self._renew(now)
        due = [*self._wanted.values()]
        if any(one.missing > 0 for one in self._zygotes.values()):
            if self._refill_at > now:
                due.append(self._refill_at)
            else:
                self._refill()
        return min(
            [*due, *(one.born_at + RENEWED_SEC for one in self._zygotes.values() if not one.is_old)], default=None
        )

    def close(self) -> None:
        """End all zygotes and blanks."""
        for one in (*self._zygotes.values(), *self._successors.values()):
            if not one.over:
                one.end()
        self._zygotes.clear()
        self._successors.clear()
        self._wanted.clear()

    def _refill(self) -> None:
        for one in self._zygotes.values():
            for _ in range(one.missing):
                one.fork()

    def _renew(self, now: float) -> None:
        latest = max(self._zygotes.values(), key=lambda one: one.used_at, default=None)
        for key, one in list(self._zygotes.items()):
            successor = self._successors.get(key)
            if successor is not None and successor.ready:
                self._zygotes[key] = self._successors.pop(key)
                one.end()
            elif one.is_old and one is not latest and now - one.used_at >= RENEWED_SEC:
                del self._zygotes[key]  # Nothing of that base layer has been started for long.
                one.end()
            elif one.is_old and successor is None and self._may_start(key, now):
                self._start(key, self._successors)

    def _may_start(self, key: Key, now: float) -> bool:
        return key not in self._pauses or now >= self._pauses[key][1]

    def _forget_those_gone(self, now: float) -> None:
        for those in (self._zygotes, self._successors):
            for key, one in [(key, one) for key, one in those.items() if one.over]:
                del those[key]
                if one.ready:
                    self._pauses.pop(key, None)
                    self._wanted.setdefault(key, now)
                else:
                    pause = min(max(self._pauses.get(key, (0.0, 0.0))[0] * 2, _FIRST_PAUSE_SEC), _LONGEST_PAUSE_SEC)
                    self._pauses[key] = (pause, now + pause)

    def _start(self, key: Key, into: dict[Key, Zygote]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            ours.send(zygote.settings(self._confinement, key[3]))
            pid = self._fork(key, theirs.fileno())
        except OSError:
            ours.close()
            return
        finally:
            theirs.close()
        into[key] = Zygote(self._selector, self._confinement, pid, ours)

    def _fork(self, key: Key, control: int) -> int:
        _, prefixes, _, target = key
        root = self._roots.root_for(prefixes)
        for place in (target, sandbox.LAUNCHER_TARGET):
            root.add_folder(place)
        pid = syscalls.fork_into(syscalls.CLONE_NEWNS)
        if pid == 0:
            _become_zygote(key, root.path, self._null, control)
        return pid


def supported() -> bool:
    """Whether this kernel can hand a folder to a process that does not see it. Tried out."""
    try:
        os.close(syscalls.open_tree("/", SEALED))
    except OSError:
        return False
    return True


def _key(spec: StartSpec) -> Key | None:
    """None for a spec that must be executed."""
    if (
        spec.zygote is None
        or spec.argv[1:3] != ["-I", "-S"]
        or any(name.startswith(_EXEC_VARIABLES) for name in spec.env)
    ):
        return None
    if any(prefix.startswith(TEMPORARY) for prefix in spec.prefixes):
        return None
    return spec.argv[0], spec.prefixes, spec.targets[spec.zygote], spec.zygote


def _become_zygote(key: Key, root: str, null: int, control: int) -> None:
    """The child's way to the zygote's program; never returns. What fails closes the socket."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        sandbox.die_with_parent(signal.SIGKILL)
        Descriptors(null=null, stdout=null, stderr=null, listen=control, status=control).take()
        executable, _, source, target = key
        sandbox.take_root(root, [(source, target), (_OWN_FOLDER, sandbox.LAUNCHER_TARGET)])
        if os.geteuid() != 0:
            syscalls.keep_capabilities(syscalls.CAP_SYS_ADMIN, syscalls.CAP_SETPCAP)
        program = [executable, "-I", "-S", f"{sandbox.LAUNCHER_TARGET}/__main__.py", "zygote", _PADDING]
        os.execve(executable, program, {"LANG": "C.UTF-8"})  # noqa: S606
    finally:
        os._exit(127)
