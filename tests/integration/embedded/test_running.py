"""One running platform, looked at from many sides; each test leaves it running."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sless_contracts.catalog import namespace_of

from tests.support.fake_platform.harness import FakePlatform, eventually, fake_platform, kill

FAULT = "alpha.after_commit=kill@1"
STARTS_OF_TEMPLATE = 1


@pytest.fixture(scope="module")
def platform(template: Path) -> Iterator[FakePlatform]:
    """A platform that runs."""
    with fake_platform(template=template) as running:
        running.environment |= {"SLESS_API_TOKEN": "mine", "SLESS_FAKE_TUNING": "7", "KEPT": "yes"}
        running.up("--fault", FAULT)
        running.environment.clear()
        yield running


def test_status_tells_what_runs(platform: FakePlatform) -> None:
    status = platform.status()

    assert [each["name"] for each in status["services"]] == ["postgres", "launcher", "alpha", "beta", "gateway"]
    assert {each["state"] for each in status["services"]} == {"ready"}
    assert all(each["rss_mb"] > 1 for each in status["services"])
    assert status["isolation"]["level"] == "namespaces"
    assert status["data_dir"] == str(platform.data)
    assert get(status["endpoint"], "/health") == 200
    table = platform.sless("status", "--data", str(platform.data)).stdout
    assert "looked at once a second" in table


def get(endpoint: str, path: str) -> int:
    address = urlsplit(endpoint)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["alpha", "beta", "launcher"])
def test_what_dies_is_started_again(name: str, platform: FakePlatform) -> None:
    before = platform.service(name)

    kill(before["pid"])

    again = restarted(platform, name, before)
    assert again["pid"] != before["pid"]
    assert platform.service("gateway")["state"] == "ready"


def restarted(platform: FakePlatform, name: str, before: dict[str, Any]) -> dict[str, Any]:
    """The service's status once it is ready after one restart more."""

    def look() -> dict[str, Any] | None:
        found = platform.service(name)
        return found if found["state"] == "ready" and found["restarts"] > before["restarts"] else None

    found = eventually(look)
    assert found is not None
    return found


def test_restarts_wait_longer_and_longer(platform: FakePlatform) -> None:
    before, others = len(platform.notes("beta")), platform.service("alpha")["restarts"]
    platform.conduct(beta="crash")
    kill(platform.service("beta")["pid"])

    eventually(lambda: len(platform.notes("beta")) >= before + 4)

    times = [note["time"] for note in platform.notes("beta")[before:]]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.2, 0.4, 0.8), strict=False))
    assert platform.service("alpha")["restarts"] == others
    platform.conduct(beta="")
    eventually(lambda: platform.service("beta")["state"] == "ready")


@pytest.mark.fault(25)
def test_no_request_is_refused_while_the_gateway_restarts(platform: FakePlatform) -> None:
    endpoint = platform.status()["endpoint"]
    answers: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(get(endpoint, "/health"))

    asking = threading.Thread(target=ask)
    asking.start()
    before = platform.service("gateway")
    os.kill(before["pid"], signal.SIGTERM)
    restarted(platform, "gateway", before)
    so_far = len(answers)
    eventually(lambda: len(answers) > so_far + 10)
    done.set()
    asking.join(30)

    assert set(answers) == {200}


def test_a_second_start_on_one_data_folder_is_refused(platform: FakePlatform) -> None:
    pid = platform.status()["pid"]

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data))

    assert ended.returncode == 1
    assert f"already runs on {platform.data} (pid {pid}" in ended.stderr
    assert "sless down" in ended.stderr
    assert {each["state"] for each in platform.status()["services"]} == {"ready"}


@pytest.mark.fault(39)
def test_secrets_stand_in_no_environment_argument_or_log(platform: FakePlatform) -> None:
    secrets = json.loads((platform.data / "secrets.json").read_text())
    values = [*secrets["database_passwords"].values(), secrets["environment_key"]]
    values += [line for key in secrets["identity_keys"].values() for line in key.splitlines()[1:-1]]
    readable = [platform.log, *(text(pid, kind) for pid in platform.pids() for kind in ("cmdline", "environ"))]

    assert not [value for value in values for found in readable if value in found]
    for name in ("secrets.json", "issuer.pem", "lock", "logs/platform.log"):
        assert stat.S_IMODE((platform.data / name).stat().st_mode) == 0o600, name


def text(pid: int, kind: str) -> str:
    return Path(f"/proc/{pid}/{kind}").read_bytes().decode(errors="replace")


def test_children_have_nothing_of_the_supervisor_but_what_they_were_given(platform: FakePlatform) -> None:
    noted = platform.notes("alpha")[STARTS_OF_TEMPLATE]

    assert noted["threads"] == 1
    assert not [name for name in noted["environment"] if name.startswith("SLESS_")]
    assert "KEPT" in noted["environment"]
    assert not [found for found in noted["descriptors"] if str(platform.data) in found]
    assert noted["tuning"] == 7
    assert noted["faults"] == FAULT
    run = Path(json.loads((platform.data / "lock").read_text())["run"])
    assert noted["listen"] == f"unix:{run}/alpha.sock"
    beta = platform.notes("beta")[STARTS_OF_TEMPLATE]
    assert beta["alpha"] == noted["listen"]
    assert beta["keys"] == ["alpha", "beta", "gateway"]
    launcher = json.loads((run / "instances" / "launcher.json").read_text())
    # What the C library's locale set-up of Python itself may add is no inheritance.
    assert set(launcher["environment"]) <= {"LC_CTYPE"}
    assert launcher["parent"] == platform.status()["pid"]


def test_faults_arm_the_first_process_of_a_service_only(platform: FakePlatform) -> None:
    before = platform.service("alpha")
    kill(before["pid"])
    restarted(platform, "alpha", before)

    first, *later = [note["faults"] for note in platform.notes("alpha")[STARTS_OF_TEMPLATE:]]
    assert first == FAULT
    assert set(later) == {""}


def test_the_context_lets_commands_work_at_once(platform: FakePlatform) -> None:
    listed = platform.sless("service", "list", "--output", "json")

    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
    config = platform.folder / ".config" / "sless" / "config.toml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_tokens_are_made_from_the_data_folder(platform: FakePlatform) -> None:
    made = platform.sless("token", "--sub", "bob", "--ttl", "5m", "--data", str(platform.data))
    endpoint = platform.status()["endpoint"]
    assert made.returncode == 0

    answer = httpx.get(f"{endpoint}/v1/whoami", headers={"Authorization": f"Bearer {made.stdout.strip()}"})

    assert answer.json() == {"sub": "bob", "namespace": namespace_of("bob"), "roles": []}
