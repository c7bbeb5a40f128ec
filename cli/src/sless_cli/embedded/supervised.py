"""One supervised child process: started, known to be ready, restarted with back-off, stopped."""

from __future__ import annotations

import enum
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from sless_cli.embedded import processes
from sless_cli.embedded.log import Outlet, PlatformLog
from sless_cli.embedded.loop import Loop, Timer

_FIRST_DELAY_SEC = 0.1
_LONGEST_DELAY_SEC = 5.0
_HEALTHY_AFTER_SEC = 10.0
_PROBE_INTERVAL_SEC = 0.02


class State(enum.StrEnum):
    """What `sless status` says of a child."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Start:
    """What a program gets when it is started.

    output  descriptor for its stdout and stderr
    ready   descriptor into which it writes READY when it can be called
    first   whether this is its first start under this supervisor
    """

    output: int
    ready: int
    first: bool


@dataclass(frozen=True, slots=True)
class Program:
    """How one child is run.

    start        forks it; its pid. An exception counts as a start that failed.
    after        names of programs that must have been ready (or done) once before it is started first
    once         a task that ends with exit code 0, and is not restarted; else a server
    probe        asked again and again whether it is ready; None: the child says so itself through `Start.ready`
    stop_signal  asks it to end in order
    sweep        whether what it leaves in its process group is killed when it has ended
    needed_last  others write into it until they end: it is spared when the time for those is over
    """

    name: str
    start: Callable[[Start], int]
    after: tuple[str, ...] = ()
    once: bool = False
    probe: Callable[[], bool] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    sweep: bool = True
    needed_last: bool = False


class Supervised:
    """A program and its current process. `changed` is called after each change of state."""

    def __init__(
        self, program: Program, *, loop: Loop, log: PlatformLog, changed: Callable[[Supervised], None]
    ) -> None:
        self.program = program
        self.state = State.WAITING
        self.pid: int | None = None
        self.restarts = 0
        self.deaths_before_ready = 0
        self.ever_ready = False
        self.last_lines: tuple[str, ...] = ()
        self.ending = ""
        self._loop = loop
        self._log = log
        self._changed = changed
        self._outlet: Outlet | None = None
        self._ready_reader = -1
        self._ready_watched = False
        self._retired = False
        self._delay = _FIRST_DELAY_SEC
        self._ready_since: float | None = None
        self._timer: Timer | None = None

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def settled(self) -> bool:
        """Whether nothing of it runs or will run by itself."""
        return self.state in {State.WAITING, State.STOPPED, State.DONE, State.FAILED}

    def recent_lines(self) -> tuple[str, ...]:
        """The last lines that its process wrote, or its last process when none runs."""
        return tuple(self._outlet.last_lines) if self._outlet is not None else self.last_lines

    def start(self) -> None:
        """Start a process now."""
        self._cancel_timer()
        self._outlet = outlet = Outlet(self._loop, self._log, self.name)
        self._ready_reader, ready_writer = os.pipe2(os.O_CLOEXEC)
        first = self.restarts == 0 and self.deaths_before_ready == 0
        try:
            self.pid = self.program.start(Start(outlet.writer, ready_writer, first))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other children must live on
            self._could_not_start(error, ready_writer)
            return
        outlet.child_started()
        os.close(ready_writer)
        self._become(State.STARTING)
        self._await_ready()

    def retire(self) -> None:
        """Never start it again; what runs runs on until `stop`."""
        self._retired = True
        if self.pid is None and not self.settled:
            self._cancel_timer()
            self.state = State.STOPPED

    def exited(self, status: int) -> None:
        """Its process has ended with this wait status."""
        pid, code = self.pid, processes.exit_code(status)
        self.ending = (
            f"ended with exit code {code}" if os.WIFEXITED(status) else f"was killed by signal {os.WTERMSIG(status)}"
        )
        if pid is not None and self.program.sweep:
            processes.kill_group(pid)
        self._let_go()
        if self.program.once and code == 0:
            self.ever_ready = True
            self._become(State.DONE)
        elif self._retired:
            self._become(State.STOPPED)
        else:
            self._log.event(f"{self.name} (pid {pid}) {self.ending}")
            self._died()

    def stop(self) -> None:
        """Ask it to end; `exited` follows, unless nothing runs."""
        self._cancel_timer()
        if self.pid is None:
            self._become(State.STOPPED)
            return
        processes.signal_process(self.pid, self.program.stop_signal)
        self._become(State.STOPPING)

    def kill(self) -> None:
        """End it at once, without asking."""
        if self.pid is not None:
            self._log.event(f"{self.name} (pid {self.pid}) did not stop in time and is killed")
            processes.kill_group(self.pid)

    def _could_not_start(self, error: Exception, ready_writer: int) -> None:
        self.ending = f"could not be started: {error}"
        self._log.event(f"{self.name} {self.ending}")
        os.close(ready_writer)
        if self._outlet is not None:
            self._outlet.child_started()
        self._let_go()
        self._died()

    def _died(self) -> None:
        if not self.ever_ready:
            self.deaths_before_ready += 1
        if self.program.once:
            self._become(State.FAILED)
            return
        self.restarts += 1
        self._timer = self._loop.after(self._next_delay(), self.start)
        self._become(State.RESTARTING)

    def _next_delay(self) -> float:
        """0.1 s, doubling to 5 s; from the start again after 10 s of health."""
        healthy = self._ready_since is not None and time.monotonic() - self._ready_since >= _HEALTHY_AFTER_SEC
        delay = _FIRST_DELAY_SEC if healthy else self._delay
        self._delay = min(2 * delay, _LONGEST_DELAY_SEC)
        self._ready_since = None
        return delay

    def _await_ready(self) -> None:
        if self.program.probe is None:
            self._loop.watch(self._ready_reader, self._read_ready)
            self._ready_watched = True
        else:
            self._probe()

    def _read_ready(self) -> None:
        text = os.read(self._ready_reader, 64)
        self._close_ready()
        if text.startswith(b"READY"):
            self._is_ready()

    def _probe(self) -> None:
        if self.program.probe is not None and self.program.probe():
            self._is_ready()
        else:
            self._timer = self._loop.after(_PROBE_INTERVAL_SEC, self._probe)

    def _is_ready(self) -> None:
        self.ever_ready = True
        self._ready_since = time.monotonic()
        if self.state is not State.STOPPING:
            self._become(State.READY)

    def _become(self, state: State) -> None:
        self.state = state
        self._changed(self)

    def _let_go(self) -> None:
        self.pid = None
        self._cancel_timer()
        self._close_ready()
        if self._outlet is not None:
            self._outlet.drain()
            self.last_lines = tuple(self._outlet.last_lines)
            self._outlet = None

    def _close_ready(self) -> None:
        if self._ready_reader < 0:
            return
        if self._ready_watched:
            self._loop.unwatch(self._ready_reader)
            self._ready_watched = False
        os.close(self._ready_reader)
        self._ready_reader = -1

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
