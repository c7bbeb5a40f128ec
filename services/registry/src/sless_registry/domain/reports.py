"""What the reports of builder, runtime-manager and invoker make of a function and its versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sless_registry.domain.lifecycle import deploying
from sless_registry.domain.record import Record
from sless_registry.domain.resources import BuildError, Function, Phase, Served, Version, VersionState

MESSAGE_CHARS: Final = 8_192
"""The most of a message that is kept: its end, where a log says what went wrong."""

SWITCHED_OFF = "switched off: replicas is 0"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """How a build goes: Building, Built or Failed, of which attempt (from 1)."""

    version_uid: str
    attempt: int
    state: VersionState
    message: str = ""
    error: BuildError | None = None
    layers: tuple[str, ...] = ()
    image_ref: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class StatusReport:
    """How the deployment of a version goes in a generation: Deploying, Ready or Failed."""

    function_uid: str
    generation: int
    version: int
    phase: Phase
    message: str = ""


def build_reported(record: Record, report: BuildReport, now: datetime) -> Record:
    """The record after a build report; an outdated one, and one about a build that has ended, changes nothing."""
    version = record.version_by_uid(report.version_uid)
    if version is None or not version.unfinished or report.attempt < version.attempt:
        return record
    version = _after_report(version, report, now)
    record = record.with_versions([version])
    function = record.function
    if version.state is VersionState.BUILT:
        function = replace(function, last_built_at=version.build_finished_at)
    if version.number == function.pending_version:
        function = _pending_reported(function, version)
    return record.with_function(function)


def _after_report(version: Version, report: BuildReport, now: datetime) -> Version:
    ended = report.state is not VersionState.BUILDING
    built = report.state is VersionState.BUILT
    return replace(
        version,
        state=report.state,
        attempt=report.attempt,
        message=_end(report.message) or _DEFAULT_MESSAGES[report.state],
        error=report.error if report.state is VersionState.FAILED else None,
        layers=report.layers if built else (),
        image_ref=report.image_ref if built else "",
        cached=report.cached and built,
        build_started_at=report.started_at or version.build_started_at or now,
        build_finished_at=(report.finished_at or now) if ended else None,
    )


_DEFAULT_MESSAGES = {
    VersionState.BUILDING: "building",
    VersionState.BUILT: "built",
    VersionState.FAILED: "the build failed",
}


def _pending_reported(function: Function, version: Version) -> Function:
    """What becomes of a function whose newest generation waits for this version's build."""
    if version.state is VersionState.BUILDING:
        return replace(function, phase=Phase.BUILDING, message=version.message)
    function = replace(function, pending_version=0)
    if version.state is VersionState.BUILT:
        return deploying(replace(function, desired_version=version.number))
    failed = replace(function, failed_build=version.number)
    return _outcome(failed, Phase.FAILED, version.message)


def status_reported(record: Record, report: StatusReport, now: datetime) -> Record | None:
    """The record after a status report; None when the report is outdated.

    A deployment's outcome counts only while the newest generation waits for none but it: not while a build is pending, and not after
    one has failed. That a version serves is noted all the same.
    """
    function = record.function
    if not _is_current(function, report):
        return None
    if report.phase is Phase.READY:
        record = _serving(record, report.version, now)
    message = _end(report.message)
    if function.pending_version or function.failed_build:
        return record if report.phase is Phase.READY else None
    if report.phase is Phase.DEPLOYING:
        return _progressed(record, message)
    return record.with_function(_outcome(record.function, report.phase, message))


def _is_current(function: Function, report: StatusReport) -> bool:
    live = function.deleted_at is None and not function.switched_off
    wanted = (function.generation, function.desired_version)
    return live and bool(report.version) and wanted == (report.generation, report.version)


def _progressed(record: Record, message: str) -> Record | None:
    """Progress is shown until the outcome is known, and never takes an outcome back."""
    if record.function.phase is not Phase.DEPLOYING:
        return None
    return record.with_function(replace(record.function, message=message or record.function.message))


def _serving(record: Record, number: int, now: datetime) -> Record:
    """The record with this version as the one that serves, in the newest generation."""
    function = replace(record.function, served=Served(record.function.generation, record.function.configuration))
    version = record.version(number)
    if function.active_version == number or version is None:
        return record if version is None else record.with_function(function)
    was = record.version(function.active_version)
    flags = [replace(version, active=True), *([replace(was, active=False)] if was is not None else [])]
    serving = replace(function, active_version=number, image_ref=version.image_ref, has_served=True, updated_at=now)
    return record.with_versions(flags).with_function(serving)


def switched_off(record: Record) -> Record:
    """The record once nothing routes to a function that is being switched off; unchanged when it is not."""
    if not record.function.switching_off:
        return record
    return record.with_function(_outcome(record.function, Phase.READY, SWITCHED_OFF))


def _outcome(function: Function, phase: Phase, message: str) -> Function:
    return replace(function, phase=phase, message=message, observed_generation=function.generation)


def _end(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARS else "..." + message[3 - MESSAGE_CHARS :]
