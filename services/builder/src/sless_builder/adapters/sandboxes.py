"""Which sandbox this machine allows."""

from __future__ import annotations

import os
from pathlib import Path

from sless_platform.errors import FailedPrecondition

from sless_builder.adapters.bubblewrap import Bubblewrap, find_bwrap
from sless_builder.adapters.bubblewrap_sandbox import BubblewrapSandbox
from sless_builder.adapters.control_groups import ControlGroups
from sless_builder.ports import Sandbox


def find_sandbox(*, python: Path, uid: int | None) -> Sandbox:
    """The sandbox for untrusted steps, as user `uid` (None: this process's own); `python` starts them.

    Raises FailedPrecondition when there is none.
    """
    bwrap = find_bwrap()
    if bwrap is None:
        raise FailedPrecondition("there is no bubblewrap here, in which untrusted code is built")
    groups = ControlGroups.find()
    return BubblewrapSandbox(Bubblewrap(bwrap, as_root=os.geteuid() == 0), python=python, uid=uid, groups=groups)
