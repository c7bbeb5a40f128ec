"""What the application works with: the ports, and the times it allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sless_runtime_manager.application.board import Board
from sless_runtime_manager.application.slots import StartSlots
from sless_runtime_manager.ports import FunctionLogs, Prober, Registry, RuntimeBackend
from sless_runtime_manager.scaling import Policy


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long things may take.

    load            an instance, from its start to its HELLO.
    adopt           an instance that ran before this process did, until watchers are told without it.
    end_notice      the word of how an instance ended, after its connection closed.
    acknowledgement a watcher's, of what it was sent.
    unlimited_drain running calls of a function without a timeout, once their instance was told to drain.
    deleted_drain   the same, when the function is deleted.
    drain_margin    what a timeout is exceeded by: the instance's own answer to it, and the way back.
    stop_grace      an instance's own clean-up after SIGTERM.
    """

    load: timedelta = timedelta(seconds=60)
    adopt: timedelta = timedelta(seconds=5)
    end_notice: timedelta = timedelta(seconds=2)
    acknowledgement: timedelta = timedelta(seconds=15)
    unlimited_drain: timedelta = timedelta(hours=1)
    deleted_drain: timedelta = timedelta(minutes=5)
    drain_margin: timedelta = timedelta(seconds=6)
    stop_grace: timedelta = timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What every keeper shares. `new_id` gives instance identities, `clock` the time."""

    backend: RuntimeBackend
    prober: Prober
    registry: Registry
    logs: FunctionLogs
    board: Board
    slots: StartSlots
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    policy: Policy
    times: Times = field(default_factory=Times)
