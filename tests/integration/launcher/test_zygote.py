"""Instances forked from a zygote: the same as executed ones, nothing left of others, and none lost with their zygote."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.forked import (
    NOTHING,
    conditions_with_namespaces,
    forking_launcher,
    hello,
    named,
    spec,
    wait_for_blanks,
    zygote_of,
)
from tests.support.launcher import UID_BASE, Conditions, Launcher, LauncherClient, descendants, is_alive, wait_until

Forking = tuple[Launcher, LauncherClient]

# What a program can tell of itself, by file descriptor 1: the launcher passes it on.
TELL = """
import json, os, resource, sys, threading
status = {line.partition(":")[0]: line.partition(":")[2].split() for line in open("/proc/self/status")}
mounts = [line.split() for line in open("/proc/self/mountinfo")]
os.write(1, json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "user": os.getuid(), "group": os.getgid(),
    "groups": os.getgroups(), "cwd": os.getcwd(), "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path,
    "flags": [sys.flags.isolated, sys.flags.no_site], "env": dict(os.environ), "command": open("/proc/self/cmdline").read(),
    "name": status["Name"], "fds": sorted(os.listdir("/proc/self/fd"))[:4], "many": len(os.listdir("/proc/self/fd")),
    "rights": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")],
    "blocked": status["SigBlk"], "ignored": status["SigIgn"], "limits": [resource.getrlimit(kind) for kind in range(16)],
    "mounts": sorted((fields[4], fields[5]) for fields in mounts), "host": os.uname().nodename, "umask": status["Umask"],
    "accounts": open("/etc/passwd").read(), "processes": sorted(name for name in os.listdir("/proc") if name.isdecimal()),
    "reaper": [open("/proc/1/cmdline").read().strip("\\0"), open("/proc/1/comm").read()],
    "tmp": os.statvfs("/tmp").f_blocks * os.statvfs("/tmp").f_frsize, "threads": threading.active_count(),
    "main": [sys.modules["__main__"].__name__, sys.modules["__main__"].__file__],
    "launcher": [name for name in sys.modules if "launcher" in name],
    "opt": sorted(name for name in os.listdir("/opt/sless") if os.listdir("/opt/sless/" + name)),
    "oom": open("/proc/self/oom_score_adj").read(),
    "encodings": [sys.getfilesystemencoding(), sys.stdout.encoding], "main_thread": threading.current_thread() is threading.main_thread(),
}, sort_keys=True).encode() + b"\\n")
def handle(event):
    return None
"""
CHANCE = """
import json, os, random, uuid, tempfile
os.write(1, json.dumps({"chance": [random.random(), uuid.uuid4().hex, random.SystemRandom().random()], "hash": hash("seed"),
    "name": next(tempfile._get_candidate_names()), "aslr": id(object())}).encode() + b"\\n")
def handle(event):
    return None
"""
LEAVE = """
import json, os
json.left = 'secret'
os.environ['LEFT'] = 'secret'
open('/tmp/left', 'w').write('secret')
open('/dev/shm/left', 'w')
"""
LOOK = """
import json, os
os.write(1, json.dumps({
    "module": hasattr(json, "left"), "env": [name for name in os.environ if "LEFT" in name or "SECRET" in name],
    "tmp": os.listdir("/tmp"), "shm": os.listdir("/dev/shm"), "code": os.listdir("/srv/function"),
}).encode())
"""
SIZES = """
import json, os, resource
size = lambda path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize >> 20
os.write(1, json.dumps({"sizes": [resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20, size("/tmp"), size("/dev/shm")]}).encode())
"""
ORPHANS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
"""

each_condition = pytest.mark.parametrize(
    "under", conditions_with_namespaces(), ids=lambda under: under.name.replace(", ", "-").replace(" ", "-")
)


@pytest.fixture(
    scope="module",
    params=conditions_with_namespaces(),
    ids=lambda under: under.name.replace(", ", "-").replace(" ", "-"),
)
def forking(request: pytest.FixtureRequest) -> Iterator[Forking]:
    with forking_launcher(request.param) as running:
        if running[0].connect().call("isolation")["level"] != "namespaces":
            pytest.skip("no namespaces here")
        yield running


def forked(forking: Forking, instance_id: str, code: str, **fields: Any) -> dict[str, Any]:
    """Start it in a blank that waits: what `start` answered."""
    launcher, client = forking
    blanks = wait_for_blanks(launcher, client)
    started = client.call("start", spec=spec(launcher, instance_id, code, **fields))
    assert started["pid"] in blanks
    return started


def told(client: LauncherClient, instance_id: str) -> dict[str, Any]:
    """The JSON that it printed."""
    found: dict[str, Any] = json.loads(client.printed(instance_id, "{")["text"])
    return found


def program_of(reaper: int) -> int:
    """The program's process."""
    return min(descendants(reaper))


def user_of(pid: int) -> int:
    """Its user, as the kernel tells it."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))


def gone(client: LauncherClient, *instance_ids: str) -> None:
    for instance_id in instance_ids:
        client.call("stop", instance_id=instance_id, grace_ms=0)
        client.ended(instance_id)


def test_it_finds_everything_as_an_executed_one_does(forking: Forking) -> None:
    launcher, client = forking
    env = {"GREETING": "hello", "TZ": "Europe/Berlin"}
    client.call("start", spec=spec(launcher, "executed", TELL, env=env, uid_index=7, zygote=None))
    forked(forking, "forked", TELL, env=env, uid_index=7)
    executed, found = told(client, "executed"), told(client, "forked")
    for one in (executed, found):
        del one["env"]["SLESS_INSTANCE"], one["many"]
        one["command"] = one["command"].rstrip("\0")  # What is left of the zygote's is zeros.
        one["mounts"] = [mount for mount in one["mounts"] if mount[0] != "/"]
    for name, value in executed.items():
        assert found[name] == value, name
    gone(client, "executed", "forked")


def test_it_has_no_descriptor_of_others(forking: Forking) -> None:
    _, client = forking
    started = forked(forking, "i-1", NOTHING)
    hello(started["socket"])
    folder = f"/proc/{program_of(started['pid'])}/fd"
    links = {name: os.readlink(f"{folder}/{name}").partition(":")[0] for name in os.listdir(folder)}
    assert (links.pop("0"), links.pop("1"), links.pop("2"), links.pop("3")) == ("/dev/null", "pipe", "pipe", "socket")
    # What the runtime has opened: nothing of these is a socket, such as the one to the launcher would be.
    assert set(links.values()) <= {"pipe", "anon_inode"}
    gone(client, "i-1")


def test_the_reaper_has_given_up_its_rights_before_it_has_a_function(forking: Forking) -> None:
    launcher, client = forking
    blanks = wait_for_blanks(launcher, client)
    started = forked(forking, "i-1", NOTHING, uid_index=5)
    hello(started["socket"])
    for pid in {started["pid"], *blanks}:
        with open(f"/proc/{pid}/status") as file:
            told = {line.partition(":")[0]: line.partition(":")[2].split() for line in file}
        root = launcher.conditions.uid == 0
        assert set(told["Uid"]) == {str(UID_BASE - 1 if root else launcher.conditions.uid)}
        assert [told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [
            ["0" * 16],
            *[[f"{0x20 if root else 0:016x}"]] * 2,
            ["0" * 16],
        ]
        assert (told["NoNewPrivs"], told["Seccomp"]) == (["1"], ["2"])
    client.call("stop", instance_id="i-1", grace_ms=5000)
    assert client.ended("i-1")["exit_code"] == 0, "SIGTERM reaches the program"


def test_chance_differs_while_the_hash_seed_is_the_zygotes(forking: Forking) -> None:
    _, client = forking
    forked(forking, "i-1", CHANCE)
    forked(forking, "i-2", CHANCE)
    one, other = told(client, "i-1"), told(client, "i-2")
    assert not set(one["chance"]) & set(other["chance"])
    assert one["name"] != other["name"]
    assert one["hash"] == other["hash"]
    gone(client, "i-1", "i-2")


def test_nothing_of_an_earlier_instance_is_left(forking: Forking) -> None:
    _, client = forking
    first = forked(forking, "i-1", LEAVE + NOTHING, env={"MY_SECRET": "secret"})
    hello(first["socket"])
    gone(client, "i-1")
    forked(forking, "i-2", LOOK + NOTHING)
    assert told(client, "i-2") == {"module": False, "env": [], "tmp": [], "shm": [], "code": ["handler.py"]}
    gone(client, "i-2")


def test_a_users_module_comes_before_one_that_was_loaded_ahead(forking: Forking) -> None:
    _, client = forking
    code = (
        "import queue, json, os, email\nos.write(1, json.dumps({'mine': [queue.MINE, email.MINE]}).encode())\n"
        + NOTHING
    )
    forked(forking, "i-1", code, files={"queue.py": "MINE = 1\n", "email.py": "MINE = 2\n"})
    assert told(client, "i-1") == {"mine": [1, 2]}
    gone(client, "i-1")


def test_variables_that_no_fork_would_heed_are_executed(forking: Forking) -> None:
    launcher, client = forking
    blanks = wait_for_blanks(launcher, client)
    started = client.call("start", spec=spec(launcher, "i-1", NOTHING, env={"MALLOC_ARENA_MAX": "1"}))
    assert started["pid"] not in blanks
    assert hello(started["socket"])["instance"] == "i-1"
    gone(client, "i-1")


def test_the_memory_limit_and_the_sizes_are_its_own(forking: Forking) -> None:
    _, client = forking
    forked(forking, "i-1", SIZES + NOTHING, memory_mb=48, allowance_mb=100)
    assert told(client, "i-1") == {"sizes": [148, 48, 48]}
    gone(client, "i-1")


def test_what_fails_on_the_way_is_told_with_its_step(forking: Forking) -> None:
    launcher, client = forking
    wait_for_blanks(launcher, client)
    error = client.error("start", spec=spec(launcher, "i-1", NOTHING, cwd="/not/there"))
    assert (error["code"], error["step"], error["errno"]) == ("START_FAILED", "run the program", 2)
    assert not (launcher.run / "i-1").exists()


def test_the_instance_ends_as_its_program_does(forking: Forking) -> None:
    _, client = forking
    forked(forking, "i-1", "import sys\nsys.stderr.flush()\nimport os\nos._exit(7)\n")
    ended = client.ended("i-1")
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (7, None, "ended")
    forked(forking, "i-2", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    ended = client.ended("i-2")
    assert (ended["exit_code"], ended["signal"]) == (None, 9)


def test_orphans_are_reaped_and_end_with_the_instance(forking: Forking) -> None:
    _, client = forking
    started = forked(forking, "i-1", ORPHANS + NOTHING)
    hello(started["socket"])
    family = [started["pid"], *descendants(started["pid"])]
    assert len(family) == 5
    gone(client, "i-1")
    wait_until(lambda: not any(is_alive(pid) for pid in family), "all are gone")


def test_twenty_starts_at_once_are_all_served(forking: Forking) -> None:
    launcher, client = forking
    wait_for_blanks(launcher, client)
    numbers = [client.send("start", spec=spec(launcher, f"i-{index}", NOTHING, uid_index=index)) for index in range(20)]
    started = [client.answer(number)["result"] for number in numbers]
    assert [hello(one["socket"])["instance"] for one in started] == [f"i-{index}" for index in range(20)]
    assert len({one["pid"] for one in started}) == 20
    if launcher.conditions.uid == 0:
        assert len({user_of(program_of(one["pid"])) for one in started}) == 20
    gone(client, *(f"i-{index}" for index in range(20)))
    wait_for_blanks(launcher, client)


@each_condition
def test_a_killed_zygote_takes_no_instance_and_loses_no_start(under: Conditions) -> None:
    with forking_launcher(under) as (launcher, client):
        before = forked((launcher, client), "before", NOTHING)
        killed = zygote_of(launcher)
        numbers = [client.send("start", spec=spec(launcher, f"i-{index}", NOTHING)) for index in range(4)]
        os.kill(killed, signal.SIGKILL)
        numbers += [client.send("start", spec=spec(launcher, f"i-{index}", NOTHING)) for index in range(4, 8)]
        started = [client.answer(number)["result"] for number in numbers]
        assert [hello(one["socket"])["instance"] for one in started] == [f"i-{index}" for index in range(8)]
        assert hello(before["socket"])["instance"] == "before"
        wait_until(lambda: named(launcher, "sless-zygote") not in ([], [killed]), "another zygote is there")
        forked((launcher, client), "after", NOTHING)
        assert not client.events or all(event["event"] != "ended" for event in client.events)


@each_condition
def test_a_zygote_that_hangs_delays_starts_and_loses_none(under: Conditions) -> None:
    with forking_launcher(under) as (launcher, client):
        hanging = zygote_of(launcher)
        os.kill(hanging, signal.SIGSTOP)
        numbers = [client.send("start", spec=spec(launcher, f"i-{index}", NOTHING)) for index in range(4)]
        stopped = client.send("start", spec=spec(launcher, "i-stopped", NOTHING))
        client.call("stop", instance_id="i-stopped", grace_ms=0)
        assert client.answer(stopped)["error"]["message"] == "the instance was stopped before its program ran"
        started = [client.answer(number)["result"] for number in numbers]
        assert [hello(one["socket"])["instance"] for one in started] == [f"i-{index}" for index in range(4)]
        os.kill(hanging, signal.SIGCONT)
        gone(client, *(f"i-{index}" for index in range(4)))
        assert client.call("list")["instances"] == []


@each_condition
def test_all_die_with_the_launcher(under: Conditions) -> None:
    with forking_launcher(under) as (launcher, client):
        forked((launcher, client), "i-1", NOTHING)
        wait_for_blanks(launcher, client)
        family = descendants(launcher.process.pid)
        assert len(family) == 7  # the zygote, and two processes of the instance and of each blank
        launcher.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in family), "all processes are gone")


@each_condition
def test_a_launcher_that_is_stopped_leaves_no_blank(under: Conditions) -> None:
    with forking_launcher(under) as (launcher, _):
        family = descendants(launcher.process.pid)
        launcher.stop()
        wait_until(lambda: not any(is_alive(pid) for pid in family), "all processes are gone")
        assert launcher.process.returncode == 0
        assert list(launcher.run.iterdir()) == []


RENEWALS: list[Mapping[str, str]] = [
    {"RENEWED_FORKS = 256": "RENEWED_FORKS = 4"},
    {"RENEWED_SEC = 900.0": "RENEWED_SEC = 2.0"},
]


@pytest.mark.parametrize("changes", RENEWALS, ids=["forks", "age"])
def test_a_zygote_is_renewed_and_its_instances_live_on(changes: Mapping[str, str]) -> None:
    with forking_launcher(conditions_with_namespaces()[-1], changes) as (launcher, client):
        old = zygote_of(launcher)
        seeds = []
        for number in range(2):
            started = client.call("start", spec=spec(launcher, f"i-{number}", CHANCE))
            hello(started["socket"])
            seeds.append(told(client, f"i-{number}")["hash"])
        wait_until(lambda: old not in named(launcher, "sless-zygote"), "the old zygote is gone")
        zygote_of(launcher)
        blanks = wait_for_blanks(launcher, client)
        later = client.call("start", spec=spec(launcher, "later", CHANCE))
        assert later["pid"] in blanks
        assert told(client, "later")["hash"] not in seeds
        assert {one["instance_id"] for one in client.call("list")["instances"]} == {"i-0", "i-1", "later"}


def test_blanks_that_die_are_replaced(forking: Forking) -> None:
    launcher, client = forking
    blanks = wait_for_blanks(launcher, client)
    for pid in blanks:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in blanks), "they are gone")
    started = client.call("start", spec=spec(launcher, "i-1", NOTHING))
    assert hello(started["socket"])["instance"] == "i-1"
    assert not wait_for_blanks(launcher, client) & blanks
    gone(client, "i-1")


def test_a_runtime_that_offers_nothing_is_executed(forking: Forking) -> None:
    launcher, client = forking
    runtime = launcher.base / "older"
    runtime.mkdir()
    (runtime / "main.py").write_text("print('executed', flush=True)\nimport time\ntime.sleep(600)\n")
    for number in range(2):
        wanted = spec(launcher, f"i-{number}", NOTHING)
        wanted["layers"][0]["source"] = str(runtime)
        client.call("start", spec=wanted)
        client.printed(f"i-{number}", "executed")
    gone(client, "i-0", "i-1")
