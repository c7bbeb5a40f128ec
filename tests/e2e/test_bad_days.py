"""Processes are killed; nothing that was acknowledged is lost, and the platform is well again by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sless_contracts.wire import SERVICES

from tests.support.embedded import Platform, User, running_platform, until

HANDLER = "import os\n\ndef handle(event):\n    return {'version': os.environ['SLESS_VERSION'], 'n': event.get('n')}\n"
WELL_AGAIN_SEC = 30


@pytest.fixture(scope="module")
def fragile() -> Iterator[Platform]:
    """A platform to be broken."""
    with running_platform() as platform:
        yield platform


def kill(platform: Platform, service: str) -> None:
    """kill -9, and wait until another process has taken its place."""
    before = platform.pid(service)
    os.kill(before, signal.SIGKILL)
    until(lambda: _replaced(platform, service, before) or None, f"{service} to be replaced", WELL_AGAIN_SEC)


def _replaced(platform: Platform, service: str, before: int) -> bool:
    entry = next(entry for entry in platform.status()["services"] if entry["name"] == service)
    return entry["pid"] not in {before, None} and entry["state"] in {"running", "ready"}


def answers(user: User, name: str) -> bool | None:
    """Whether a call succeeds."""
    try:
        return user.fn(name).status_code == 200 or None
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("service", [*SERVICES, "postgres", "launcher"])
def test_a_killed_service_comes_back_and_nothing_is_lost(fragile: Platform, service: str) -> None:
    user = fragile.user()
    user.deploy("steady", HANDLER, env_vars={"A": "1"})
    before = user.get("steady")

    kill(fragile, service)

    until(lambda: answers(user, "steady"), "calls to succeed", WELL_AGAIN_SEC)
    after = until(
        lambda: ((answer := user.request("GET", "/services/steady")).status_code == 200 and answer.json()) or None,
        "reads to succeed",
        WELL_AGAIN_SEC,
    )
    assert {name: after[name] for name in ("generation", "active_version", "env_vars", "phase")} == {
        name: before[name] for name in ("generation", "active_version", "env_vars", "phase")
    }
    name = f"after-{service}"
    until(lambda: user.create(name).status_code in {201, 409} or None, "creates to succeed", WELL_AGAIN_SEC)
    until(lambda: user.upload(name, {"handler.py": HANDLER}).status_code == 200 or None, "uploads to succeed", 60)
    assert user.fn(name).status_code == 200
    until(lambda: user.request("DELETE", f"/services/{name}").status_code in {204, 404} or None, "deletes to succeed")
    assert user.fn(name).status_code == 404


@pytest.mark.parametrize("service", ["runtime-manager", "registry", "builder", "auth"])
def test_warm_calls_do_not_notice_a_killed_service_beside_their_road(fragile: Platform, service: str) -> None:
    user = fragile.user()
    user.deploy("warm", HANDLER)
    assert user.fn("warm").status_code == 200
    pid = fragile.pid(service)

    os.kill(pid, signal.SIGKILL)
    statuses = [user.fn("warm").status_code for _ in range(50)]
    until(lambda: _replaced(fragile, service, pid) or None, "the service to be replaced", WELL_AGAIN_SEC)
    statuses += [user.fn("warm").status_code for _ in range(50)]

    assert set(statuses) == {200}


def test_an_instance_outlives_the_runtime_manager_that_started_it(fragile: Platform) -> None:
    user = fragile.user()
    user.deploy("adopted", "import uuid\nID = uuid.uuid4().hex\n\ndef handle(event):\n    return ID\n")
    before = user.fn("adopted").text

    kill(fragile, "runtime-manager")

    assert [user.fn("adopted").text for _ in range(5)] == [before] * 5


@pytest.mark.fault(5)
def test_an_instance_killed_by_hand_is_replaced_within_seconds(fragile: Platform) -> None:
    user = fragile.user()
    user.deploy("drift", "import os, uuid\nID = uuid.uuid4().hex\n\ndef handle(event):\n    return ID\n")
    before = user.fn("drift").text
    victim = user.platform.program_of(user.namespace, "drift")

    os.kill(victim, signal.SIGKILL)

    assert until(lambda: _instance_answers(user, before), "another instance", 10)


def _instance_answers(user: User, not_this: str) -> bool | None:
    answer = user.fn("drift")
    return (answer.status_code == 200 and answer.text != not_this) or None


def test_after_kill_9_of_everything_it_starts_again_with_nothing_lost() -> None:
    with running_platform() as platform:
        user = platform.user()
        service = user.deploy("lasting", HANDLER)
        function = user.deploy("quiet", HANDLER, "functions")
        user.create("empty")
        processes = [entry["pid"] for entry in platform.status()["services"] if entry["pid"]]
        supervisor = _parent(processes[0])

        for pid in [supervisor, *processes]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not any(_alive(pid) for pid in [supervisor, *processes]) or None, "everything to be dead", 15)
        platform.up()

        again = platform.user(user.sub)
        until(lambda: answers(again, "lasting"), "the service to answer", WELL_AGAIN_SEC)
        found = again.settled("lasting")
        assert (found["generation"], found["phase"]) == (service["generation"], "Ready")
        invoked = again.request("POST", "/functions/quiet/invoke", json={"n": 1})
        assert (invoked.status_code, invoked.json()) == (200, {"version": "1", "n": 1})
        assert again.get("quiet", "functions")["generation"] == function["generation"]
        assert again.get("empty")["phase"] == "Pending"
        assert again.upload("lasting", {"handler.py": HANDLER + "\n# new\n"}).json()["version"] == 2


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_last_good_version_serves_on_after_a_restart_when_the_newest_cannot_be_started(tmp_path: Path) -> None:
    platform = Platform(tmp_path, tmp_path / "data", {})
    platform.up()
    try:
        user = platform.user()
        user.deploy("proven", HANDLER, env_vars={"A": "1"})
        failed = user.upload("proven", {"handler.py": "import nothing_like_this\n\ndef handle(event):\n    return 1\n"})
        assert failed.status_code == 422
        assert user.fn("proven").json()["version"] == "1"
        platform.down()
        platform.up()

        until(lambda: answers(user, "proven"), "calls to succeed", WELL_AGAIN_SEC)

        assert user.fn("proven").json()["version"] == "1"
        settled = user.settled("proven")
        assert (settled["phase"], settled["active_version"]) == ("Failed", 1)
        assert "nothing_like_this" in settled["message"]
    finally:
        platform.down()


def test_a_second_start_on_the_same_folder_is_refused(fragile: Platform) -> None:
    refused = fragile.sless("up", "--detach", "--port", "0", "--data", str(fragile.data), check=False)

    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert str(fragile.data) in refused.stderr


def test_down_stops_everything_and_up_goes_on(tmp_path: Path) -> None:
    with running_platform() as platform:
        user = platform.user()
        user.deploy("kept", HANDLER)
        processes = [entry["pid"] for entry in platform.status()["services"] if entry["pid"]]

        platform.down()

        assert not any(_alive(pid) for pid in processes)
        assert platform.sless("status", "--data", str(platform.data), check=False).returncode != 0
        platform.up()
        until(lambda: answers(platform.user(user.sub), "kept"), "the service to answer", WELL_AGAIN_SEC)
