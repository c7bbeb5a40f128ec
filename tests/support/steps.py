"""Steps for the build sandbox, and a look at what runs in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sless_builder.domain.steps import Step, StepEnd, StepLimits
from sless_builder.ports import Sandbox

from tests.support.builder import python311

LIMITS = StepLimits(seconds=30, memory_bytes=512 << 20, disk_bytes=64 << 20, processes=64, output_bytes=64 << 10)
_SYSTEM = Path("/usr/bin/python3")
PYTHON = _SYSTEM.resolve() if _SYSTEM.exists() else python311()
"""One that every user may read, if there is one."""


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder that is no other test's, below one that nobody else may enter."""
    with tempfile.TemporaryDirectory() as outer:
        inner = Path(outer) / "work"
        inner.mkdir()
        yield inner


def shell(folder: Path, script: str, *, network: bool = False, **limits: Any) -> Step:
    """A step that runs a script of the shell."""
    return _step(("/bin/sh", "-c", script), folder, network, limits)


def python(folder: Path, script: str, *, network: bool = False, **limits: Any) -> Step:
    """A step that runs a Python program."""
    return _step((str(PYTHON), "-I", "-c", script), folder, network, limits)


def _step(argv: tuple[str, ...], folder: Path, network: bool, limits: dict[str, Any]) -> Step:
    return Step(
        argv,
        {"PATH": os.defpath, "GIVEN": "yes"},
        () if PYTHON.is_relative_to("/usr") else (PYTHON.parent.parent,),
        (folder,),
        folder,
        replace(LIMITS, **limits),
        network,
    )


async def ran(sandbox: Sandbox, step: Step) -> tuple[StepEnd, list[str]]:
    """How a step ended, and its lines."""
    lines: list[str] = []
    return await sandbox.run(step, lines.append), lines


def processes_with(word: str) -> list[int]:
    """Processes of the whole machine with a word in their command line."""
    found = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                if word.encode() in (proc / "cmdline").read_bytes():
                    found.append(int(proc.name))
            except OSError:
                continue
    return found


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir(f"/proc/{os.getpid()}/fd"))


def mounts() -> str:
    """What is mounted for this process."""
    return Path("/proc/self/mounts").read_text()
