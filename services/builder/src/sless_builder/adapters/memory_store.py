"""BuildStore in memory: for tests, and to show what the one in PostgreSQL must do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from sless_builder.adapters.signals import LocalSignals
from sless_builder.domain.build import BuildState, Claim, FunctionUid, Problem, Report, Result, Source, VersionUid
from sless_builder.domain.layers import Layer, archive_key, object_key
from sless_builder.errors import LeaseLost
from sless_builder.ports import CLEANUP, QUEUE, REPORTS, Changes, Counters, LogPart, Snapshot, build_topic

_REPORT_TAKEOVER: Final = timedelta(seconds=5)


@dataclass
class _Build:
    source: Source
    order: int
    attempt: int
    objects: list[str]
    due_at: datetime
    changed_at: datetime
    state: BuildState = BuildState.PENDING
    failures: int = 0
    failing_since: datetime | None = None
    takeovers: int = 0
    runs: int = 0
    dropped: bool = False
    owner: str | None = None
    lease_until: datetime | None = None
    end: Result | Problem | None = None
    message: str = ""
    log: list[str] = field(default_factory=list)
    reported: tuple[int, BuildState] | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def leased(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until >= now

    @property
    def unreported(self) -> bool:
        told = (BuildState.BUILDING, BuildState.BUILT, BuildState.FAILED)
        waits = self.state is BuildState.PENDING and self.message != ""
        return (self.state in told or waits) and self.reported != (self.attempt, self.state)


@dataclass
class _Upload:
    function_uid: FunctionUid
    key: str
    begun_at: datetime
    ended: bool = False


class MemoryBuildStore:
    """See BuildStore. Everything is gone with the object."""

    def __init__(self, signals: LocalSignals, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._signals = signals
        self._now = now
        self._revision: int | None = None
        self._builds: dict[VersionUid, _Build] = {}
        self._uploads: dict[UUID, _Upload] = {}
        self._layers: dict[str, tuple[Layer, VersionUid, bool]] = {}
        self._deletions: dict[FunctionUid, None] = {}
        self._garbage: dict[str, datetime] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # -- uploads

    async def begin_upload(self, upload_id: UUID, function_uid: FunctionUid, key: str) -> None:
        async with self._locks[key]:
            self._uploads[upload_id] = _Upload(function_uid, key, self._now())

    async def end_upload(self, upload_id: UUID, *, kept: bool) -> None:
        upload = self._uploads[upload_id]
        if not kept:
            del self._uploads[upload_id]
            self._discard([upload.key])
            self._signals.publish(CLEANUP)
        elif any(b.source.function_uid == upload.function_uid and upload.key in b.objects for b in self._all()):
            del self._uploads[upload_id]
        else:
            upload.ended = True

    # -- the queue

    async def revision(self) -> int | None:
        return self._revision

    async def apply(self, changes: Changes, *, whole: Snapshot | None = None) -> None:
        for source, attempt in changes.wanted:
            self._add(source, attempt)
        here = {build.source.function_uid for build in self._all()}
        missing = here - whole.functions if whole is not None else set()
        gone = [*changes.deleted, *sorted((here & set(changes.purged)) | missing)]
        self._cancel([b for b in self._all() if b.source.version_uid in changes.cancelled])
        self._cancel([b for b in self._all() if b.source.function_uid in gone])
        self._deletions.update(dict.fromkeys(gone))
        self._drop(changes, whole)
        if not changes.more:
            self._revision = changes.revision
        self._signals.publish(CLEANUP)

    async def claim(self, owner: str, lease: timedelta) -> Claim | None:
        now = self._now()
        build = next((build for build in self._all() if self._may_run(build, now)), None)
        if build is None:
            return None
        build.takeovers += build.state is BuildState.BUILDING
        build.message = ""
        build.state, build.attempt, build.owner = BuildState.BUILDING, build.attempt + 1, owner
        build.lease_until, build.started_at, build.changed_at = now + lease, now, now
        self._signals.publish(REPORTS)
        return Claim(
            build.source,
            owner,
            build.attempt,
            failures=build.failures,
            log_bytes=len("".join(build.log).encode()),
            failing=now - (build.failing_since or now),
            takeovers=build.takeovers,
        )

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        self._mine(claim).lease_until = self._now() + lease

    async def count_run(self, claim: Claim) -> None:
        self._mine(claim).runs += 1

    async def layer(self, key: str) -> Layer | None:
        found = self._layers.get(key)
        return None if found is None else found[0]

    async def hold(self, claim: Claim, keys: Sequence[str], made: Layer | None) -> None:
        for key in keys:
            async with self._locks[key]:
                pass
        build = self._mine(claim)
        build.objects[1:] = keys
        if made is not None:
            new = all(layer.digest != made.digest for layer, _, _ in self._layers.values())
            old = self._layers.get(made.key)
            self._layers[made.key] = (made, build.source.version_uid, new or (old is not None and old[2]))

    async def append_log(self, claim: Claim, text: str) -> None:
        self._mine(claim).log.append(text)
        self._signals.publish(build_topic(claim.source.version_uid))

    async def finish(self, claim: Claim, end: Result | Problem, message: str, log: str) -> None:
        build = self._mine(claim)
        build.state = BuildState.BUILT if isinstance(end, Result) else BuildState.FAILED
        build.end, build.message, build.lease_until = end, message, None
        build.finished_at = build.changed_at = self._now()
        self._logged(build, log)
        self._signals.publish(REPORTS)
        self._signals.publish(QUEUE)

    async def retry(self, claim: Claim, after: timedelta, message: str, log: str) -> None:
        build, now = self._mine(claim), self._now()
        build.state, build.lease_until, build.message = BuildState.PENDING, None, message
        build.failures += 1
        build.failing_since = build.failing_since or now
        build.due_at, build.changed_at = now + after, now
        self._logged(build, log)
        self._signals.publish(QUEUE)
        self._signals.publish(REPORTS)

    async def release(self, claim: Claim) -> None:
        build = self._builds.get(claim.source.version_uid)
        if build is None or (build.attempt, build.owner) != (claim.attempt, claim.owner):
            return
        if build.state in (BuildState.BUILDING, BuildState.CANCELLED):
            build.owner = build.lease_until = None
            build.state = BuildState.PENDING if build.state is BuildState.BUILDING else build.state
            self._signals.publish(QUEUE)
            self._signals.publish(CLEANUP)

    async def counters(self, version_uid: VersionUid) -> Counters | None:
        build = self._builds.get(version_uid)
        if build is None:
            return None
        return Counters(
            build.attempt, build.runs, sum(made and by == version_uid for _, by, made in self._layers.values())
        )

    # -- logs and reports

    async def log(self, version_uid: VersionUid, after: int) -> LogPart | None:
        build = self._builds.get(version_uid)
        return None if build is None else LogPart("".join(build.log[after:]), len(build.log), build.state)

    async def unreported(self, owner: str) -> list[Report]:
        old = self._now() - _REPORT_TAKEOVER
        due = (b for b in self._all() if b.unreported and (b.owner == owner or b.changed_at < old))
        return [_report(build) for build in due]

    async def acknowledge(self, report: Report, state: BuildState | None) -> None:
        build = self._builds.get(report.version_uid)
        if build is None:
            return
        build.reported = (report.attempt, report.state)
        if state in (None, BuildState.CANCELLED):
            self._cancel([build])

    # -- cleanup

    async def deletions(self) -> list[FunctionUid]:
        now = self._now()
        busy = {build.source.function_uid for build in self._all() if build.leased(now)}
        return [uid for uid in self._deletions if uid not in busy]

    async def remove_function(self, function_uid: FunctionUid, *, layers_kept: timedelta = timedelta(0)) -> None:
        for build in self._all():
            if build.source.function_uid == function_uid:
                kept = [key for key in build.objects if build.state is BuildState.BUILT and key.startswith("layers/")]
                self._discard([key for key in build.objects if key not in kept])
                self._discard(kept, layers_kept)
                del self._builds[build.source.version_uid]
        for upload_id, upload in list(self._uploads.items()):
            if upload.function_uid == function_uid and upload.ended:
                self._discard([upload.key])
                del self._uploads[upload_id]

    async def end_deletion(self, function_uid: FunctionUid) -> None:
        self._deletions.pop(function_uid, None)

    async def trim(self) -> None:
        now = self._now()
        for build in self._all():
            if build.state in (BuildState.FAILED, BuildState.CANCELLED) and not build.leased(now):
                self._discard(build.objects[1:])
                del build.objects[1:]
            if build.dropped and not build.leased(now):
                self._discard(build.objects)
                del self._builds[build.source.version_uid]

    async def forget_uploads(self, older_than: timedelta) -> None:
        old = self._now() - older_than
        self._uploads = {uid: upload for uid, upload in self._uploads.items() if upload.begun_at >= old}

    async def suspect(self, keys: Sequence[str], quarantine: timedelta) -> None:
        for key in keys:
            if not self._named(key):
                self._garbage.setdefault(key, self._now() + quarantine)

    async def garbage(self) -> list[str]:
        now = self._now()
        return sorted(key for key, due_at in self._garbage.items() if due_at <= now)[:100]

    @asynccontextmanager
    async def collect(self, key: str) -> AsyncIterator[bool]:
        async with self._locks[key]:
            unnamed = not self._named(key)
            yield unnamed
            if unnamed:
                self._layers = {name: made for name, made in self._layers.items() if object_key(made[0].digest) != key}
            self._garbage.pop(key, None)

    # -- within

    def _all(self) -> list[_Build]:
        return sorted(self._builds.values(), key=lambda build: build.order)

    def _add(self, source: Source, attempt: int) -> None:
        if source.version_uid in self._builds or source.function_uid in self._deletions:
            return
        key, now = archive_key(source.code_sha256), self._now()
        order = max((build.order for build in self._builds.values()), default=0) + 1
        self._builds[source.version_uid] = _Build(source, order, attempt, [key], now, now)
        self._uploads = {
            uid: upload
            for uid, upload in self._uploads.items()
            if not (upload.ended and (upload.function_uid, upload.key) == (source.function_uid, key))
        }
        self._signals.publish(QUEUE)

    def _drop(self, changes: Changes, whole: Snapshot | None) -> None:
        for build in self._all():
            uid = build.source.version_uid
            if uid in changes.dropped or (whole is not None and uid not in whole.versions):
                self._cancel([build])
                build.dropped = True

    def _may_run(self, build: _Build, now: datetime) -> bool:
        waits = build.state is BuildState.PENDING and build.due_at <= now
        expired = build.state is BuildState.BUILDING and not build.leased(now)
        same = (build.source.code_sha256, build.source.runtime)
        return (waits or expired) and not any(
            other.state is BuildState.BUILDING
            and other.leased(now)
            and (other.source.code_sha256, other.source.runtime) == same
            for other in self._all()
        )

    def _mine(self, claim: Claim) -> _Build:
        build = self._builds.get(claim.source.version_uid)
        if build is None or build.state is not BuildState.BUILDING or build.attempt != claim.attempt:
            raise LeaseLost(f"attempt {claim.attempt} has lost the build of version {claim.source.version_uid}")
        return build

    def _cancel(self, builds: list[_Build]) -> None:
        for build in builds:
            if not build.state.final:
                build.state, build.finished_at = BuildState.CANCELLED, self._now()
                self._signals.publish(build_topic(build.source.version_uid))

    def _logged(self, build: _Build, text: str) -> None:
        if text:
            build.log.append(text)
        self._signals.publish(build_topic(build.source.version_uid))

    def _discard(self, keys: Sequence[str], after: timedelta = timedelta(0)) -> None:
        due_at = self._now() + after
        for key in keys:
            self._garbage[key] = min(self._garbage.get(key, due_at), due_at)

    def _named(self, key: str) -> bool:
        return any(key in b.objects for b in self._all()) or any(u.key == key for u in self._uploads.values())


def _report(build: _Build) -> Report:
    return Report(
        build.source.version_uid,
        build.attempt,
        build.state,
        message=build.message,
        problem=build.end if isinstance(build.end, Problem) else None,
        result=build.end if isinstance(build.end, Result) else None,
        started_at=build.started_at,
        finished_at=build.finished_at,
        traceparent=build.source.traceparent,
    )
