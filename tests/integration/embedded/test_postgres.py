"""PostgreSQL under the supervisor: first start, start after every kind of end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_platform.harness import FakePlatform, eventually, is_running, kill


def nothing_is_lost(platform: FakePlatform) -> bool:
    """Whether the table of the service alpha has a row for each of its starts, all of which it has noted elsewhere too."""
    noted = platform.notes("alpha")
    return bool(noted) and noted[-1]["starts"] == len(noted)


def pid_file(platform: FakePlatform) -> Path:
    return next((platform.data / "postgres").glob("*/postmaster.pid"))


def test_nothing_is_lost_by_a_stop_nor_by_kill_9_of_everything(platform_of: FakePlatform) -> None:
    platform_of.up()
    postgres_runs_as_its_own_user(platform_of)
    kill(*platform_of.pids())
    platform_of.up()
    platform_of.down()
    platform_of.up()

    assert len(platform_of.notes("alpha")) == 3
    assert nothing_is_lost(platform_of)


def test_a_service_that_gets_tables_in_a_later_release_finds_them_in_the_data_of_the_one_before(
    platform: FakePlatform,
) -> None:
    platform.environment["FAKE_BETA_TABLES"] = "yes"  # the fixture's data is of a release without

    platform.up()
    platform.down()
    platform.up()

    assert [note["starts"] for note in platform.notes("beta")] == [None, 1, 2]
    assert nothing_is_lost(platform)


def postgres_runs_as_its_own_user(platform_of: FakePlatform) -> None:
    """Not root, and nobody else may read its folder."""
    pid = platform_of.service("postgres")["pid"]
    uid = int(Path(f"/proc/{pid}/status").read_text().partition("Uid:\t")[2].split()[0])
    assert uid == (199_999 if os.getuid() == 0 and platform_of.uid is None else platform_of.uid or os.getuid())
    for folder in (platform_of.data / "postgres", platform_of.data / "postgres" / "18"):
        assert folder.stat().st_mode & 0o077 == 0
        assert folder.stat().st_uid == uid


def test_postgres_listens_on_no_network(platform: FakePlatform) -> None:
    platform.up()
    pid = platform.service("postgres")["pid"]

    inodes = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    listening = {
        f"socket:[{line.split()[9]}]"
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    }

    assert not inodes & listening


def test_a_stale_pid_file_of_nobody_is_no_obstacle(platform: FakePlatform) -> None:
    platform.up()
    text = pid_file(platform).read_text()
    platform.down()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stale = platform.data / "postgres" / "18" / "postmaster.pid"
    stale.write_text(text.replace(text.splitlines()[0], str(gone.pid), 1))

    platform.up()

    assert nothing_is_lost(platform)


def test_a_pid_file_whose_number_is_somebody_elses_is_no_obstacle_and_spares_them(platform: FakePlatform) -> None:
    platform.up()
    text = pid_file(platform).read_text()
    platform.down()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=platform.data / "postgres" / "18"
    ) as other:
        stale = platform.data / "postgres" / "18" / "postmaster.pid"
        stale.write_text(text.replace(text.splitlines()[0], str(other.pid), 1))

        platform.up()

        assert nothing_is_lost(platform)
        assert other.poll() is None
        other.communicate()


def test_a_server_that_outlived_its_supervisor_is_ended_first(platform_of: FakePlatform) -> None:
    platform_of.up()
    orphan = platform_of.service("postgres")["pid"]
    os.kill(orphan, signal.SIGSTOP)
    kill(*(pid for pid in platform_of.pids() if pid != orphan))

    platform_of.up()

    assert not is_running(orphan)
    assert nothing_is_lost(platform_of)


def test_postgres_ends_with_its_supervisor(platform: FakePlatform) -> None:
    platform.up()
    postgres = platform.service("postgres")["pid"]

    kill(platform.status()["pid"])

    eventually(lambda: not is_running(postgres))


def test_a_killed_postgres_is_started_again(platform: FakePlatform) -> None:
    platform.up()
    pid = platform.service("postgres")["pid"]

    kill(pid)

    again = eventually(lambda: (found := platform.service("postgres"))["state"] == "ready" and found)
    assert again["pid"] != pid
    assert again["restarts"] == 1


def test_a_killed_first_start_leaves_nothing_half_made(new_platform: FakePlatform) -> None:
    started = new_platform.up_attached()
    eventually(lambda: list((new_platform.data / "postgres").glob("*.new-*")) if new_platform.data.exists() else None)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()

    new_platform.up()

    assert nothing_is_lost(new_platform)
    assert [path.name for path in (new_platform.data / "postgres").iterdir()] == ["18"]


def test_another_major_version_is_refused_with_a_sentence(new_platform: FakePlatform) -> None:
    old = new_platform.data / "postgres" / "9"
    old.mkdir(parents=True)
    (old / "PG_VERSION").write_text("9\n")

    ended = new_platform.sless("up", "--detach", "--port", "0", "--data", str(new_platform.data))

    assert ended.returncode == 1
    assert "was made by PostgreSQL 9, installed is 18" in ended.stderr


def test_a_database_without_its_secrets_is_refused_with_a_sentence(platform: FakePlatform) -> None:
    platform.up()
    platform.down()
    (platform.data / "secrets.json").rename(platform.folder / "kept.json")

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data))

    assert ended.returncode == 1
    assert "secrets.json is missing" in ended.stderr


@pytest.mark.fault(39)
def test_each_service_has_only_its_own_schema_and_must_know_its_password(platform: FakePlatform) -> None:
    platform.up()
    run = Path(json.loads((platform.data / "lock").read_text())["run"])
    passwords = json.loads((platform.data / "secrets.json").read_text())["database_passwords"]

    assert sql(run, "sless_alpha", passwords["sless_alpha"], "SELECT count(*) >= 1 FROM starts") == "t"
    assert "permission denied" in sql(run, "sless_alpha", passwords["sless_alpha"], "CREATE TABLE public.x (a int)")
    assert "permission denied" in sql(run, "sless_alpha", passwords["sless_alpha"], "CREATE SCHEMA other")
    assert "authentication failed" in sql(run, "sless_alpha", "guess", "SELECT 1")
    assert "authentication failed" in sql(run, "postgres", "postgres", "SELECT 1")


def sql(run: Path, role: str, password: str, statement: str) -> str:
    from sless_cli.embedded import pg_binaries

    ended = subprocess.run(
        [str(pg_binaries.locate().psql), "-X", "-t", "-A", "-h", str(run / "pg"), "-U", role, "-d", "sless", "-c", statement],
        env={"PGPASSWORD": password}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return (ended.stdout + ended.stderr).strip()
