"""Which sandbox this machine allows, and what may be said of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sless_platform.errors import Unavailable

from sless_builder.adapters.bubblewrap import Bubblewrap, find_bwrap
from sless_builder.adapters.confinement import Confinement, Namespaces, UserAlone
from sless_builder.adapters.control_groups import ControlGroups
from sless_builder.adapters.step_sandbox import StepSandbox
from sless_builder.application.finishing import in_thread
from sless_builder.domain.steps import Step, StepEnd, StepLimits
from sless_builder.ports import Sandbox

_TRIAL: Final = StepLimits(seconds=20, memory_bytes=1 << 30, disk_bytes=1 << 30, processes=64, output_bytes=1 << 16)


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What `sless status` says of builds.

    level    "namespaces": a step sees its own files and processes alone; "limits": it has limits, and as root a user of
             its own; "none": no step can be run.
    network  what a step has that installs packages: "host", this machine's. Other steps have none at level "namespaces".
    memory   "exact", or "approximate" where it is measured now and then.
    reason   why the level is no better.
    """

    level: str
    network: str
    memory: str
    reason: str = ""

    def write(self, path: Path) -> None:
        """Tell it in a file that is there whole or not at all."""
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(asdict(self), file)
        os.replace(file.name, path)


@dataclass(frozen=True, slots=True)
class FoundSandbox:
    """The sandbox for steps, what may be said of it, and bubblewrap where it can be used."""

    sandbox: Sandbox
    report: SandboxReport
    bubblewrap: Bubblewrap | None


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """Where no step can be run."""

    reason: str

    async def run(self, step: Step, output: Callable[[str], None]) -> StepEnd:
        """See Sandbox."""
        raise Unavailable(f"nothing that is not trusted can be built here: {self.reason}")


async def find_sandbox(*, python: Path, uid: int | None, root: Path) -> FoundSandbox:
    """The best sandbox for steps as user `uid` (None: this process's own); each is tried.

    python  an interpreter that starts steps.
    root    the folder that holds steps' folders.
    """
    groups = await in_thread(ControlGroups.find)
    memory = "exact" if "memory" in groups.controllers else "approximate"
    reasons: list[str] = []
    for level, confinement, bubblewrap in _confinements(uid, root):
        sandbox = StepSandbox(confinement, python=python, uid=uid, groups=groups)
        refused = await _refusal(sandbox)
        if refused is None:
            return FoundSandbox(sandbox, SandboxReport(level, "host", memory, "; ".join(reasons)), bubblewrap)
        reasons.append(refused)
    reason = "; ".join(reasons)
    return FoundSandbox(NoSandbox(reason), SandboxReport("none", "none", memory, reason), None)


def _confinements(uid: int | None, root: Path) -> Iterator[tuple[str, Confinement, Bubblewrap | None]]:
    if (bwrap := find_bwrap()) is not None:
        bubblewrap = Bubblewrap(bwrap, as_root=os.geteuid() == 0)
        yield "namespaces", Namespaces(bubblewrap, uid=uid), bubblewrap
    yield "limits", UserAlone(root, uid=uid), None


async def _refusal(sandbox: Sandbox) -> str | None:
    """Why a step cannot be run in a sandbox; None when it can."""
    said: list[str] = []
    trial = Step(("/bin/sh", "-c", ":"), {}, (), (), Path("/"), _TRIAL, network=False)
    try:
        end = await sandbox.run(trial, said.append)
    except Unavailable as error:
        return error.message
    return None if end.succeeded else (said or ["it ended at once"])[-1]
