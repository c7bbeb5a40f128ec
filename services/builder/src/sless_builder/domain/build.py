"""Builds: one a version; what is known of it, and how it may end."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NewType

VersionUid = NewType("VersionUid", str)
FunctionUid = NewType("FunctionUid", str)

MAX_PAUSE: Final = timedelta(seconds=60)
"""The longest that a build waits after a failure of the platform before it is tried again."""

MESSAGE_CHARACTERS: Final = 2_000
"""The most that a version's message holds."""


_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class BuildState(enum.Enum):
    """How far a build is; the names are those of a version's states."""

    PENDING = "pending"
    BUILDING = "building"
    BUILT = "built"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more happens."""
        return self not in (BuildState.PENDING, BuildState.BUILDING)


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be built: a version as the registry tells of it.

    number       1, 2, 3… within its function.
    traceparent  W3C traceparent of the upload; "": it had none.
    """

    version_uid: VersionUid
    function_uid: FunctionUid
    namespace: str
    name: str
    number: int
    code_sha256: str
    runtime: str
    entrypoint: str
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A build that a worker has; it is that worker's as long as no other attempt has begun and its lease runs.

    attempt    from 1; every claim of the build has one of its own.
    failures   how often the platform has failed at it and said so.
    failing    how long ago the first of those was.
    takeovers  how often a builder was lost with it: its lease ran out.
    log_bytes  how much log there is of earlier attempts.
    """

    source: Source
    owner: str
    attempt: int
    failures: int = 0
    log_bytes: int = 0
    failing: timedelta = timedelta(0)
    takeovers: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a build failed.

    reason   for programs, such as SYNTAX_ERROR.
    message  a sentence for people.
    file     relative to the archive's root; "" when there is none.
    line     from 1; 0 when there is none.
    package  "" when there is none.
    quote    the line at fault as it stands in the file, perhaps with a mark below; shown in the log.
    """

    reason: str
    message: str
    file: str = ""
    line: int = 0
    package: str = ""
    quote: str = field(default="", compare=False)

    def printable(self) -> Problem:
        """The same without control characters."""
        return replace(
            self,
            message=printable(self.message),
            file=printable(self.file),
            package=printable(self.package),
            quote=printable(self.quote),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a build gave: layers' digests ("sha256:…", base first), the image with its digest, and whether all was there already."""

    layers: tuple[str, ...]
    image_ref: str
    cached: bool


class UserError(Exception):
    """The user's mistake: trying again would end the same way."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Report:
    """What the registry is to be told of a build, in the trace of the upload. `attempt` and `state` are what it is told once.

    PENDING is told of builds alone that wait to be tried again.
    """

    version_uid: VersionUid
    attempt: int
    state: BuildState
    message: str = ""
    problem: Problem | None = None
    result: Result | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    traceparent: str = ""


def waiting(why: str, attempt: int, pause: timedelta) -> str:
    """What a version's message says between two attempts; `attempt`: the next."""
    return f"waiting to try again: {why} (attempt {attempt}, next in {pause.total_seconds():g} s)"


def platform_failed(why: str, after: timedelta) -> Problem:
    """The end of a build at which the platform failed for too long."""
    hours = after.total_seconds() / 3600
    return Problem(
        "PLATFORM_FAILED", f"the platform failed at this build for {hours:.1f} h, last: {why}; upload the code again"
    )


def abandoned(takeovers: int) -> Problem:
    """The end of a build with which builders are lost again and again: that may be its own doing."""
    return Problem(
        "BUILD_ABANDONED", f"{takeovers} times the builder was lost while it built this; upload the code again"
    )


def pause_after(failures: int) -> timedelta:
    """How long a build waits after the platform's n-th failure at it: 1, 2, 4, 8 s… up to MAX_PAUSE."""
    return min(timedelta(seconds=2 ** min(max(failures - 1, 0), 10)), MAX_PAUSE)


def printable(text: str) -> str:
    """The text without what moves a terminal's cursor or no database takes: control characters, lone surrogates."""
    return _UNPRINTABLE.sub("\ufffd", text)


def log_end(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """The log's last whole lines, together at most `limit` characters."""
    text = text.rstrip("\n")
    if len(text) <= limit:
        return text
    end = text[-limit:]
    _, newline, whole = end.partition("\n")
    return whole if newline else end
