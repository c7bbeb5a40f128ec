"""Migrations against a real PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest
from sless_platform import migrations
from sless_platform.errors import FailedPrecondition, Unavailable
from sless_platform.migrations import MigrationFailed, SchemaTooOld, apply, apply_async, require_current
from sless_platform.postgres import create_pool

from tests.support.postgres import PostgresServer, ServiceDatabase

FIRST = "CREATE TABLE letter (id bigint PRIMARY KEY); INSERT INTO letter VALUES (1);"
SECOND = "ALTER TABLE letter ADD COLUMN body text;"
THIRD = "CREATE INDEX letter_body ON letter (body);"
ALL = {"0001_letters": FIRST, "0002_bodies": SECOND, "0010_index": THIRD}


def folder_of(parent: Path, files: Mapping[str, str]) -> Path:
    folder = parent / f"migrations-{len(files)}"
    folder.mkdir()
    for name, statements in files.items():
        (folder / f"{name}.sql").write_text(f"-- migrate:up\n{statements}\n\n-- migrate:down\n")
    return folder


def first(parent: Path, count: int) -> Path:
    return folder_of(parent, dict(list(ALL.items())[:count]))


@pytest.fixture
def owner_dsn(postgres_server: PostgresServer, fresh_database: str) -> str:
    postgres_server.provision(fresh_database, "mail")
    return postgres_server.owner_dsn(fresh_database)


@pytest.fixture
def service_dsn(postgres_server: PostgresServer, fresh_database: str) -> str:
    return postgres_server.dsn(fresh_database, "sless_mail")


async def fetch(dsn: str, statement: str) -> list[asyncpg.Record]:
    session = await asyncpg.connect(dsn)
    try:
        rows: list[asyncpg.Record] = await session.fetch(statement)
    finally:
        await session.close()
    return rows


async def check(dsn: str, folder: Path) -> None:
    async with await create_pool(dsn, schema="sless_mail") as pool:
        await require_current(pool, "mail", folder)


async def test_tables_are_the_owners_in_the_services_schema(owner_dsn: str, service_dsn: str, tmp_path: Path) -> None:
    await apply_async(owner_dsn, "mail", first(tmp_path, 3))
    tables = await fetch(
        owner_dsn, "SELECT * FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    assert {(row["schemaname"], row["tablename"], row["tableowner"]) for row in tables} == {
        ("sless_mail", "letter", "sless_owner"),
        ("sless_mail", "schema_migrations", "sless_owner"),
    }
    assert [row["id"] for row in await fetch(service_dsn, "SELECT id FROM letter")] == [1]
    await check(service_dsn, tmp_path / "migrations-3")


async def test_what_was_applied_is_not_applied_again(owner_dsn: str, tmp_path: Path) -> None:
    for count in (1, 1, 3, 3):
        folder = tmp_path / f"migrations-{count}"
        await apply_async(owner_dsn, "mail", folder if folder.is_dir() else first(tmp_path, count))
    applied = await fetch(owner_dsn, "SELECT version FROM sless_mail.schema_migrations ORDER BY version")
    assert [row["version"] for row in applied] == ["0001", "0002", "0010"]


def test_a_caller_without_an_event_loop_can_apply(owner_dsn: str, tmp_path: Path) -> None:
    apply(owner_dsn, "mail", first(tmp_path, 1))
    assert len(asyncio.run(fetch(owner_dsn, "SELECT * FROM sless_mail.letter"))) == 1


async def test_many_at_once_apply_each_migration_once(owner_dsn: str, tmp_path: Path) -> None:
    folder = first(tmp_path, 3)
    await asyncio.gather(*(apply_async(owner_dsn, "mail", folder) for _ in range(4)))
    assert len(await fetch(owner_dsn, "SELECT * FROM sless_mail.schema_migrations")) == 3
    assert len(await fetch(owner_dsn, "SELECT * FROM sless_mail.letter")) == 1


async def test_services_do_not_see_each_others_migrations(
    postgres_server: PostgresServer, fresh_database: str, tmp_path: Path
) -> None:
    owner = postgres_server.owner_dsn(fresh_database)
    for service in ("mail", "runtime-box"):
        postgres_server.provision(fresh_database, service)
    await apply_async(owner, "mail", first(tmp_path, 3))
    await apply_async(owner, "runtime-box", first(tmp_path, 1))
    assert len(await fetch(owner, "SELECT * FROM sless_mail.schema_migrations")) == 3
    assert len(await fetch(owner, "SELECT * FROM sless_runtime_box.schema_migrations")) == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await fetch(postgres_server.dsn(fresh_database, "sless_mail"), "SELECT * FROM sless_runtime_box.letter")


async def test_a_migration_that_fails_says_why_and_leaves_nothing(owner_dsn: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"0001_bad": "CREATE TABLE half (id int); CREATE TABEL typo (id int);"})
    with pytest.raises(MigrationFailed, match="TABEL") as raised:
        await apply_async(owner_dsn, "mail", folder)
    assert "sless_mail" in raised.value.message
    assert await fetch(owner_dsn, "SELECT * FROM pg_tables WHERE tablename = 'half'") == []


@pytest.mark.fault(39)
async def test_the_password_is_on_no_command_line_and_in_no_message(
    owner_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in dbmate's place notes what it was given."""
    password = owner_dsn.split(":")[2].split("@", maxsplit=1)[0]
    noted = tmp_path / "noted"
    program = tmp_path / "dbmate"
    program.write_text(
        f'#!/bin/sh\ntr "\\0" "\\n" </proc/$$/cmdline >{noted}; env >>{noted}\n'
        f'stat -c "mode %a" "$PGPASSFILE" >>{noted}; cp "$PGPASSFILE" {tmp_path}/pgpass; ls -A >>{noted}; exit 3\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(migrations, "_binary", lambda: program)
    with pytest.raises(MigrationFailed) as raised:
        await apply_async(owner_dsn, "mail", first(tmp_path, 1))
    text = noted.read_text()
    assert password not in text
    assert password not in str(raised.value)
    assert "mode 600" in text
    assert (tmp_path / "pgpass").read_text() == f"*:*:*:*:{password}\n"
    assert sorted(line.split("=")[0] for line in text.splitlines() if line.startswith(("DATABASE_URL=", "PGPASS"))) == [
        "DATABASE_URL",
        "PGPASSFILE",
    ]


async def test_a_difficult_password_arrives(
    postgres_server: PostgresServer, fresh_database: str, tmp_path: Path
) -> None:
    postgres_server.provision(fresh_database, "mail")
    role, password = f"difficult_{os.getpid()}", r"a:b\c/d@e?f#g%h i'j"
    quoted = password.replace("'", "''")
    postgres_server.sql(
        fresh_database,
        f"CREATE ROLE {role} LOGIN PASSWORD '{quoted}'; GRANT sless_owner TO {role}; GRANT ALL ON SCHEMA sless_mail TO {role}",
    )
    encoded = "".join(f"%{byte:02X}" for byte in password.encode())
    dsn = postgres_server.dsn(fresh_database, role)
    address = dsn.partition("@")[2]
    try:
        await apply_async(f"postgresql://{role}:{encoded}@{address}", "mail", first(tmp_path, 1))
        assert (
            len(
                await fetch(
                    postgres_server.owner_dsn(fresh_database), "SELECT * FROM pg_tables WHERE tablename = 'letter'"
                )
            )
            == 1
        )
    finally:
        postgres_server.sql(fresh_database, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_settings_of_the_callers_folder_are_not_read(
    owner_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("DBMATE_MIGRATIONS_TABLE=elsewhere\nDATABASE_URL=postgres://nowhere/x\n")
    folder = first(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    await apply_async(owner_dsn, "mail", Path(folder.name))
    assert len(await fetch(owner_dsn, "SELECT * FROM sless_mail.schema_migrations")) == 1


async def test_a_cancelled_migration_leaves_no_process_and_no_lock(
    owner_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, {"0001_slow": "SELECT pg_sleep(60);"})
    applying = asyncio.create_task(apply_async(owner_dsn, "mail", folder))
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()"
    async with asyncio.timeout(30):
        while not await fetch(owner_dsn, sleeping):
            pass
        applying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await applying
        (folder / "0001_slow.sql").write_text("-- migrate:up\nSELECT 1;\n-- migrate:down\n")
        await apply_async(owner_dsn, "mail", folder)


@pytest.mark.fault(40)
async def test_an_older_schema_is_refused_with_what_to_do(owner_dsn: str, service_dsn: str, tmp_path: Path) -> None:
    await apply_async(owner_dsn, "mail", first(tmp_path, 2))
    with pytest.raises(SchemaTooOld) as raised:
        await check(service_dsn, first(tmp_path, 3))
    assert raised.value.message == (
        "mail needs migration 0010_index, the database has 0002_bodies: run `sless migrate` first"
    )
    assert raised.value.metadata == {"needed": "0010_index", "present": "0002_bodies"}


@pytest.mark.fault(40)
async def test_an_empty_schema_is_refused(owner_dsn: str, service_dsn: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaTooOld, match="needs migration 0001_letters, the database has none"):
        await check(service_dsn, first(tmp_path, 1))


@pytest.mark.fault(40)
async def test_a_newer_schema_serves_the_release_before(owner_dsn: str, service_dsn: str, tmp_path: Path) -> None:
    await apply_async(owner_dsn, "mail", first(tmp_path, 3))
    older = first(tmp_path, 2)
    await check(service_dsn, older)
    # The older release's own migrate finds nothing to do.
    await apply_async(owner_dsn, "mail", older)
    assert len(await fetch(owner_dsn, "SELECT * FROM sless_mail.schema_migrations")) == 3


async def test_a_migration_that_comes_late_is_refused(owner_dsn: str, tmp_path: Path) -> None:
    await apply_async(owner_dsn, "mail", folder_of(tmp_path, {"0002_bodies": "SELECT 1;"}))
    with pytest.raises(MigrationFailed):
        await apply_async(
            owner_dsn, "mail", folder_of(tmp_path, {"0001_late": "SELECT 1;", "0002_bodies": "SELECT 1;"})
        )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "no migrations lie in"),
        (["README.md", "1-no.sql"], "no migrations lie in"),
        (["0001_a.sql", "1_b.sql"], "one number"),
    ],
    ids=["none", "no such names", "twice"],
)
async def test_a_folder_that_is_wrong_is_named(names: list[str], words: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(FailedPrecondition, match=words):
        await apply_async("postgresql://nobody@/x?host=/nowhere", "mail", tmp_path)


async def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await apply_async(f"postgresql://u:p@/db?host={tmp_path}", "mail", first(tmp_path, 1))


async def test_a_test_gets_a_migrated_database_of_its_own(service_database: ServiceDatabase, tmp_path: Path) -> None:
    folder = first(tmp_path, 2)
    dsns = [await service_database("mail", folder) for _ in range(2)]
    assert len(set(dsns)) == 2
    for dsn in dsns:
        await fetch(dsn, "INSERT INTO letter VALUES (7)")
        assert [row["id"] for row in await fetch(dsn, "SELECT id FROM letter ORDER BY id")] == [1, 7]
        await check(dsn, folder)


def test_dbmate_is_a_program_here() -> None:
    assert migrations._binary().stat().st_mode & stat.S_IXUSR
