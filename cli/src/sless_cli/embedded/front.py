"""The part of `sless up` that speaks to people: it follows a starting platform through a pipe and says where it is to be found.

It is another process than the supervisor, which stays single-threaded and never waits for anything but its children.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sless_cli.errors import StartFailed


@dataclass(frozen=True, slots=True)
class Ready:
    """A platform that can be called. `seconds`: from its start until now; `notes`: what people should know."""

    endpoint: str
    data_dir: str
    seconds: float
    token: str = field(repr=False)
    notes: Sequence[str] = ()


def reporter(writer: int) -> Callable[[Mapping[str, object]], None]:
    """What the supervisor reports with: one JSON object a line. A front that has gone is no error."""

    def report(what: Mapping[str, object]) -> None:
        try:
            os.write(writer, json.dumps(what).encode() + b"\n")
        except (BrokenPipeError, BlockingIOError):
            return

    return report


def follow(reader: int, step: Callable[[str], None], *, log: str) -> Ready:
    """Wait until the platform is ready. Raises StartFailed with the reason when it does not become so.

    `step` gets the name of each program that has become ready; `log` is the platform's log's path.
    """
    with os.fdopen(reader) as reports:
        for line in reports:
            report = json.loads(line)
            if "step" in report:
                step(report["step"])
            elif "failed" in report:
                raise StartFailed(f"the platform did not start: {report['failed']}")
            elif "ready" in report:
                return Ready(**report["ready"])
    raise StartFailed(f"the platform ended without a word while it started: see {log}")
