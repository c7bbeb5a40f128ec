"""What the application needs from outside, as Protocols; the docstrings say what fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol

from sless_runtime_manager.domain import Function, Outcome, Workload

# --- instances -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InstanceSpec:
    """One instance to start.

    instance_id      `i-` and 16 hexadecimal digits; names its folder.
    function_uid     identity of the function, for the handle.
    namespace        the owner's namespace.
    uid_index        which user id of the platform's range the process runs under where there is a choice; one a namespace, from 0.
    name, version    the function's name and the version that runs.
    generation       the generation that this instance belongs to.
    template         digest of everything that shapes the instance; two specs with one template differ in nothing that matters.
    runtime          `python3.11`.
    entrypoint       `module.function`.
    layers           digests (`sha256:` and 64 hexadecimal digits) of the layers, lowest first; each is unpacked already.
    memory_mb        the function's memory in MiB.
    max_concurrency  calls that the instance takes at once.
    env              the user's variables, secret ones included; names that begin with SLESS_ are refused.
    grace            how long running calls may take after SIGTERM.
    """

    instance_id: str
    function_uid: str
    namespace: str
    uid_index: int
    name: str
    version: int
    generation: int
    template: str
    runtime: str
    entrypoint: str
    layers: tuple[str, ...]
    memory_mb: int
    max_concurrency: int
    env: Mapping[str, str] = field(repr=False)
    grace: timedelta


@dataclass(frozen=True)
class InstanceHandle:
    """One instance that is alive. `address` is `unix:/path` or `host:port`; it may be connected to at once."""

    instance_id: str
    address: str
    started_at: datetime
    function_uid: str
    namespace: str
    name: str
    version: int
    generation: int
    template: str
    max_concurrency: int


@dataclass(frozen=True)
class InstanceEnded:
    """An instance is gone, whatever the cause: its own end, `stop`, or the machine's.

    exit_code, signal  how the process ended; one of them is set, or neither when nobody saw it end.
    exceeded           what it used more of than it may, and was ended for; "" for any other end.
    message            one sentence for people.
    tail               the end of what it printed, at most 64 KiB.
    """

    instance_id: str
    exit_code: int | None
    signal: int | None
    message: str
    tail: str
    exceeded: Literal["", "memory", "disk"] = ""


@dataclass(frozen=True)
class InstanceOutput:
    """Text that an instance printed past the instance protocol (start-up, native code, a crash). Not cut at lines.

    stream   `stdout` or `stderr`.
    dropped  bytes of this instance that were dropped before this text because nobody read them in time.
    """

    instance_id: str
    stream: Literal["stdout", "stderr"]
    text: str
    dropped: int = 0


@dataclass(frozen=True)
class InstanceListens:
    """An instance that is being started can be connected to at `address`; who does so waits until it is ready."""

    instance_id: str
    address: str


Happening = InstanceEnded | InstanceListens | InstanceOutput
"""What a backend tells of an instance."""


@dataclass(frozen=True)
class Isolation:
    """What separates instances from each other and from the platform; `sless status` and docs/security.md use these words.

    level      `namespaces`: own root, processes and users; `none`: an ordinary process.
    memory     `control group v1`, `control group v2`: exact; `approximate`: looked at once a second.
    processes  how their number is limited: by the same control group, `counted for each user`, `not limited`.
    seccomp    whether a filter of system calls is in force.
    network    `host`: the machine's network; it is no boundary.
    reason     one sentence: why not more; empty when there is nothing to say.
    """

    level: str
    memory: str
    processes: str
    seccomp: bool
    network: str
    reason: str


class RuntimeBackend(Protocol):
    """Where instances run.

    Every method raises LauncherUnavailable while the backend cannot be reached.
    """

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        """Start a process for `spec`; answers when the user's process has been started, not when it is ready.

        Raises StartFailed (a step failed; the message says which), InstancesExhausted (later it may succeed; MemoryExhausted: when
        others have ended), and
        InvalidArgument for a spec that cannot be right. After an error nothing of the instance is left.
        """
        ...

    async def stop(self, instance_id: str, *, grace: timedelta) -> None:
        """Ask the instance to end, kill it with all its processes after `grace`; returns when it is gone.

        Idempotent: an instance that is gone or was never there is no error.
        """
        ...

    async def list(self) -> Sequence[InstanceHandle]:
        """All instances that are alive, also those that an earlier process of this service started."""
        ...

    def events(self) -> AsyncIterator[Happening]:
        """What happens to instances, in order, from one reader. An end is told once and never dropped, also one that
        happened while this service was away; output is dropped, and counted, when the reader is slow. That an instance listens
        is told by backends that know before `start` returns."""
        ...

    async def isolation(self) -> Isolation:
        """What separates the instances on this machine."""
        ...

    async def close(self) -> None:
        """Let go of the backend. The instances live on."""
        ...


# --- what instances say ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that an instance printed. `stream`: `stdout` or `stderr`; no newline in `text`."""

    at: datetime
    stream: str
    text: str


class FunctionLogs(Protocol):
    """Where the lines are kept that belong to no call."""

    def write(self, function_uid: str, instance_id: str, lines: Sequence[LogLine]) -> None:
        """Appends lines to the function's log. Never raises: a log that can't be written is reported, once."""
        ...

    def remove(self, function_uid: str) -> None:
        """Deletes the function's log; no error when there is none."""
        ...


class InstanceLink(Protocol):
    """A kept connection to an instance that has said HELLO.

    max_concurrency  calls that it takes at once.
    departing        done once the instance asks for no more calls.
    closed           done once the connection is closed, by whichever side.
    """

    max_concurrency: int
    departing: asyncio.Future[None]
    closed: asyncio.Future[None]

    async def lost(self) -> str:
        """Returns, with the reason, once new callers can't use the instance although the connection is open: somebody has removed
        its socket, or it gives no sign of life."""
        ...

    def close(self) -> None:
        """Close the connection at once; the instance lives on."""
        ...


class Prober(Protocol):
    """Asks an instance whether it is ready."""

    async def open(self, handle: InstanceHandle, on_lines: Callable[[Sequence[LogLine]], None]) -> InstanceLink:
        """Connect and wait, without a bound of its own, for the instance's HELLO, which says that the user's code is loaded.

        `on_lines` is given lines that belong to no call. Raises HandlerNotLoaded and InstanceUnreachable.
        """
        ...


# --- the registry ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChanges:
    """One batch of the registry's watch, in the order of its revisions.

    reset      forget all that was known: a snapshot begins with this batch.
    complete   no more batches of the same snapshot follow; always true outside of one.
    functions  changed functions as they are now.
    purged     identities of functions that are gone for good.
    """

    reset: bool
    complete: bool
    functions: tuple[Function, ...]
    purged: tuple[str, ...] = ()


class Registry(Protocol):
    """What should run, and where to tell what does."""

    def watch(self) -> AsyncIterator[FunctionChanges]:
        """All functions, then every change, without end: while the registry is away it waits, then goes on where it was.

        Asking for the next batch says that the one before is applied.
        """
        ...

    async def get_function(self, function_uid: str) -> Function:
        """What the watch would tell of the function. Raises WorkloadNotFound, and Unavailable and others while that can't be told."""
        ...

    async def get_workload(self, function_uid: str) -> Workload:
        """What should run now. Raises as `get_function`."""
        ...

    async def report_status(self, function_uid: str, outcome: Outcome) -> bool:
        """Tell how a deployment goes; False: it was outdated and is dropped. Raises as `get_function`."""
        ...

    async def report_finalized(self, function_uid: str) -> None:
        """Tell that nothing is left of a deleted function. Raises as `get_function`."""
        ...
