"""The supervisor: starts the programs in order, restarts what dies, stops all within a bound. One thread, no event loop of others."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sless_cli.embedded.log import PlatformLog
from sless_cli.embedded.loop import Loop
from sless_cli.embedded.supervised import Program, State, Supervised

DEATHS_UNTIL_FAILURE = 3
_SHOWN_LINES = 6


@dataclass(frozen=True, slots=True)
class StopBounds:
    """How long a stop may take: `each` program, all but the database until `services`, everything until `total`."""

    each: timedelta = timedelta(seconds=4)
    services: timedelta = timedelta(seconds=6.5)
    total: timedelta = timedelta(seconds=9)


class Supervisor:
    """Runs programs, the order given being the order of start; they are stopped in the reverse order.

    ready   is called once, when all are ready or done for the first time
    step    is called with the name of each program that has become ready or done for the first time
    """

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        loop: Loop,
        log: PlatformLog,
        start_limit: timedelta,
        stop_bounds: StopBounds | None = None,
        ready: Callable[[], None] = lambda: None,
        step: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._loop = loop
        self._log = log
        self._ready, self._step = ready, step
        self._bounds = stop_bounds or StopBounds()
        self._start_limit = start_limit
        self._children = [Supervised(program, loop=loop, log=log, changed=self._changed) for program in programs]
        self._others: dict[int, Callable[[int], None]] = {}
        self._announced: set[str] = set()
        self._stop_began: float | None = None
        self.failure: str | None = None
        self.is_ready = False
        loop.on_signals((signal.SIGCHLD,), lambda _number: self._reap())

    @property
    def children(self) -> Sequence[Supervised]:
        """All programs, for status."""
        return self._children

    @property
    def stopping(self) -> bool:
        """Whether a stop has begun."""
        return self._stop_began is not None

    def start(self) -> None:
        """Start what needs nothing else; the rest follows from `run`."""
        self._loop.after(self._start_limit.total_seconds(), self._start_took_too_long)
        self._start_due()

    def run(self) -> None:
        """Supervise until everything has stopped, which `stop` or a failed start brings about."""
        self._loop.run_while(lambda: not self._finished())

    def stop(self) -> None:
        """Begin to stop everything, the last started first; again: no change."""
        if self._stop_began is not None:
            return
        self._stop_began = time.monotonic()
        self._log.event("stopping")
        for child in self._children:
            child.retire()
        services = [child for child in self._children if not child.program.needed_last]
        self._loop.after(self._bounds.services.total_seconds(), lambda: _kill_all(services))
        self._loop.after(self._bounds.total.total_seconds(), lambda: _kill_all(self._children))
        self._stop_next()

    def adopt(self, pid: int, ended: Callable[[int], None]) -> None:
        """Reap this child too, which is not supervised; `ended` is called with its wait status."""
        self._others[pid] = ended

    def _finished(self) -> bool:
        if self._stop_began is None:
            return False
        overdue = time.monotonic() - self._stop_began > self._bounds.total.total_seconds() + 0.5
        return overdue or all(child.settled for child in self._children)

    def _start_due(self) -> None:
        if self.stopping:
            return
        came_up = {child.name for child in self._children if child.ever_ready}
        for child in self._children:
            if child.state is State.WAITING and came_up.issuperset(child.program.after):
                child.start()

    def _changed(self, child: Supervised) -> None:
        if self.stopping:
            if child.settled:
                self._stop_next()
            return
        if child.state in {State.READY, State.DONE}:
            self._came_up(child)
        elif not self.is_ready and self._is_hopeless(child):
            self.fail(f"{child.name} {child.ending}{_reason(child)}")
        elif child.state is State.FAILED:
            self._log.event(f"{child.name} {child.ending}")

    def _came_up(self, child: Supervised) -> None:
        if child.name not in self._announced:
            self._announced.add(child.name)
            self._log.event(f"{child.name} is {child.state}")
            self._step(child.name)
        self._start_due()
        if not self.is_ready and all(each.ever_ready for each in self._children):
            self.is_ready = True
            self._ready()

    def _is_hopeless(self, child: Supervised) -> bool:
        return child.state is State.FAILED or child.deaths_before_ready >= DEATHS_UNTIL_FAILURE

    def _start_took_too_long(self) -> None:
        if self.is_ready or self.stopping:
            return
        late = [child for child in self._children if not child.ever_ready and child.state is not State.WAITING]
        named = ", ".join(child.name for child in late) or "nothing"
        seconds = self._start_limit.total_seconds()
        self.fail(f"the start took longer than {seconds:g} s; still waiting for {named}{_reason(*late)}")

    def fail(self, reason: str) -> None:
        """The start has failed for this reason: stop everything."""
        self.failure = reason
        self._log.event(f"the start failed: {reason}")
        self.stop()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._exited(pid, status)

    def _exited(self, pid: int, status: int) -> None:
        ended = self._others.pop(pid, None)
        if ended is not None:
            ended(status)
        for child in self._children:
            if child.pid == pid:
                child.exited(status)

    def _stop_next(self) -> None:
        for child in reversed(self._children):
            if child.state is State.STOPPING:
                return
            if not child.settled:
                grace = self._bounds.each.total_seconds()
                # Armed first: a child of which nothing runs settles within stop(), and the next is stopped from there.
                self._loop.after(grace, _kill_if(child, child.pid))
                child.stop()
                return


def _kill_all(children: Sequence[Supervised]) -> None:
    for child in children:
        child.kill()


def _kill_if(child: Supervised, pid: int | None) -> Callable[[], None]:
    """Kill it if it is this process still."""

    def kill() -> None:
        if pid is not None and child.pid == pid:
            child.kill()

    return kill


def _reason(*children: Supervised) -> str:
    lines = [readable(line) for child in children for line in child.recent_lines()[-_SHOWN_LINES:]]
    return ":\n  " + "\n  ".join(lines) if lines else ""


def readable(line: str) -> str:
    """A log line for people: of a JSON one what happened, and the exception's own line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict) or "event" not in entry:
        return line
    trace = str(entry.get("exception", "")).strip().splitlines()
    return ": ".join([str(entry["event"]), *trace[-1:]])


def status_of(children: Sequence[Supervised], rss: Callable[[int], float | None]) -> list[Mapping[str, object]]:
    """The services part of `sless status`: `rss` gives a process's resident memory in MiB."""
    return [
        {
            "name": child.name,
            "pid": child.pid,
            "state": str(child.state),
            "rss_mb": None if child.pid is None else rss(child.pid),
            "restarts": child.restarts,
        }
        for child in children
        if not child.program.once
    ]
