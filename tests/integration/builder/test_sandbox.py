"""The sandbox of a build's untrusted steps."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from sless_builder.adapters.bubblewrap import Bubblewrap, find_bwrap
from sless_builder.adapters.confinement import Namespaces, UserAlone
from sless_builder.adapters.control_groups import ControlGroups
from sless_builder.adapters.sandboxes import SandboxReport, find_sandbox
from sless_builder.adapters.step_sandbox import StepSandbox
from sless_builder.domain.steps import Exceeded, StepEnd
from sless_builder.ports import Sandbox
from sless_platform.errors import Unavailable

from tests.support.builder import until
from tests.support.steps import PYTHON, descriptors, mounts, processes_with, python, ran, shell, work_folder

UID = 199_998
AS_ROOT = os.geteuid() == 0
BUILD_UID = UID if AS_ROOT else None


@pytest.fixture
def folder() -> Iterator[Path]:
    """A step's writable folder."""
    with work_folder() as path:
        yield path


@pytest.fixture(params=["namespaces, control groups", "namespaces, measured", "limits, measured"])
def sandbox(request: pytest.FixtureRequest, folder: Path) -> Sandbox:
    """Each sandbox that there is."""
    level, counted = request.param.split(", ")
    groups = ControlGroups.find() if counted == "control groups" else ControlGroups([])
    if counted == "control groups" and not groups.controllers:
        pytest.skip("no control group can be made here")
    return in_namespaces(groups) if level == "namespaces" else with_limits_alone(groups, folder)


@pytest.fixture(params=["control groups", "measured"])
def enclosed(request: pytest.FixtureRequest) -> Sandbox:
    """Sandboxes with namespaces of their own."""
    return in_namespaces(ControlGroups.find() if request.param == "control groups" else ControlGroups([]))


def in_namespaces(groups: ControlGroups) -> Sandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    confinement = Namespaces(Bubblewrap(bwrap, as_root=AS_ROOT), uid=BUILD_UID)
    return StepSandbox(confinement, python=PYTHON, uid=BUILD_UID, groups=groups)


def with_limits_alone(groups: ControlGroups, folder: Path) -> Sandbox:
    if AS_ROOT and not PYTHON.is_relative_to("/usr"):
        pytest.skip("the user of builds cannot read this interpreter")
    return StepSandbox(UserAlone(folder.parent, uid=BUILD_UID), python=PYTHON, uid=BUILD_UID, groups=groups)


async def test_what_it_prints_comes_line_by_line_and_its_code_is_told(sandbox: Sandbox, folder: Path) -> None:
    end, lines = await ran(sandbox, shell(folder, "echo one; echo two >&2; printf three; exit 3"))
    assert (end, lines) == (StepEnd(3, None, None), ["one", "two", "three"])
    assert not end.succeeded


async def test_lines_come_while_it_runs(sandbox: Sandbox, folder: Path) -> None:
    came = asyncio.Event()
    running = asyncio.create_task(
        sandbox.run(shell(folder, "echo begun; while [ ! -e go ]; do sleep 0.01; done"), lambda _line: came.set())
    )
    await asyncio.wait_for(came.wait(), 30)
    assert not running.done()
    (folder / "go").touch()
    assert (await running).succeeded


async def test_a_signal_is_told(sandbox: Sandbox, folder: Path) -> None:
    end, _ = await ran(sandbox, shell(folder, "kill -SEGV $$"))
    assert end == StepEnd(None, signal.SIGSEGV, None)


async def test_a_program_that_is_not_there_says_so(sandbox: Sandbox, folder: Path) -> None:
    end, lines = await ran(sandbox, shell(folder, "exec /no/such/program"))
    assert end.exit_code == 127
    assert "/no/such/program" in lines[-1]


async def test_it_has_its_own_user_environment_and_files_alone(enclosed: Sandbox, folder: Path) -> None:
    script = """
import os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(os.getuid() == os.geteuid(), os.getuid(), status["Groups"].strip(), int(status["CapEff"], 16), status["NoNewPrivs"])
print(sorted(name for name in os.environ if name != "LC_CTYPE"), sorted(os.listdir("/proc/self/fd"))[:-1])
print(os.getcwd(), [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 2])
"""
    end, lines = await ran(enclosed, python(folder, script))
    assert end.succeeded, lines
    assert lines[0] == f"True {UID if AS_ROOT else os.getuid()}  0 1"
    assert lines[1] == "['GIVEN', 'PATH'] ['0', '1', '2']"
    assert lines[2] == f"{folder} []"


async def test_it_can_make_no_user_namespace_and_join_no_other(enclosed: Sandbox, folder: Path) -> None:
    script = """
import ctypes, os, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
for attempt in (lambda: libc.unshare(0x10000000), lambda: libc.syscall(CLONE, 0x10000000 | 17, 0, 0, 0, 0)):
    print(attempt(), ctypes.get_errno() != 0)
print(libc.setns(os.open("/proc/self/ns/user", os.O_RDONLY), 0))
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run(["/bin/echo", "process"], capture_output=True, text=True).stdout.strip())
""".replace("CLONE", "56" if os.uname().machine == "x86_64" else "220")
    end, lines = await ran(enclosed, python(folder, script))
    assert (end.exit_code, lines) == (0, ["-1 True", "-1 True", "-1", "thread", "process"])


@pytest.mark.parametrize("place", ["/", "/etc", "/usr", "/dev", str(PYTHON.parent.parent), str(Path(__file__).parent)])
async def test_it_writes_into_its_folders_and_tmp_alone(enclosed: Sandbox, folder: Path, place: str) -> None:
    end, lines = await ran(enclosed, shell(folder, f"touch mine /tmp/mine && touch {place}/not-mine"))
    assert end.exit_code == 1, lines
    assert (folder / "mine").exists()
    assert not Path("/tmp/mine").exists()


async def test_it_sees_nothing_of_the_platforms(enclosed: Sandbox, folder: Path) -> None:
    secret = folder.parent / "secret"
    secret.write_text("x")
    end, lines = await ran(enclosed, shell(folder, f"cat {secret}; ls {secret.parent} /root /home /run /var /sys"))
    assert not end.succeeded
    assert lines.count("work") <= 1
    assert "secret" not in [line for line in lines if "No such file" not in line]


async def test_without_network_nothing_can_be_reached(enclosed: Sandbox, folder: Path) -> None:
    listener = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    async with listener:
        without, _ = await ran(enclosed, python(folder, script))
        within, _ = await ran(enclosed, python(folder, script, network=True))
    assert (without.exit_code, within.exit_code) == (1, 0)


# -- limits


async def test_time(sandbox: Sandbox, folder: Path) -> None:
    end, lines = await ran(sandbox, shell(folder, "echo begun; sleep 100", seconds=0.5))
    assert (end, lines) == (StepEnd(None, None, Exceeded.TIME), ["begun"])


async def test_output(sandbox: Sandbox, folder: Path) -> None:
    end, lines = await ran(sandbox, shell(folder, "yes 0123456789", output_bytes=1_000))
    assert end.exceeded is Exceeded.OUTPUT
    assert sum(len(line) + 1 for line in lines) <= 1_001


GREEDY = {
    "heap": "held = [bytearray(1 << 20) for _ in range(1_000)]",
    "shared memory": "import mmap; m = mmap.mmap(-1, 1 << 30); [m.write(bytes(1 << 20)) for _ in range(1_000)]",
    "a file in memory": "import os; f = os.memfd_create('x'); [os.write(f, bytes(1 << 20)) for _ in range(1_000)]",
    "many processes": """
import os, time
for _ in range(20):
    if not os.fork():
        held = bytearray(os.urandom(1 << 20) * 20)
        time.sleep(60)
time.sleep(60)
""",
}


@pytest.mark.parametrize("greed", GREEDY)
async def test_memory(sandbox: Sandbox, folder: Path, greed: str) -> None:
    # Where memory is measured, a single process is refused what is too much, and fails by itself.
    end, lines = await ran(sandbox, python(folder, GREEDY[greed], memory_bytes=100 << 20, disk_bytes=1 << 30))
    assert end.exceeded is Exceeded.MEMORY or "MemoryError" in lines[-1], (end, lines)
    assert not end.succeeded


async def test_memory_that_is_a_file_system(enclosed: Sandbox, folder: Path) -> None:
    script = "import time; [open(f'/tmp/{n}', 'wb').write(bytes(1 << 20)) for n in range(200)]; time.sleep(60)"
    end, lines = await ran(enclosed, python(folder, script, memory_bytes=100 << 20, disk_bytes=1 << 30))
    assert end.exceeded is Exceeded.MEMORY, lines


HOARDING = {
    "one file": "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "many files": "n = 0\nwhile True: n += 1; open(f'{n}', 'wb').write(bytes(1 << 20))",
    "folders in folders": "import os\nwhile True: os.mkdir('d'); os.chdir('d'); open('x', 'wb').write(bytes(1 << 20))",
    "files without a name": """
import os
held = []
while True:
    held.append(open("x", "wb"))
    held[-1].write(bytes(1 << 20))
    held[-1].flush()
    os.unlink("x")
""",
    "and is gone at once": "for n in range(65): open(f'{n}', 'wb').write(bytes(1 << 20))",
}


@pytest.mark.parametrize("hoard", HOARDING)
async def test_disk(sandbox: Sandbox, folder: Path, hoard: str) -> None:
    end, lines = await ran(sandbox, python(folder, HOARDING[hoard], disk_bytes=64 << 20))
    assert end.exceeded is Exceeded.DISK, lines


async def test_processes(sandbox: Sandbox, folder: Path) -> None:
    word = secrets.token_hex(8)
    bomb = f"import os; '{word}'\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    end, _ = await ran(sandbox, python(folder, bomb, processes=20))
    assert end.exceeded is Exceeded.PROCESSES
    assert processes_with(word) == []


async def test_what_stays_within_its_limits_is_let_be(sandbox: Sandbox, folder: Path) -> None:
    script = """
import os, subprocess, tempfile
held = bytearray(os.urandom(1 << 20) * 30)
open("large", "wb").write(bytes(30 << 20))
procs = [subprocess.Popen(["/bin/sh", "-c", "sleep 0.3"]) for _ in range(5)]
print([proc.wait() for proc in procs])
"""
    end, lines = await ran(sandbox, python(folder, script, memory_bytes=100 << 20, processes=20))
    assert (end, lines) == (StepEnd(0, None, None), ["[0, 0, 0, 0, 0]"])


# -- nothing is left


async def test_what_it_leaves_running_ends_with_it(sandbox: Sandbox, folder: Path) -> None:
    word = secrets.token_hex(8)
    script = f"(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.05; : {word}; done' >/dev/null 2>&1 &) ; exit 0"
    end, _ = await ran(sandbox, shell(folder, script))
    assert end.succeeded
    assert processes_with(word) == []


async def test_cancelled_it_is_gone_when_the_cancellation_is(sandbox: Sandbox, folder: Path) -> None:
    before, files, word = mounts(), descriptors(), secrets.token_hex(8)
    begun = asyncio.Event()
    script = f"trap '' TERM; setsid sleep 100 & echo {word}; while :; do sleep 0.05; done"
    running = asyncio.create_task(sandbox.run(shell(folder, script), lambda _line: begun.set()))
    await asyncio.wait_for(begun.wait(), 30)
    assert processes_with(word)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(word) == []
    assert (mounts(), descriptors()) == (before, files)


async def test_cancelled_while_it_starts_nothing_is_left(sandbox: Sandbox, folder: Path) -> None:
    files, word = descriptors(), secrets.token_hex(8)
    for pause in (0, 0.002, 0.01, 0.02):
        running = asyncio.create_task(sandbox.run(shell(folder, f"sleep 100; : {word}"), lambda _line: None))
        await asyncio.sleep(pause)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert processes_with(word) == []
    assert descriptors() == files


@pytest.mark.fault(13)
async def test_a_builder_that_is_killed_takes_its_sandbox_along(sandbox: Sandbox, folder: Path) -> None:
    word = secrets.token_hex(8)
    builder = os.fork()
    if builder == 0:
        step = shell(folder, f"setsid sleep 100 & while :; do sleep 0.05; : {word}; done")
        asyncio.run(sandbox.run(step, lambda _line: None))
        os._exit(1)

    async def runs() -> bool:
        return bool(processes_with(word))

    async def gone() -> bool:
        return not processes_with(word)

    await until(runs, "the step runs")
    os.kill(builder, signal.SIGKILL)
    os.waitpid(builder, 0)
    await until(gone, "the sandbox ends with its builder", 10)


# -- which sandbox there is


async def found(folder: Path, python: Path = PYTHON) -> tuple[Sandbox, SandboxReport]:
    answer = await find_sandbox(python=python, uid=BUILD_UID, root=folder.parent)
    return answer.sandbox, answer.report


async def test_the_best_one_that_is_allowed_is_taken(folder: Path) -> None:
    sandbox, report = await found(folder)
    assert (report.level, report.network, report.reason) == ("namespaces", "host", "")
    assert (await ran(sandbox, shell(folder, "echo yes")))[1] == ["yes"]
    report.write(folder / "report.json")
    assert json.loads((folder / "report.json").read_text()) == asdict(report)
    assert os.listdir(folder) == ["report.json"]


async def test_where_namespaces_are_forbidden_limits_hold_and_the_reason_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = folder.parent / "bwrap"
    forbidden.write_text("#!/bin/sh\necho bwrap: No permissions to create new namespace\nexit 1\n")
    forbidden.chmod(0o755)
    monkeypatch.setattr("sless_builder.adapters.sandboxes.find_bwrap", lambda: forbidden)
    sandbox, report = await found(folder)
    assert report.level == "limits"
    assert "No permissions to create new namespace" in report.reason
    assert (await ran(sandbox, shell(folder, "echo yes")))[1] == ["yes"]


async def test_a_sandbox_that_cannot_be_made_is_the_platforms_fault(folder: Path, tmp_path: Path) -> None:
    sandbox, report = await found(folder, tmp_path / "bin" / "python3")
    files = descriptors()
    assert (report.level, report.network) == ("none", "none")
    with pytest.raises(Unavailable, match=r"can't be started|execvp"):
        await ran(sandbox, shell(folder, "true"))
    assert descriptors() == files


# -- an ordinary user's


@pytest.mark.skipif(not AS_ROOT, reason="the tests above are an ordinary user's already")
@pytest.mark.timeout(300)
def test_all_of_it_holds_for_an_ordinary_user(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    sources = [path for pattern in ("services/*/src", "libs/*/src", "cli/src") for path in root.glob(pattern)]
    if not PYTHON.is_relative_to("/usr") or PYTHON.name != "python3.11" or not readable_for_all(root):
        pytest.skip("an ordinary user can read neither an interpreter nor this tree")
    environ = {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join(map(str, [*sources, *map(Path, sys.path), root])),
    }
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-k",
        "measured",
        "--basetemp",
        f"/tmp/{tmp_path.name}",
    )
    done = subprocess.run(
        [PYTHON, "-m", "pytest", *options, __file__],
        cwd=root, env=environ, user=65534, group=65534, extra_groups=(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def readable_for_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.parents))
