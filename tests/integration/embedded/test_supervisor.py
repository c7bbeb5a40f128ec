"""The supervisor of `sless up`: order, readiness, restarts, stops, one platform a data folder."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.fake_platform.harness import FakePlatform, eventually, is_running, kill

ORDER = ["postgres", "launcher", "migrations", "alpha", "beta", "gateway"]


def came_up(log: str) -> list[str]:
    return re.findall(r"^supervisor \| \S+ (\S+) is (?:ready|done)$", log, re.MULTILINE)


def test_programs_come_up_in_order_and_go_in_the_reverse_one(platform: FakePlatform) -> None:
    platform.up()
    order = came_up(platform.log)
    platform.down()

    assert sorted(order) == sorted(ORDER)
    for earlier, later in (("postgres", "migrations"), ("migrations", "alpha"), ("alpha", "beta"), ("beta", "gateway")):
        assert order.index(earlier) < order.index(later)
    assert (platform.data / "stopped").read_text().split()[-3:] == ["gateway", "beta", "alpha"]


def test_nothing_of_it_runs_after_a_stop(platform: FakePlatform) -> None:
    platform.up()
    pids = platform.pids()
    run = Path(json.loads((platform.data / "lock").read_text())["run"])

    platform.down()

    assert not [pid for pid in pids if is_running(pid)]
    assert not (run / "supervisor.sock").exists()
    assert platform.sless("down", "--data", str(platform.data)).returncode == 0


def test_status_and_down_of_nothing_are_said(platform: FakePlatform) -> None:
    status = platform.sless("status", "--data", str(platform.data))
    down = platform.sless("down", "--data", str(platform.data))

    assert status.returncode == 1
    assert "no platform runs" in status.stderr
    assert down.returncode == 0


def test_a_service_that_recovers_during_the_start_does_not_fail_it(platform: FakePlatform) -> None:
    platform.conduct(beta="crash-twice")

    platform.up()

    assert platform.service("beta")["state"] == "ready"
    assert platform.service("beta")["restarts"] == 2


@pytest.mark.fault(40)
def test_a_service_that_keeps_dying_fails_the_start_with_its_own_words(platform: FakePlatform) -> None:
    platform.conduct(alpha="refuse")

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data))

    assert ended.returncode == 1
    assert "alpha ended with exit code 1" in ended.stderr
    assert "alpha needs migration 0002_more, the database has 0001_first: run `sless migrate` first" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert platform.status() == {}
    platform.conduct(alpha="")
    platform.up()


def test_a_start_that_hangs_ends_with_the_name_of_what_hangs(platform: FakePlatform) -> None:
    platform.conduct(beta="never-ready")
    platform.environment["FAKE_START_LIMIT_SEC"] = "5"

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data))

    assert ended.returncode == 1
    assert "took longer than 5 s; still waiting for beta" in ended.stderr


def test_a_stop_takes_ten_seconds_at_most_whatever_services_do(platform: FakePlatform) -> None:
    platform.conduct(alpha="deaf", beta="deaf", gateway="deaf")
    platform.up()
    pids = platform.pids()

    began = time.monotonic()
    platform.down()

    assert time.monotonic() - began < 10.5
    assert not [pid for pid in pids if is_running(pid)]
    # PostgreSQL was given the time to end in order.
    assert "database system is shut down" in platform.log


def test_two_data_folders_run_side_by_side(platform: FakePlatform, new_platform: FakePlatform) -> None:
    platform.up()
    new_platform.up()

    assert platform.status()["endpoint"] != new_platform.status()["endpoint"]


def test_killing_the_supervisor_takes_all_children_along(platform: FakePlatform) -> None:
    platform.up()
    supervisor, *children = platform.pids()

    kill(supervisor)

    for pid in children:
        eventually(lambda pid=pid: not is_running(pid))  # type: ignore[misc]
    platform.up()
    assert {each["state"] for each in platform.status()["services"]} == {"ready"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_foreground_platform_in_order(number: signal.Signals, platform: FakePlatform) -> None:
    started = platform.up_attached()
    assert started.stdout is not None
    said = "".join(iter(started.stdout.readline, "Ctrl-C stops it all.\n"))
    children = platform.pids()

    if number is signal.SIGINT:
        os.killpg(started.pid, number)  # as the terminal does
    else:
        started.send_signal(number)
    _, err = started.communicate(timeout=15)

    assert started.returncode == 0, err
    assert "REST" in said
    assert "Traceback" not in err
    assert not [pid for pid in children if is_running(pid)]
    assert (platform.data / "stopped").read_text().split()[-3:] == ["gateway", "beta", "alpha"]


def test_a_signal_during_the_start_ends_it(new_platform: FakePlatform) -> None:
    started = new_platform.up_attached()
    eventually((new_platform.data / "postgres").exists)

    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=15)

    assert started.returncode == 130
    assert "Traceback" not in err
    new_platform.up()


def test_down_reaches_a_platform_that_was_started_with_another_runtime_folder(platform: FakePlatform) -> None:
    runtime = platform.folder / "runtime"
    runtime.mkdir(mode=0o700)
    platform.environment["XDG_RUNTIME_DIR"] = str(runtime)
    platform.up()
    assert list(runtime.rglob("supervisor.sock"))
    del platform.environment["XDG_RUNTIME_DIR"]

    platform.down()

    assert platform.status() == {}


def test_a_taken_port_is_said(platform: FakePlatform) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = platform.sless("up", "--detach", "--port", str(port), "--data", str(platform.data))

    assert ended.returncode == 1
    assert f"port {port} of 127.0.0.1 is taken" in ended.stderr
    assert "--port" in ended.stderr


def test_a_host_that_is_not_ours_is_said(platform: FakePlatform) -> None:
    ended = platform.sless("up", "--detach", "--port", "0", "--host", "192.0.2.1", "--data", str(platform.data))

    assert ended.returncode == 1
    assert "192.0.2.1 is no address of this machine" in ended.stderr


def test_a_run_folder_of_somebody_else_is_refused(platform: FakePlatform) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a folder for somebody else")
    runtime = platform.folder / "runtime"
    runtime.mkdir(mode=0o700)
    (runtime / "sless").mkdir()
    os.chown(runtime / "sless", 4321, 4321)
    platform.environment["XDG_RUNTIME_DIR"] = str(runtime)

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data))

    assert ended.returncode == 1
    assert "belongs to user 4321" in ended.stderr


def test_the_log_is_rotated_at_each_start_and_by_size(platform: FakePlatform) -> None:
    platform.conduct(alpha="chatty")
    platform.environment["FAKE_LOG_BYTES"] = "100000"
    platform.up()

    logs = sorted((platform.data / "logs").glob("platform.log*"))
    assert [path.name for path in logs] == [f"platform.log{ending}" for ending in ("", ".1", ".2", ".3")]
    assert all(path.stat().st_size <= 100_000 for path in logs[:3])
    platform.down()


def test_deploy_at_the_start_ends_with_url_answer_address_and_token(platform: FakePlatform) -> None:
    code = platform.folder / "hello-there"
    code.mkdir()
    (code / "handler.py").write_text("def handle(event):\n    return event\n")

    out = platform.up("--deploy", str(code)).stdout

    endpoint = platform.status()["endpoint"]
    assert re.search(rf"function  {re.escape(endpoint)}/fn/sless-[0-9a-f]{{16}}/hello-there\n", out)
    assert 'answer    {"hello": "hello-there"}\n' in out
    assert f"REST      {endpoint}/v1\n" in out
    assert re.search(r"token     eyJ\S+\n", out)
    assert re.search(r"took      \d+\.\d s to start, \d+\.\d s with the deployment\n", out)


def test_a_failed_deploy_at_the_start_is_told_and_the_platform_runs_on(platform: FakePlatform) -> None:
    code = platform.folder / "broken"
    code.mkdir()
    (code / "handler.py").write_text("def something_else(event): ...\n")

    ended = platform.sless("up", "--detach", "--port", "0", "--data", str(platform.data), "--deploy", str(code))

    assert ended.returncode == 2
    assert "--entrypoint" in ended.stderr
    assert platform.status()["ready"]
