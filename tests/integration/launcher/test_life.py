"""An instance from its start to its end, as a client of the launcher sees it."""

from __future__ import annotations

import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from tests.support.launcher import Launcher, LauncherClient, descendants, is_alive, wait_until

SLEEP = "import time\ntime.sleep(600)"
SERVE = """
import os, socket
listener = socket.socket(fileno=int(os.environ["SLESS_LISTEN_FD"]))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.close()
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print("deaf", flush=True)
time.sleep(600)
"""


def test_an_instance_listens_before_its_program_runs(launcher: Launcher, client: LauncherClient) -> None:
    answer = client.call("start", spec=launcher.spec("i-serve", SERVE))
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(20)
        caller.connect(answer["socket"])
        assert caller.recv(5) == b"hello"
    client.call("stop", instance_id="i-serve", grace_ms=0)


def test_only_the_platforms_user_may_connect_to_an_instance(launcher: Launcher, client: LauncherClient) -> None:
    path = Path(client.call("start", spec=launcher.spec("i-mode", SLEEP))["socket"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_uid == launcher.conditions.uid
    client.call("stop", instance_id="i-mode", grace_ms=0)


def test_the_environment_is_the_specs_and_nothing_else(launcher: Launcher, client: LauncherClient) -> None:
    code = "import os\nos.environ.pop('LC_CTYPE', None)\nprint(sorted(os.environ.items()))"
    client.call("start", spec=launcher.spec("i-env", code, env={"A": "1", "LANG": "C.UTF-8"}))
    assert client.ended("i-env")["tail"] == "[('A', '1'), ('LANG', 'C.UTF-8'), ('SLESS_LISTEN_FD', '3')]\n"


def test_nothing_of_the_launcher_is_inherited_but_the_socket(launcher: Launcher, client: LauncherClient) -> None:
    code = "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    client.call("start", spec=launcher.spec("i-fds", code))
    assert client.ended("i-fds")["tail"] == "[0, 1, 2, 3, 4]\n"  # 4 is the listing's own


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [
        ("raise SystemExit(0)", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("import os\nos.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("import ctypes\nctypes.string_at(0)", None, signal.SIGSEGV),
        ("import os\nos.kill(os.getpid(), 15)", None, signal.SIGTERM),
        ("raise SystemExit(139)", 139, None),
    ],
)
def test_an_exit_code_is_told_from_a_signal(
    launcher: Launcher, client: LauncherClient, code: str, exit_code: int | None, number: int | None
) -> None:
    instance_id = f"i-code-{exit_code or 0}-{int(number or 0)}"
    client.call("start", spec=launcher.spec(instance_id, code))
    ended = client.ended(instance_id)
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (exit_code, number, "ended")


def test_the_end_carries_the_last_that_was_printed(launcher: Launcher, client: LauncherClient) -> None:
    code = "print('x' * 200_000)\nprint('last words')\nraise SystemExit(1)"
    client.call("start", spec=launcher.spec("i-tail", code))
    tail = client.ended("i-tail")["tail"]
    assert tail.endswith("x\nlast words\n")
    assert len(tail) == 64 << 10


def test_stop_lets_the_program_finish_within_its_grace(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, signal, sys, time
def finish(*_):
    os.write(1, b"finished")
    sys.exit(7)
signal.signal(signal.SIGTERM, finish)
print("ready", flush=True)
time.sleep(600)
"""
    client.call("start", spec=launcher.spec("i-grace", code))
    client.printed("i-grace", "ready")
    client.call("stop", instance_id="i-grace", grace_ms=20_000)
    ended = client.ended("i-grace")
    assert (ended["exit_code"], ended["reason"]) == (7, "stopped")
    assert "finished" in ended["tail"]


def test_stop_ends_every_process_of_a_program_that_will_not(launcher: Launcher, client: LauncherClient) -> None:
    first = client.call("start", spec=launcher.spec("i-deaf", STUBBORN))["pid"]
    client.printed("i-deaf", "deaf")
    wait_until(lambda: len(descendants(first)) == 2, "the program and its child run")
    family = [first, *descendants(first)]
    began = time.monotonic()
    client.call("stop", instance_id="i-deaf", grace_ms=300)
    assert time.monotonic() - began >= 0.3
    assert client.ended("i-deaf")["signal"] == signal.SIGKILL
    assert [pid for pid in family if is_alive(pid)] == []


def test_a_shorter_grace_counts_from_the_second_stop(launcher: Launcher, client: LauncherClient) -> None:
    client.call("start", spec=launcher.spec("i-twice", STUBBORN))
    client.printed("i-twice", "deaf")
    first = client.send("stop", instance_id="i-twice", grace_ms=600_000)
    client.call("stop", instance_id="i-twice", grace_ms=0)
    assert client.answers[first]["result"] == {}


def test_one_that_is_stopped_while_it_starts_is_gone(launcher: Launcher, client: LauncherClient) -> None:
    starting = client.send("start", spec=launcher.spec("i-early", SLEEP))
    client.call("stop", instance_id="i-early", grace_ms=0)
    answer = client.answer(starting)
    assert "result" in answer or answer["error"]["message"] == "the instance was stopped before its program ran"
    assert not (launcher.run / "i-early").exists()


def test_stopping_what_is_not_there_is_no_error(client: LauncherClient) -> None:
    assert client.call("stop", instance_id="i-never", grace_ms=1000) == {}


def test_what_runs_is_listed_until_it_is_gone(launcher: Launcher, client: LauncherClient) -> None:
    answer = client.call("start", spec=launcher.spec("i-list", SLEEP))
    assert [one for one in client.call("list")["instances"] if one["instance_id"] == "i-list"] == [answer]
    assert answer["started_at"] == pytest.approx(time.time(), abs=60)
    client.call("stop", instance_id="i-list", grace_ms=0)
    assert [one for one in client.call("list")["instances"] if one["instance_id"] == "i-list"] == []
    assert not (launcher.run / "i-list").exists()


def test_one_id_runs_once(launcher: Launcher, client: LauncherClient) -> None:
    client.call("start", spec=launcher.spec("i-once", SLEEP))
    assert client.error("start", spec=launcher.spec("i-once", SLEEP))["code"] == "INVALID"
    assert (launcher.run / "i-once" / "instance.sock").exists()
    client.call("stop", instance_id="i-once", grace_ms=0)


def test_orphans_are_reaped(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.wait()
print("forked", flush=True)
time.sleep(600)
"""
    first = client.call("start", spec=launcher.spec("i-orphans", code))["pid"]
    client.printed("i-orphans", "forked")
    wait_until(lambda: len(descendants(first)) == 1, "all orphans are reaped")
    client.call("stop", instance_id="i-orphans", grace_ms=0)


def test_a_program_that_cannot_be_run_is_a_sentence(launcher: Launcher, client: LauncherClient) -> None:
    error = client.error("start", spec=launcher.spec("i-no", "", argv=["/usr/bin/no-such-program"]))
    assert error["code"] == "START_FAILED"
    assert error["step"] == "run the program"
    assert error["errno"] == 2
    assert error["message"] == "could not run the program: /usr/bin/no-such-program: No such file or directory"
    assert not (launcher.run / "i-no").exists()
    assert "i-no" not in str(client.call("list"))


def test_a_layer_that_is_not_there_is_a_sentence(launcher: Launcher, client: LauncherClient) -> None:
    layers = [{"source": str(launcher.data / "nowhere"), "target": "/srv/function"}]
    error = client.error("start", spec=launcher.spec("i-layer", SLEEP, layers=layers))
    assert error["message"].startswith(f"the layer {launcher.data}/nowhere is no folder")


def test_an_end_is_told_to_the_next_follower_until_it_is_seen(launcher: Launcher) -> None:
    first = launcher.connect()
    first.call("start", spec=launcher.spec("i-unseen", "print('bye')"))
    wait_until(lambda: "i-unseen" not in str(first.call("list")), "the instance ends")
    first.close()
    second = launcher.connect()
    second.call("follow")
    assert second.ended("i-unseen")["tail"] == "bye\n"
    second.call("seen", instance_ids=["i-unseen"])
    third = launcher.connect()
    third.call("follow")
    assert [event for event in third.events if event["instance_id"] == "i-unseen"] == []


def test_instances_outlive_their_clients(launcher: Launcher) -> None:
    first = launcher.connect()
    pid = first.call("start", spec=launcher.spec("i-kept", SLEEP))["pid"]
    first.close()
    second = launcher.connect()
    assert "i-kept" in str(second.call("list"))
    assert is_alive(pid)
    second.call("stop", instance_id="i-kept", grace_ms=0)


def test_wrong_requests_are_answered_and_harm_nobody(launcher: Launcher, client: LauncherClient) -> None:
    assert client.error("dance")["code"] == "INVALID"
    assert client.error("start", spec={"instance_id": "../../etc"})["code"] == "INVALID"
    assert client.error("start", spec=launcher.spec("i-bad", "", env={"A\0": "b"}))["code"] == "INVALID"
    other = launcher.connect()
    assert other.call("list")["instances"] is not None


def test_a_client_that_reads_nothing_does_not_stop_an_instance_that_prints(launcher: Launcher) -> None:
    deaf = launcher.connect()
    deaf.call("follow")
    starter = launcher.connect()
    code = "import sys\nfor _ in range(400):\n    sys.stdout.write('y' * 65536)\nsys.stdout.flush()\nprint('done')"
    starter.call("start", spec=launcher.spec("i-loud", code))
    wait_until(lambda: "i-loud" not in str(starter.call("list")), "the instance prints all and ends")
    texts = []
    while (event := deaf.receive()).get("event") != "ended":
        if event.get("event") == "output":
            texts.append(event)
    assert event["tail"].endswith("y" * 100 + "done\n")
    assert sum(len(event["text"]) for event in texts) < 4 << 20
    assert any(event["dropped"] for event in texts) or len(texts) < 400
