"""BuildStore in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from sless_platform.postgres import Connection, connection, transaction

from sless_builder.adapters import sql
from sless_builder.domain.build import BuildState, Claim, FunctionUid, Problem, Report, Result, Source, VersionUid
from sless_builder.domain.layers import Layer, archive_key
from sless_builder.errors import LeaseLost
from sless_builder.ports import Changes, Counters, LogPart, Snapshot


class PostgresBuildStore:
    """See BuildStore. `pool`: of sless_platform.postgres, on the builder's schema."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    # -- uploads

    async def begin_upload(self, upload_id: UUID, function_uid: FunctionUid, key: str) -> None:
        async with transaction(self._pool) as database:
            await database.execute(sql.LOCK_TO_NAME, [key])
            await database.execute(sql.BEGIN_UPLOAD, upload_id, function_uid, key)

    async def end_upload(self, upload_id: UUID, *, kept: bool) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.END_UPLOAD if kept else sql.DROP_UPLOAD, upload_id)

    # -- the queue

    async def revision(self) -> int | None:
        async with connection(self._pool) as database:
            revision: int | None = await database.fetchval(sql.REVISION)
            return revision

    async def apply(self, changes: Changes, *, whole: Snapshot | None = None) -> None:
        async with transaction(self._pool) as database:
            for source, attempt in changes.wanted:
                await database.execute(sql.ADD_BUILD, *_columns(source), attempt, archive_key(source.code_sha256))
            gone = [*changes.deleted, *await _left_behind(database, changes, whole)]
            dropped = [*changes.dropped, *await _dropped(database, whole)]
            if gone or dropped or changes.cancelled:
                await database.execute(sql.CANCEL, [*changes.cancelled, *dropped], gone)
            if gone:
                await database.execute(sql.DELETE, gone)
            if dropped:
                await database.execute(sql.DROP, dropped)
            if not changes.more:
                await database.execute(sql.SET_REVISION, changes.revision)

    async def claim(self, owner: str, lease: timedelta) -> Claim | None:
        async with transaction(self._pool) as database:
            await database.execute(sql.LOCK_CLAIMS)
            row = await database.fetchrow(sql.CLAIM, owner, lease)
        return None if row is None else _claim(row, owner)

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        await self._fenced(sql.RENEW, claim, lease)

    async def count_run(self, claim: Claim) -> None:
        await self._fenced(sql.COUNT_RUN, claim)

    async def layer(self, key: str) -> Layer | None:
        async with connection(self._pool) as database:
            row = await database.fetchrow(sql.LAYER, key)
        return None if row is None else _layer(row)

    async def hold(self, claim: Claim, keys: Sequence[str], made: Layer | None) -> None:
        version_uid = claim.source.version_uid
        async with transaction(self._pool) as database:
            await database.execute(sql.LOCK_TO_NAME, sorted(keys))
            if await database.fetchrow(sql.HOLD, version_uid, claim.attempt, list(keys)) is None:
                raise _lost(claim)
            if made is not None:
                broken = [asdict(problem) for problem in made.broken]
                await database.execute(
                    sql.ADD_LAYER,
                    *(made.key, made.digest, made.size, broken, dict(made.facts)),
                    version_uid,
                )

    async def append_log(self, claim: Claim, text: str) -> None:
        await self._fenced(sql.APPEND_LOG, claim, text)

    async def finish(self, claim: Claim, end: Result | Problem, message: str, log: str) -> None:
        state = BuildState.BUILT if isinstance(end, Result) else BuildState.FAILED
        result = (list(end.layers), end.image_ref, end.cached) if isinstance(end, Result) else (None, None, None)
        problem = None if isinstance(end, Result) else asdict(end)
        await self._fenced(sql.FINISH, claim, log, state.value, message, problem, *result)

    async def retry(self, claim: Claim, after: timedelta, message: str, log: str) -> None:
        await self._fenced(sql.RETRY, claim, log, after, message)

    async def release(self, claim: Claim) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.RELEASE, claim.source.version_uid, claim.attempt, claim.owner)

    async def counters(self, version_uid: VersionUid) -> Counters | None:
        async with connection(self._pool) as database:
            row = await database.fetchrow(sql.COUNTERS, version_uid)
        return None if row is None else Counters(row["attempt"], row["runs"], row["layers"])

    async def _fenced(self, statement: str, claim: Claim, *values: object) -> None:
        """Run a statement that touches the build only while it is this attempt's. Raises LeaseLost."""
        async with connection(self._pool) as database:
            row = await database.fetchrow(statement, claim.source.version_uid, claim.attempt, *values)
        if row is None:
            raise _lost(claim)

    # -- logs and reports

    async def log(self, version_uid: VersionUid, after: int) -> LogPart | None:
        async with connection(self._pool) as database:
            row = await database.fetchrow(sql.LOG, version_uid, after)
        return None if row is None else LogPart(row["text"], row["position"], BuildState(row["state"]))

    async def unreported(self, owner: str) -> list[Report]:
        async with connection(self._pool) as database:
            return [_report(row) for row in await database.fetch(sql.UNREPORTED, owner)]

    async def acknowledge(self, report: Report, state: BuildState | None) -> None:
        version_uid = report.version_uid
        async with transaction(self._pool) as database:
            await database.execute(sql.ACKNOWLEDGE, version_uid, report.attempt, report.state.value)
            if state in (None, BuildState.CANCELLED):
                await database.execute(sql.CANCEL, [version_uid], [])

    # -- cleanup

    async def deletions(self) -> list[FunctionUid]:
        async with connection(self._pool) as database:
            return [FunctionUid(row["function_uid"]) for row in await database.fetch(sql.DELETIONS)]

    async def remove_function(self, function_uid: FunctionUid, *, layers_kept: timedelta = timedelta(0)) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.REMOVE_FUNCTION, function_uid, layers_kept)

    async def end_deletion(self, function_uid: FunctionUid) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.END_DELETION, function_uid)

    async def trim(self) -> None:
        async with transaction(self._pool) as database:
            await database.execute(sql.TRIM)
            await database.execute(sql.REMOVE_DROPPED)

    async def forget_uploads(self, older_than: timedelta) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.FORGET_UPLOADS, older_than)

    async def suspect(self, keys: Sequence[str], quarantine: timedelta) -> None:
        async with connection(self._pool) as database:
            await database.execute(sql.SUSPECT, list(keys), quarantine)

    async def garbage(self) -> list[str]:
        async with connection(self._pool) as database:
            return [row["key"] for row in await database.fetch(sql.GARBAGE)]

    @asynccontextmanager
    async def collect(self, key: str) -> AsyncIterator[bool]:
        async with transaction(self._pool) as database:
            await database.execute(sql.LOCK_TO_REMOVE, key)
            unnamed = not await database.fetchval(sql.IS_NAMED, key)
            yield unnamed
            if unnamed:
                await database.execute(sql.FORGET_LAYER, key)
            await database.execute(sql.END_GARBAGE, key)


async def _left_behind(database: Connection, changes: Changes, whole: Snapshot | None) -> list[FunctionUid]:
    """Functions that are gone for good and have left something here: their deletion was missed."""
    rows = [] if not changes.purged else await database.fetch(sql.STALE_FUNCTIONS, list(changes.purged))
    if whole is not None:
        rows += await database.fetch(sql.FUNCTIONS_NOT_IN, list(whole.functions))
    return [FunctionUid(row["function_uid"]) for row in rows]


async def _dropped(database: Connection, whole: Snapshot | None) -> list[VersionUid]:
    """Versions that are kept no more and have left something here: that they were dropped was missed."""
    if whole is None:
        return []
    rows = await database.fetch(sql.VERSIONS_NOT_IN, list(whole.versions))
    return [VersionUid(row["version_uid"]) for row in rows]


def _columns(source: Source) -> tuple[object, ...]:
    return (
        *(source.version_uid, source.function_uid, source.namespace, source.name),
        *(source.number, source.code_sha256, source.runtime, source.entrypoint, source.traceparent),
    )


def _claim(row: Any, owner: str) -> Claim:
    source = Source(
        *(VersionUid(row["version_uid"]), FunctionUid(row["function_uid"]), row["namespace"], row["name"]),
        *(row["number"], row["code_sha256"], row["runtime"], row["entrypoint"], row["traceparent"]),
    )
    return Claim(
        source,
        owner,
        row["attempt"],
        failures=row["failures"],
        log_bytes=row["log_bytes"],
        failing=row["failing"] or timedelta(0),
        takeovers=row["takeovers"],
    )


def _layer(row: Any) -> Layer:
    broken = tuple(Problem(**problem) for problem in row["broken"])
    return Layer(row["key"], row["digest"], row["size"], broken, row["facts"])


def _report(row: Any) -> Report:
    state = BuildState(row["state"])
    built = state is BuildState.BUILT
    return Report(
        VersionUid(row["version_uid"]),
        row["attempt"],
        state,
        message=row["message"],
        problem=None if row["problem"] is None else Problem(**row["problem"]),
        result=Result(tuple(row["layers"]), row["image_ref"], row["cached"]) if built else None,
        started_at=row["started_at"],
        finished_at=row["finished_at"] if state.final else None,
        traceparent=row["traceparent"],
    )


def _lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"attempt {claim.attempt} has lost the build of version {claim.source.version_uid}")
