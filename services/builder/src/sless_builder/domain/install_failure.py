"""What an installer's end means: the author's mistake, or the platform's. Reads what uv prints, which quotes itself well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sless_builder.domain.build import Problem
from sless_builder.domain.manifest import Manifest
from sless_builder.domain.steps import Exceeded, StepEnd, StepLimits

PACKAGE_NOT_FOUND: Final = "PACKAGE_NOT_FOUND"
VERSION_CONFLICT: Final = "VERSION_CONFLICT"
HASH_MISMATCH: Final = "HASH_MISMATCH"
SOURCE_BUILD_REFUSED: Final = "SOURCE_BUILD_REFUSED"
BUILD_BACKEND_FAILED: Final = "BUILD_BACKEND_FAILED"
INSTALL_FAILED: Final = "INSTALL_FAILED"

_LIMIT_REASONS: Final = {
    Exceeded.TIME: "BUILD_TIMEOUT",
    Exceeded.MEMORY: "MEMORY_LIMIT",
    Exceeded.DISK: "DISK_LIMIT",
    Exceeded.PROCESSES: "PROCESS_LIMIT",
    Exceeded.OUTPUT: "OUTPUT_LIMIT",
}
_QUOTED_CHARACTERS: Final = 1_200
_LINE_CHARACTERS: Final = 400
_NAME: Final = r"([A-Za-z0-9][A-Za-z0-9._-]*)"
_SECTION: Final = re.compile(r"\s+\[(stdout|stderr)\]$")
_BUILDING: Final = re.compile(rf"\s*(Building|Built) {_NAME}(?:\[[^]]*\])?(?:==| @ |$)")
_UNREACHABLE: Final = re.compile(
    r"error sending request|Failed to fetch|[Cc]onnection (refused|reset|closed)|operation timed out|dns error"
    r"|invalid peer certificate|request or response body error|error decoding response body"
)
_CLIENT_ERROR: Final = re.compile(r"HTTP status client error \((\d+)")
_RETRIED_STATUS: Final = ("408", "425", "429")
_NO_SPACE: Final = re.compile(r"No space left on device|Disk quota exceeded")
_BACKEND: Final = re.compile(rf"Failed to build `?{_NAME}")
_NO_WHEELS: Final = re.compile(rf"{_NAME}(?:==\S+)? ha(?:s|ve) no (?:usable )?wheels")
_PLAIN: Final = (
    (re.compile(rf"Hash mismatch for `?{_NAME}"), HASH_MISMATCH, "{} has another hash than is stated"),
    (
        re.compile(rf"In `--require-hashes` mode.*?: `?{_NAME}"),
        HASH_MISMATCH,
        "{} has no hash or no exact version, but other lines have: all must, or none",
    ),
    (
        re.compile(rf"Because {_NAME}(?:\[[^]]*\])? was not found in the (?:package registry|cache)"),
        PACKAGE_NOT_FOUND,
        "the index has no package {}",
    ),
)
_WITHOUT_CONFLICT: Final = tuple(
    (pattern, PACKAGE_NOT_FOUND, "the index has no version of {} that is asked for and runs here")
    for pattern in (re.compile(rf"there (?:is|are) no versions? of {_NAME}"), _NO_WHEELS)
)
_FOR: Final = re.compile(rf"for `{_NAME}`")
_NO_BUILD: Final = re.compile(r"building from source is disabled|[Bb]uilding source distributions .*disabled")
_SAYS_REQUIRES: Final = re.compile(rf"{_NAME}(?:\[[^]]*\])?(?:[=<>!~]=?\S*)? depends? on ")
_SAYS_WANTS: Final = re.compile(rf"you require {_NAME}")


@dataclass(frozen=True, slots=True)
class PlatformFault:
    """The platform's own failure: it is tried again. `unreachable`: the package index did not answer."""

    message: str
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class NeedsSources:
    """No wheel will do; a source build may."""

    problem: Problem


Failure = Problem | PlatformFault | NeedsSources


def failure_of(end: StepEnd, output: Sequence[str], manifest: Manifest, limits: StepLimits) -> Failure:
    """Why an installer did not succeed; `output`: what it printed, line by line."""
    if end.exceeded is not None:
        return _beyond(end.exceeded, output, manifest, limits)
    if end.signal is not None or end.exit_code is None:
        return PlatformFault(f"the installer was ended by signal {end.signal}, perhaps for want of memory")
    own, error = _own_lines(output), _error_lines(output)
    said = "\n".join(own)
    if _NO_SPACE.search(said):
        return PlatformFault("the disk is full")
    status = _CLIENT_ERROR.search(said)
    if (status is None or status[1] in _RETRIED_STATUS) and _UNREACHABLE.search(said):
        return PlatformFault(f"the package index can't be reached: {_last_cause(own)}", unreachable=True)
    if (backend := _BACKEND.search(said)) is not None:
        return _backend_failed(backend[1], said, error, manifest)
    return _refusal(said, error, manifest)


def _refusal(said: str, error: Sequence[str], manifest: Manifest) -> Failure:
    """What the installer refuses to install, and why."""
    if (found := _plainly(_PLAIN, said, error, manifest)) is not None:
        return found
    if _NO_BUILD.search(said):
        package = _first(_NO_WHEELS, said) or _first(_FOR, said)
        why = f"{package or 'a package'} has no wheel for this platform and would have to be built from its source"
        return NeedsSources(_problem(SOURCE_BUILD_REFUSED, why, package, error, manifest))
    if "depends on" not in said and "depend on" not in said:
        if (found := _plainly(_WITHOUT_CONFLICT, said, error, manifest)) is not None:
            return found
        if "No solution found" not in said:
            return _problem(INSTALL_FAILED, "the packages can't be installed", "", error, manifest)
    package = _conflicting(said, manifest)
    return _problem(VERSION_CONFLICT, "no versions satisfy all requirements together", package, error, manifest)


def _plainly(
    table: Sequence[tuple[re.Pattern[str], str, str]], said: str, error: Sequence[str], manifest: Manifest
) -> Problem | None:
    for pattern, reason, why in table:
        if (package := _first(pattern, said)) != "":
            return _problem(reason, why.format(package), package, error, manifest)
    return None


def _beyond(exceeded: Exceeded, output: Sequence[str], manifest: Manifest, limits: StepLimits) -> Problem:
    package = _building(output)
    doing = f"building {package}" if package else "installing the dependencies"
    why = {
        Exceeded.TIME: f"took longer than {limits.seconds:g} s",
        Exceeded.MEMORY: f"needed more than {limits.memory_bytes >> 20:,} MiB of memory",
        Exceeded.DISK: f"needed more than {limits.disk_bytes >> 20:,} MiB of disk",
        Exceeded.PROCESSES: f"began more than {limits.processes:,} processes",
        Exceeded.OUTPUT: f"printed more than {limits.output_bytes >> 10:,} KiB",
    }[exceeded]
    tail = [line for line in output if line.strip()][-3:]
    return _problem(_LIMIT_REASONS[exceeded], f"{doing} {why}, the most it may", package, tail, manifest)


def _backend_failed(package: str, said: str, error: Sequence[str], manifest: Manifest) -> Failure:
    if "signal: 9 (SIGKILL)" in said:
        return PlatformFault(f"the build of {package} was killed, perhaps for want of memory")
    cause = _failing_line(error)
    why = f"{package} can't be built from its source" + (f": {cause}" if cause else "")
    return _problem(BUILD_BACKEND_FAILED, why, package, error, manifest)


def _problem(reason: str, why: str, package: str, error: Sequence[str], manifest: Manifest) -> Problem:
    """The problem with the place where the package is asked for, and the tool's own words."""
    package = package.lower().replace("_", "-").rstrip(".")
    line = manifest.line_of(package) or (manifest.requirements[0].line if len(manifest.requirements) == 1 else None)
    message = why if line is None else f"{line.where}: {why}"
    place = {} if line is None else {"file": line.file, "line": line.number}
    return Problem(reason, message, package=package, quote=_quoted(error), **place)  # type: ignore[arg-type]


def _quoted(error: Sequence[str]) -> str:
    """The end of what the tool says, bounded so that the sentence before it still stands in a version's message."""
    lines, room = list[str](), _QUOTED_CHARACTERS
    for line in reversed(error):
        shown = line if len(line) <= _LINE_CHARACTERS else line[:_LINE_CHARACTERS] + "…"
        room -= len(shown) + 1
        if room < 0:
            break
        lines.insert(0, shown)
    return "\n".join(lines)


def _own_lines(output: Sequence[str]) -> list[str]:
    """The installer's own lines, without what a build that it ran had printed."""
    own, margin = [], -1
    for line in output:
        if _SECTION.match(line):
            margin = len(line) - len(line.lstrip())
        elif margin >= 0 and line.strip() and len(line) - len(line.lstrip()) < margin:
            margin = -1
        if margin < 0:
            own.append(line)
    return own


def _error_lines(output: Sequence[str]) -> list[str]:
    """From the installer's error to its hints."""
    start = next((at for at, line in enumerate(output) if line.startswith(("error:", "  × "))), 0)
    lines = [line.rstrip() for line in output[start:]]
    end = next((at for at, line in enumerate(lines) if line.startswith("hint: Build failures usually")), len(lines))
    return [line for line in lines[:end] if line.strip()]


def _failing_line(error: Sequence[str]) -> str:
    """The last thing that a failed build printed: Python's exception, a compiler's error."""
    at = next((at for at, line in enumerate(error) if _SECTION.match(line)), len(error))
    printed = [line.strip() for line in error[at + 1 :] if not _SECTION.match(line)]
    return printed[-1][:300] if printed else ""


def _last_cause(own: Sequence[str]) -> str:
    causes = [line.strip().removeprefix("cause: ") for line in own if line.startswith(("error:", "  cause:"))]
    return causes[-1].removeprefix("error: ") if causes else "no answer"


def _first(pattern: re.Pattern[str], said: str) -> str:
    found = pattern.search(said)
    return found[1].rstrip(".,") if found else ""


def _building(output: Sequence[str]) -> str:
    """The package that was being built when the installer was stopped."""
    under_way: list[str] = []
    for line in output:
        if (found := _BUILDING.match(line)) is not None:
            if found[1] == "Building":
                under_way.append(found[2])
            elif found[2] in under_way:
                under_way.remove(found[2])
    return under_way[-1] if under_way else ""


def _conflicting(said: str, manifest: Manifest) -> str:
    """Of the packages of which the installer speaks the one that the author asks for last, so that a line can be named."""
    spoken = {name.rstrip(".,") for name in (*_SAYS_WANTS.findall(said), *_SAYS_REQUIRES.findall(said))}
    asked = [item.name for item in manifest.requirements + manifest.constraints if item.name in spoken]
    return asked[-1] if asked else ""
