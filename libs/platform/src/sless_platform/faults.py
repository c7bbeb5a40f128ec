"""Named points where a test may break the process, off in every real deployment.

`fault_point("store.after_commit")` stands where the order of two effects matters. It does nothing unless `configure` was given a
plan that names it: `store.after_commit=kill` ends the process with SIGKILL there, `=raise` raises FaultInjected,
`=kill@3` does so the third time only. Several are separated by commas.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass

_PLAN = re.compile(r"(?P<name>[a-z0-9_.-]+)=(?P<action>kill|raise)(?:@(?P<nth>[1-9][0-9]*))?", re.ASCII)


class FaultInjected(Exception):
    """Raised by a point whose plan says `raise`; no code of the product catches it by name."""


@dataclass
class _Planned:
    action: str
    nth: int | None
    hits: int = 0


class FaultPoints:
    """A plan, parsed; counts how often each of its points was passed."""

    def __init__(self, plan: str = "") -> None:
        """Raises ValueError with a sentence for a plan that cannot be read."""
        self._planned: dict[str, _Planned] = {}
        for item in filter(None, (part.strip() for part in plan.split(","))):
            match = _PLAN.fullmatch(item)
            if match is None:
                raise ValueError(f"fault plan {item!r} cannot be read: write name=kill, name=raise or name=kill@2")
            nth = match["nth"]
            self._planned[match["name"]] = _Planned(match["action"], int(nth) if nth else None)

    def __contains__(self, name: str) -> bool:
        return name in self._planned

    def hit(self, name: str) -> None:
        """Count one pass through the point and do what its plan says; nothing for a point without a plan."""
        planned = self._planned.get(name)
        if planned is None:
            return
        planned.hits += 1
        if planned.nth is not None and planned.hits != planned.nth:
            return
        if planned.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FaultInjected(f"fault point {name}")


_points: FaultPoints | None = None


def configure(plan: str) -> None:
    """Arm the points that the plan names; an empty plan disarms all. Raises ValueError for one that cannot be read."""
    global _points  # noqa: PLW0603 - one plan a process, so that a point costs one look at a name
    points = FaultPoints(plan)
    _points = points if plan.strip() else None


def fault_point(name: str) -> None:
    """A place where a test may end or break this process."""
    if _points is not None:
        _points.hit(name)
