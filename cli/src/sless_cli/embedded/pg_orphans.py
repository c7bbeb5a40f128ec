"""What an earlier PostgreSQL of the same data folder left behind: processes that still run, and files that say one does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sless_cli.embedded.processes import signal_process
from sless_cli.errors import StartFailed

_STAGES = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0))
_POLL_SEC = 0.02


def processes_in(data: Path) -> list[int]:
    """PostgreSQL's processes that work in this data folder, whatever its path is where they see it.

    Known by their working folder, which is the data folder of every server process, and by their program's name: a number in
    postmaster.pid may belong to anyone by now, and a shell may stand in the folder.
    """
    try:
        wanted = data.stat()
    except OSError:
        return []
    return [pid for pid in _all_pids() if _works_in(pid, wanted) and _program_name(pid).startswith("postgres")]


def clear(data: Path, sockets: Path) -> None:
    """Stop what still runs in this data folder and remove the files that claim it. Raises StartFailed when something stays.

    Only for the holder of the platform's lock. Removing postmaster.pid is safe then: nobody works in the folder.
    """
    _stop(data)
    for leftover in (data / "postmaster.pid", *sockets.glob(".s.PGSQL.*")):
        leftover.unlink(missing_ok=True)


def _stop(data: Path) -> None:
    for number, limit in _STAGES:
        running = processes_in(data)
        if not running:
            return
        for pid in _leaders(running) if number is signal.SIGINT else running:
            signal_process(pid, number)
            # One that is stopped would never get it.
            signal_process(pid, signal.SIGCONT)
        if _gone(data, limit):
            return
    left = ", ".join(str(pid) for pid in processes_in(data))
    raise StartFailed(f"an earlier PostgreSQL of {data} (pid {left}) does not end: kill it, then start again")


def _gone(data: Path, limit: float) -> bool:
    until = time.monotonic() + limit
    while processes_in(data):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SEC)
    return True


def _leaders(pids: list[int]) -> list[int]:
    """Those whose parent is none of them: the postmaster; its children, when it is gone, end by themselves."""
    return [pid for pid in pids if _parent(pid) not in pids]


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _works_in(pid: int, wanted: os.stat_result) -> bool:
    try:
        found = os.stat(f"/proc/{pid}/cwd")
    except OSError:
        return False  # gone, or somebody else's
    return os.path.samestat(found, wanted)


def _program_name(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])
