"""One instance as the launcher knows it: its process, its pipes, its end."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time

from . import folder as folders
from . import watchdog
from .blank import encoded
from .cgroups import Cgroups
from .confinement import PROCESSES, Confinement, Grounds, memory_bytes
from .mounts import SEALED
from .nursery import Blank
from .output import Output
from .protocol import EXHAUSTED, INVALID, START_FAILED, RequestError, StartSpec
from .rootfs import Roots
from .spawn import Descriptors, spawn
from .syscalls import open_tree
from .watchdog import MEMORY, Bounds

START_SEC = 10.0
_BIRTH_SEC = 2.0
"""How long a zygote may take to fork what a start waits for."""

_PURGE_SEC = 2.0
_READ_BYTES = 64 << 10
_LATER = frozenset((errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EUSERS))


class Instance:
    """From the moment its process is forked until its server has let it go.

    status     descriptor that tells what becomes of the process; for `hear`.
    pipes      descriptors of what it prints, by the stream's name; for `read`.
    deadline   monotonic time at which `late` must be called, None for never.
    failure    why it could not be started, once that is known.
    running    whether the program runs or has run.
    most_bytes memory that it may use.
    bounds     what it may use, for whoever looks after that where the kernel does not.
    exceeded   what of it ran out and so ended it (watchdog.py), None when nothing did.
    blank      the blank that it was given to, until that has spoken; its pid is 0 as long.
    spec       kept as long as it may have to be started anew.
    """

    def __init__(
        self,
        spec: StartSpec,
        folder: str,
        pid: int,
        status: int,
        pipes: dict[int, str],
        *,
        grounds: Grounds,
        confined: bool,
        blank: Blank | None = None,
    ) -> None:
        self.instance_id = spec.instance_id
        self.note = spec.note
        self.most_bytes = memory_bytes(spec)
        self.bounds = Bounds(
            memory_bytes=self.most_bytes if grounds.group is None else None,
            mounts=confined,
            folder=grounds.scratch,
            disk_bytes=spec.memory_mb << 20,
        )
        self.folder = folder
        self.pid = pid
        self.status = status
        self.pipes = pipes
        self.started_at = time.time()
        self.running = False
        self.asked_to_end = False
        self.failure: RequestError | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.exceeded: str | None = None
        self.deadline: float | None = time.monotonic() + (START_SEC if pid else _BIRTH_SEC)
        self.blank = None if pid else blank
        self.spec = None if pid else spec
        self.output = Output(time.monotonic())
        self._group = grounds.group
        self._confined = confined
        self._purging = False
        self._heard = b""

    @property
    def socket(self) -> str:
        """Where it is reached."""
        return folders.socket_path(self.folder)

    def describe(self) -> dict[str, object]:
        """What `start` and `list` answer."""
        return {
            "instance_id": self.instance_id,
            "note": self.note,
            "pid": self.pid,
            "running": self.running,
            "socket": self.socket,
            "started_at": self.started_at,
        }

    def hear(self) -> bool:
        """Take what the process reports; False when it will report no more."""
        while True:
            try:
                chunk = os.read(self.status, _READ_BYTES) if self.blank is None else self._be_born(self.blank)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False  # A socket that was closed with something unread.
            if not chunk:
                return False
            *lines, self._heard = (self._heard + chunk).split(b"\n")
            for line in lines:
                self._note(json.loads(line))

    def _be_born(self, blank: Blank) -> bytes:
        """What the blank says first; from then on it is like any instance."""
        chunk = blank.receive()
        if blank.pid:
            self.pid, self.blank, self.spec = blank.pid, None, None
            blank.channel.detach()  # Its descriptor is `status`.
            self.deadline = time.monotonic() + START_SEC
        return chunk

    def read(self, pipe: int) -> bytes | None:
        """Once what it has printed; empty at the end, None when there is nothing now."""
        try:
            return os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return None

    def end(self, grace: float) -> None:
        """SIGTERM to the program, the end of everything after `grace` seconds. Asked for twice, the earlier end counts."""
        until = time.monotonic() + grace
        if not self.running:
            self.asked_to_end = True
            self.kill()
        elif not self.asked_to_end:
            self.asked_to_end = True
            self.deadline = until
            os.kill(self.pid, signal.SIGTERM)
        elif self.deadline is not None:
            self.deadline = min(self.deadline, until)

    def kill(self) -> None:
        """End every process of the instance. The kernel does so with pid 1 of a namespace; at level `none` the reaper does it,
        and is killed as well when it takes too long."""
        if not self.pid:
            return  # As soon as it is known.
        if self._confined or self._purging:
            self.deadline = None
            os.kill(self.pid, signal.SIGKILL)
            return
        self._purging = True
        self.deadline = time.monotonic() + _PURGE_SEC
        os.kill(self.pid, signal.SIGHUP)

    def late(self) -> None:
        """The deadline has passed."""
        if not self.running and self.failure is None:
            message = f"the program did not run after {START_SEC:.0f} s: the machine has too much to do"
            self.failure = RequestError(EXHAUSTED, message, step="start a process")
        self.kill()

    def reaped(self, wait_status: int) -> None:
        """Its first process is gone, and all others with it."""
        self.deadline = None
        self.hear()
        code = os.waitstatus_to_exitcode(wait_status)
        if self.exit_code is None and self.signal is None:
            self.exit_code, self.signal = (None, -code) if code < 0 else (code, None)
        if self._ended_by_kernel() and self._group is not None and self._group.ran_out():
            self.exceeded = MEMORY
        if not self.running and self.failure is None:
            self.failure = self._why_not_started()

    def _ended_by_kernel(self) -> bool:
        return self.signal == signal.SIGKILL and not self.asked_to_end and self.exceeded is None

    def _why_not_started(self) -> RequestError:
        if self.asked_to_end:
            return RequestError(START_FAILED, "the instance was stopped before its program ran", step="start a process")
        # A signal that nobody asked for is the kernel's, which is out of memory.
        how = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        message = f"its process ended before the program ran ({how})"
        return RequestError(EXHAUSTED if self.signal else START_FAILED, message, step="start a process")

    def never_born(self) -> None:
        """It has no process, and will have none."""
        self.failure = self._why_not_started()

    def release(self, groups: Cgroups | None) -> None:
        """Close its descriptors, remove its folder and its control group."""
        if groups is not None and self._group is not None:
            groups.remove(self._group)
        if self.blank is not None:
            self.blank.channel.detach()
        for descriptor in (self.status, *self.pipes):
            os.close(descriptor)
        self.pipes = {}
        folders.remove(self.folder)

    def used_bytes(self, family: list[int]) -> int:
        """Memory that it holds now. `family`: the processes below its first one."""
        return watchdog.resident(family) if self._group is None else self._group.used()

    def end_for(self, exceeded: str) -> None:
        """End everything: it uses more than it may."""
        self.exceeded = exceeded
        self.kill()

    def _note(self, message: dict[str, object]) -> None:
        state = message["state"]
        if state == "running":
            self.running = True
            self.deadline = None
        elif state == "failed":
            self.failure = refusal(str(message["step"]), int(str(message["errno"])), str(message["message"]))
        elif state == "ended":
            code, number = message["exit_code"], message["signal"]
            self.exit_code = code if isinstance(code, int) else None
            self.signal = number if isinstance(number, int) else None


def launch(spec: StartSpec, confinement: Confinement, roots: Roots | None, folder: str, null: int) -> Instance:
    """Fork the instance's first process. Raises RequestError, and leaves nothing then."""
    opened: list[int] = []
    grounds = None
    try:
        _check(spec, folder)
        grounds = Grounds(None if roots is None else _prepare(spec, roots))
        opened.append(folders.prepare(folder, spec.note))
        for _ in range(3):
            opened += os.pipe()
        listener, status, status_end, stdout, stdout_end, stderr, stderr_end = opened
        given = Descriptors(null=null, stdout=stdout_end, stderr=stderr_end, listen=listener, status=status_end)
        grounds.prepare(confinement, spec)
        pid = spawn(confinement, spec, grounds, given)
    except (OSError, RequestError) as error:
        for descriptor in opened:
            os.close(descriptor)
        folders.remove(folder)
        if grounds is not None:
            grounds.give_up()
        if isinstance(error, OSError):
            raise refusal("start a process", error.errno or 0, describe(error)) from error
        raise
    for descriptor in (listener, status_end, stdout_end, stderr_end):
        os.close(descriptor)
    for descriptor in (status, stdout, stderr):
        os.set_blocking(descriptor, False)
    pipes = {stdout: "stdout", stderr: "stderr"}
    return Instance(spec, folder, pid, status, pipes, grounds=grounds, confined=confinement.namespaces)


def occupy(blank: Blank, spec: StartSpec, roots: Roots, folder: str) -> Instance:
    """Have a blank become the instance. Raises RequestError and OSError, and leaves nothing then, not the blank either."""
    opened: list[int] = []
    try:
        _check(spec, folder)
        _prepare(spec, roots)
        opened.append(folders.prepare(folder, spec.note))
        if blank.group is not None:
            blank.group.limit(memory_bytes=memory_bytes(spec), processes=PROCESSES)
        opened += [open_tree(source, SEALED) for source, target in spec.layers if target != spec.zygote]
        socket.send_fds(blank.channel, [encoded(spec)], opened)
    except (OSError, RequestError):
        folders.remove(folder)
        blank.discard()
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)
    pipes = {blank.stdout: "stdout", blank.stderr: "stderr"}
    status = blank.channel.fileno() if blank.pid == 0 else blank.channel.detach()
    grounds = Grounds(None)
    grounds.group = blank.group
    return Instance(spec, folder, blank.pid, status, pipes, grounds=grounds, confined=True, blank=blank)


def refusal(step: str, number: int, what: str) -> RequestError:
    """The answer to a start whose `step` failed with the error `number`; one that may succeed later says so by its code."""
    code = EXHAUSTED if number in _LATER else START_FAILED
    return RequestError(code, f"could not {step}: {what}", step=step, errno=number)


def describe(error: OSError) -> str:
    """`object: reason`."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


def _check(spec: StartSpec, folder: str) -> None:
    for prefix in spec.prefixes:
        if folder.startswith(f"{prefix}/"):
            message = f"{prefix} holds the run folder and cannot be shown to instances"
            raise RequestError(INVALID, message, step="show the interpreter")
    for source, _ in spec.layers:
        if not os.path.isdir(source):
            message = f"the layer {source} is no folder that the launcher can see"
            raise RequestError(INVALID, message, step="show the layers")


def _prepare(spec: StartSpec, roots: Roots) -> str:
    """The root that the instance begins with, and in it a place for each layer."""
    root = roots.root_for(spec.prefixes)
    for _, target in spec.layers:
        root.add_folder(target)
    return root.path
