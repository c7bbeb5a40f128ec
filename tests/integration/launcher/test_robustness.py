"""Nothing is left over, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launcher import (
    Conditions,
    Launcher,
    LauncherClient,
    conditions,
    descendants,
    is_alive,
    running_launcher,
    wait_until,
)

SLEEP = "import time\ntime.sleep(600)"
# Ignores SIGTERM and has a child in a session of its own, which ignores it too.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print("deaf", flush=True)
time.sleep(600)
"""

each_condition = pytest.mark.parametrize("under", conditions(), ids=lambda under: under.name.replace(" ", "-"))


def start_stubborn(launcher: Launcher, client: LauncherClient, count: int) -> list[int]:
    """Instances that will not end by themselves; all processes of theirs."""
    client.call("follow")
    for number in range(count):
        client.call("start", spec=launcher.spec(f"i-{number}", STUBBORN))
    for number in range(count):
        client.printed(f"i-{number}", "deaf")
    return descendants(launcher.process.pid)


@each_condition
def test_kill_9_of_the_launcher_leaves_no_process(under: Conditions) -> None:
    with running_launcher(under) as launcher:
        family = start_stubborn(launcher, launcher.connect(), 3)
        assert len(family) == 9  # a reaper, a program and its child each
        launcher.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in family), "all processes are gone")


@each_condition
def test_a_new_launcher_removes_what_a_killed_one_left(under: Conditions) -> None:
    with running_launcher(under) as first:
        start_stubborn(first, first.connect(), 1)
        first.process.kill()
        first.process.wait()
        assert (first.run / "i-0" / "instance.sock").exists()
        with running_launcher(under, keep=first.base) as second:
            client = second.connect()
            assert client.call("list")["instances"] == []
            assert [path.name for path in second.run.iterdir() if path.name != ".roots"] == []
            client.call("start", spec=second.spec("i-0", SLEEP))


@each_condition
def test_sigterm_ends_all_instances_and_leaves_an_empty_run_folder(under: Conditions) -> None:
    with running_launcher(under) as launcher:
        client = launcher.connect()
        for number in range(3):
            client.call("start", spec=launcher.spec(f"i-{number}", SLEEP))
        family = descendants(launcher.process.pid)
        launcher.process.terminate()
        assert launcher.process.wait(20) == 0
        assert not any(is_alive(pid) for pid in family)
        assert list(launcher.run.iterdir()) == []


def test_sigterm_waits_five_seconds_for_an_instance_that_will_not_end() -> None:
    with running_launcher(conditions()[0]) as launcher:
        family = start_stubborn(launcher, launcher.connect(), 2)
        began = time.monotonic()
        launcher.process.terminate()
        assert launcher.process.wait(20) == 0
        assert 5 <= time.monotonic() - began < 10
        assert not any(is_alive(pid) for pid in family)


@each_condition
def test_a_launcher_that_is_being_stopped_starts_nothing(under: Conditions) -> None:
    with running_launcher(under) as launcher:
        client = launcher.connect()
        start_stubborn(launcher, client, 1)
        launcher.process.terminate()
        wait_until(lambda: refuses(launcher, client), "starts are refused")
        launcher.process.kill()


def refuses(launcher: Launcher, client: LauncherClient) -> bool:
    answer = client.answer(client.send("start", spec=launcher.spec("i-late", "")))
    return "error" in answer and answer["error"]["code"] == "STOPPING"


def test_one_launcher_a_run_folder(launcher: Launcher, client: LauncherClient) -> None:
    client.call("start", spec=launcher.spec("i-first", SLEEP))
    with running_launcher(launcher.conditions, keep=launcher.base) as second:
        assert second.process.wait(20) == 1
    assert (launcher.run / "i-first" / "instance.sock").exists()
    client.call("stop", instance_id="i-first", grace_ms=0)


def test_a_hundred_starts_and_stops_leave_nothing(launcher: Launcher, client: LauncherClient) -> None:
    # The first may make the shared root; what counts is what each further one leaves.
    client.call("start", spec=launcher.spec("i-once", SLEEP))
    client.call("stop", instance_id="i-once", grace_ms=0)
    before = traces(launcher)
    for number in range(20 if launcher.conditions.forbid else 100):
        code = "" if number % 2 else SLEEP
        client.call("start", spec=launcher.spec(f"i-{number}", code))
        client.call("stop", instance_id=f"i-{number}", grace_ms=0)
    assert traces(launcher) == before


def traces(launcher: Launcher) -> dict[str, object]:
    """What instances could leave: processes, zombies among them, mounts, descriptors, folders."""
    own = Path(f"/proc/{launcher.process.pid}")
    return {
        "processes": descendants(launcher.process.pid),
        "own mounts": Path("/proc/self/mountinfo").read_text(),
        "launcher's mounts": len((own / "mountinfo").read_text().splitlines()),
        "descriptors": len(os.listdir(own / "fd")) if os.geteuid() == 0 else None,
        "run folder": sorted(path.name for path in launcher.run.iterdir()),
    }


@each_condition
def test_exhaustion_is_an_answer_and_passes(under: Conditions) -> None:
    with running_launcher(under) as launcher:
        client = launcher.connect()
        client.call("start", spec=launcher.spec("i-before", SLEEP))
        launcher.limit("NOFILE", 12)
        error = client.error("start", spec=launcher.spec("i-more", SLEEP))
        assert (error["code"], error["errno"]) == ("EXHAUSTED", 24)
        assert not (launcher.run / "i-more").exists()
        launcher.limit("NOFILE", None)
        client.call("start", spec=launcher.spec("i-more", SLEEP))


@pytest.mark.parametrize(
    "under", [one for one in conditions() if one.uid != 0], ids=lambda under: under.name.replace(" ", "-")
)
def test_a_process_that_cannot_be_made_is_an_answer_and_passes(under: Conditions) -> None:
    # Root's processes are not counted; hence an ordinary user's alone.
    with running_launcher(under) as launcher:
        client = launcher.connect()
        client.call("list")  # It is past its own start.
        launcher.limit("NPROC", 1)
        error = client.error("start", spec=launcher.spec("i-more", SLEEP))
        assert (error["code"], error["errno"]) == ("EXHAUSTED", 11)
        launcher.limit("NPROC", None)
        client.call("start", spec=launcher.spec("i-more", SLEEP))


def test_a_lack_of_descriptors_turns_clients_away_and_passes(launcher: Launcher, client: LauncherClient) -> None:
    launcher.limit("NOFILE", 8)
    try:
        with pytest.raises((EOFError, ConnectionError)):
            launcher.connect().call("list")
    finally:
        launcher.limit("NOFILE", None)
    assert client.call("list")["instances"] == []
    assert launcher.connect().call("list")["instances"] == []


def test_the_launcher_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = """
import os, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + "/l.sock")
listener.listen()
options = ["--listen-fd", str(listener.fileno()), "--run-dir", sys.argv[1] + "/run", "--parent-pid", str(os.getpid())]
program = [sys.executable, "-I", "-S", sys.argv[2], *options]
child = subprocess.Popen(program, env={}, pass_fds=[listener.fileno()])
print(child.pid, flush=True)
child.wait()
"""
    main = Path(__file__).parents[3] / "services/runtime-manager/src/sless_runtime_manager/launcher/__main__.py"
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(main)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    client = LauncherClient(tmp_path / "l.sock", os.geteuid())
    assert client.call("list") == {"instances": []}
    parent.kill()
    parent.wait()
    parent.stdout.close()
    client.close()
    wait_until(lambda: not is_alive(pid), "the launcher ends")


def test_signals_of_the_terminal_do_not_end_it(launcher: Launcher, client: LauncherClient) -> None:
    client.call("start", spec=launcher.spec("i-terminal", SLEEP))
    for number in (signal.SIGINT, signal.SIGHUP):
        launcher.process.send_signal(number)
    assert "i-terminal" in str(client.call("list"))
    client.call("stop", instance_id="i-terminal", grace_ms=0)
