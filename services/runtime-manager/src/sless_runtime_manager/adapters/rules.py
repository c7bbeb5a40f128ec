"""What every RuntimeBackend does alike."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from sless_platform.errors import InvalidArgument

RESERVED_PREFIX = "SLESS_"


def refuse_reserved(env: Mapping[str, str]) -> None:
    """Raises InvalidArgument for a user's variable that would stand in for one of the platform's."""
    for name in env:
        if name.startswith(RESERVED_PREFIX):
            raise InvalidArgument(
                f"variables that begin with {RESERVED_PREFIX} are the platform's; rename {name}", field="env"
            )


def explain_end(exit_code: int | None, number: int | None, *, asked: bool, exceeded: str = "") -> str:
    """One sentence on how a process ended: by exit code or by signal number; `asked`: the platform wanted it to end;
    `exceeded`: it used more of that than it may."""
    if exceeded:
        return f"the process was ended: it used more {exceeded} than it may"
    if asked:
        return "stopped"
    if number is None:
        return f"the process ended by itself with exit code {exit_code}"
    name = _signal_name(number)
    if number == signal.SIGKILL:
        return f"the process was killed ({name}), probably because memory ran out"
    return f"the process crashed ({name})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
