"""What the builder needs of the outside. Every method may raise Unavailable when what is behind it does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from sless_builder.domain.build import BuildState, Claim, FunctionUid, Problem, Report, Result, Source, VersionUid
from sless_builder.domain.known import ConfigChange, FunctionInfo, VersionInfo
from sless_builder.domain.layers import Layer
from sless_builder.ports.machine import Compilation as Compilation
from sless_builder.ports.machine import Compiler as Compiler
from sless_builder.ports.machine import LayerSink as LayerSink
from sless_builder.ports.machine import Leftovers as Leftovers
from sless_builder.ports.machine import Module as Module
from sless_builder.ports.machine import RuntimeFile as RuntimeFile
from sless_builder.ports.machine import Runtimes as Runtimes
from sless_builder.ports.machine import Sandbox as Sandbox
from sless_builder.ports.machine import Spool as Spool
from sless_builder.ports.machine import Workspace as Workspace

# -- the registry


@dataclass(frozen=True, slots=True)
class Target:
    """The function that an upload is for, as the caller names it. `kind` is the registry's number of it, 0 for either."""

    namespace: str
    name: str
    kind: int


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to be made of code that is stored. `request_id` and `etag` are the caller's own, "" when there is none."""

    target: Target
    code_sha256: str
    size_bytes: int
    created_by: str
    build_only: bool
    etag: str
    request_id: str
    config: ConfigChange | None = None


@dataclass(frozen=True, slots=True)
class CreatedVersion:
    """The version that an upload became. `answer` is the registry's whole answer, serialised, to be passed on unread."""

    uid: VersionUid
    answer: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """One batch of the registry's changes, as far as they matter here.

    revision   every change up to it has been given once this batch has.
    reset      forget what was known before.
    more       further batches of the same snapshot follow.
    wanted     versions that wait for a build, each with the attempts that the registry has heard of.
    cancelled  versions whose build nobody wants any more.
    deleted    functions that are being deleted: cleaning up is to be reported.
    purged     functions that are gone for good.
    dropped    versions that are kept no more, while their functions live on.
    functions  every function in this batch that is not gone.
    versions   every version in this batch.
    """

    revision: int
    reset: bool = False
    more: bool = False
    wanted: tuple[tuple[Source, int], ...] = ()
    cancelled: tuple[VersionUid, ...] = ()
    deleted: tuple[FunctionUid, ...] = ()
    purged: tuple[FunctionUid, ...] = ()
    dropped: tuple[VersionUid, ...] = ()
    functions: frozenset[FunctionUid] = frozenset()
    versions: frozenset[VersionUid] = frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All functions and all versions that there are."""

    functions: frozenset[FunctionUid] = frozenset()
    versions: frozenset[VersionUid] = frozenset()

    def with_changes(self, changes: Changes) -> Snapshot:
        """The snapshot as far as it is known after one more batch of it."""
        waiting = {source.version_uid for source, _ in changes.wanted}
        return Snapshot(self.functions | changes.functions, self.versions | changes.versions | waiting)


class Feed(Protocol):
    """A watch that runs."""

    def __aiter__(self) -> AsyncIterator[Changes]: ...

    async def acknowledge(self, revision: int) -> None:
        """Tell the registry that everything up to this revision is stored here."""
        ...


class Registry(Protocol):
    """The registry, called by the builder for itself."""

    async def function(self, target: Target) -> FunctionInfo:
        """A live function. Raises NotFound, also when it is of the other kind."""
        ...

    async def version(self, target: Target, number: int) -> VersionInfo:
        """A version of a function; number 0: the newest. Raises NotFound."""
        ...

    async def create_version(self, version: NewVersion) -> CreatedVersion:
        """Record an upload. Raises what the registry refuses it with."""
        ...

    async def report(self, report: Report) -> BuildState | None:
        """Tell how a build goes; gives the state that the version has now, None when the version is gone. Idempotent."""
        ...

    async def report_finalized(self, function_uid: FunctionUid) -> None:
        """Tell that nothing is left here of a deleted function. Idempotent."""
        ...

    def watch(self, revision: int | None) -> AbstractAsyncContextManager[Feed]:
        """Follow versions and functions after `revision`; with a snapshot of all for None."""
        ...


# -- what is kept


@dataclass(frozen=True, slots=True)
class LogPart:
    """Log text that was not read before, where to read on, and how far the build is."""

    text: str
    position: int
    state: BuildState


@dataclass(frozen=True, slots=True)
class Counters:
    """What a version's build has cost so far: claims, runs of the sandbox, layers made (not found)."""

    attempts: int
    runs: int
    layers: int


class Uploads(Protocol):
    """Which uploads are under way: an object is named here before it is stored, so that no clean-up takes it away."""

    async def begin_upload(self, upload_id: UUID, function_uid: FunctionUid, key: str) -> None:
        """Name the object that is about to be stored."""
        ...

    async def end_upload(self, upload_id: UUID, *, kept: bool) -> None:
        """The upload became a version (which names the object from now on), or it did not and the object may go."""
        ...


class Queue(Protocol):
    """Builds that wait and builds that run. State and lease are one row.

    Methods that take a Claim raise LeaseLost once the build is not that attempt's any more.
    """

    async def revision(self) -> int | None:
        """The registry's revision up to which changes are stored; None before the first."""
        ...

    async def apply(self, changes: Changes, *, whole: Snapshot | None = None) -> None:
        """Store changes and, unless more of a snapshot follows, their revision, in one transaction; the same ones twice do nothing more.

        `whole`: all that there is, at a snapshot's end; builds of anything else are cleaned up.
        """
        ...

    async def claim(self, owner: str, lease: timedelta) -> Claim | None:
        """Take the oldest build that waits, or whose lease ran out; None when there is none.

        Two builds from the same code never run at once: the second waits, and finds the first one's layer.
        A lease that ran out counts as a takeover.
        """
        ...

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        """Keep the claim for another `lease` from now."""
        ...

    async def count_run(self, claim: Claim) -> None:
        """Note that the sandbox is about to run."""
        ...

    async def layer(self, key: str) -> Layer | None:
        """The layer that was made from `key`, by whichever build."""
        ...

    async def hold(self, claim: Claim, keys: Sequence[str], made: Layer | None) -> None:
        """Name the objects that the build's result needs, before they are stored, and the layer that it made.

        A layer that was recorded for the same key before is forgotten: its object was lost, or never stored.
        """
        ...

    async def append_log(self, claim: Claim, text: str) -> None:
        """Add whole lines to the build's log."""
        ...

    async def finish(self, claim: Claim, end: Result | Problem, message: str, log: str) -> None:
        """Store how the build ended, with the log's last lines, in one transaction."""
        ...

    async def retry(self, claim: Claim, after: timedelta, message: str, log: str) -> None:
        """Put the build back because the platform failed at it; it waits for `after`, and `message` says for what."""
        ...

    async def release(self, claim: Claim) -> None:
        """Give the claim up without a failure; nothing when it is lost already. Call it when nothing of the work goes on."""
        ...

    async def counters(self, version_uid: VersionUid) -> Counters | None:
        """What the build has cost; None when there is no such build."""
        ...


class Logs(Protocol):
    """Build logs."""

    async def log(self, version_uid: VersionUid, after: int) -> LogPart | None:
        """What the log has after a position (0: its beginning); None when there is no such build."""
        ...


class Reports(Protocol):
    """What the registry has not been told yet."""

    async def unreported(self, owner: str) -> list[Report]:
        """Builds whose state the registry has not acknowledged: the owner's own, and those that nobody reported for 5 s."""
        ...

    async def acknowledge(self, report: Report, state: BuildState | None) -> None:
        """The registry has taken a report, and says that the version is in `state` (None: it is gone)."""
        ...


class Cleanup(Protocol):
    """What nobody needs any more."""

    async def deletions(self) -> list[FunctionUid]:
        """Functions to be cleaned up after whose builds have all stopped."""
        ...

    async def remove_function(self, function_uid: FunctionUid, *, layers_kept: timedelta = timedelta(0)) -> None:
        """Remove a function's builds and logs; the objects they named become garbage, in the same transaction.

        Layers of versions that were built become so later by `layers_kept`: the same code may come back.
        """
        ...

    async def end_deletion(self, function_uid: FunctionUid) -> None:
        """The registry knows that a function is cleaned up after."""
        ...

    async def trim(self) -> None:
        """Failed and cancelled builds need no more than their archive, dropped ones nothing: the rest of what they named becomes garbage.

        A build whose lease somebody still has is left to a later time.
        """
        ...

    async def forget_uploads(self, older_than: timedelta) -> None:
        """Forget uploads that never ended: their builder was killed."""
        ...

    async def suspect(self, keys: Sequence[str], quarantine: timedelta) -> None:
        """Objects that are there: those that nothing names become garbage once the quarantine is over."""
        ...

    async def garbage(self) -> list[str]:
        """Objects that may be removed now, if nothing names them; the oldest hundred."""
        ...

    def collect(self, key: str) -> AbstractAsyncContextManager[bool]:
        """For the block nobody can begin to name the object; gives whether nothing names it. Afterwards it is no garbage any more."""
        ...


class BuildStore(Uploads, Queue, Logs, Reports, Cleanup, Protocol):
    """All that the builder keeps; every adapter passes the suite in tests/contract/build_store."""


class Listener(Protocol):
    """Waits for one topic."""

    async def wait(self, limit: timedelta) -> bool:
        """Whether something happened since the last wait; waits for it, at most for `limit`."""
        ...


class Signals(Protocol):
    """Says when something may have changed, in any process. It may say so for nothing, and must not be relied upon alone."""

    def listen(self, topic: str) -> AbstractContextManager[Listener]:
        """Hear of a topic from now on: QUEUE, REPORTS, CLEANUP or `build_topic(…)`."""
        ...


QUEUE = "queue"
REPORTS = "reports"
CLEANUP = "cleanup"


def build_topic(version_uid: VersionUid) -> str:
    """The topic of one build: its state or its log changed."""
    return f"build/{version_uid}"
