"""What a user's writes make of a function and its versions.

Each function takes a Record and gives the one that follows; one that changes nothing gives an equal Record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sless_registry.domain.record import Record
from sless_registry.domain.resources import Access, Configuration, Function, Kind, Phase, Version, VersionState
from sless_registry.errors import EtagMismatch, VersionNotBuilt, VersionNotFound

WAITING_FOR_CODE = "waiting for code: upload a zip"
BUILD_QUEUED = "build queued"
SWITCHING_OFF = "switching off: replicas is 0"


@dataclass(frozen=True, slots=True)
class Upload:
    """Code that a version is made of. `build_only`: it is not to serve."""

    code_sha256: str
    size_bytes: int
    created_by: str
    build_only: bool = False


@dataclass(frozen=True, slots=True)
class NewVersion:
    """What a new version needs from outside: its identity, and how many versions a function keeps."""

    uid: str
    kept: int
    now: datetime


def created(*, uid: str, namespace: str, name: str, kind: Kind, configuration: Configuration, now: datetime) -> Record:
    """A new function, without code."""
    function = Function(uid, namespace, name, kind, configuration, created_at=now, updated_at=now)
    return Record(replace(function, message=WAITING_FOR_CODE))


def check_etag(function: Function, etag: str) -> None:
    """Raise EtagMismatch unless the etag is the function's, empty or "*"."""
    if etag not in ("", "*", function.etag):
        raise EtagMismatch(
            f"{function.kind} {function.name!r} has changed: its etag is {function.etag}, not {etag}; read it again",
            metadata={"etag": function.etag},
        )


def configured(record: Record, configuration: Configuration, *, by: str, new: NewVersion) -> Record:
    """The function with another configuration.

    Another runtime or entrypoint makes a version of the same code, uploaded by `by`; without any code yet it is only stored.
    """
    function = record.function
    if configuration == function.configuration:
        return record
    source = record.version(function.code_version)
    record = record.with_function(replace(function, configuration=configuration))
    if source is not None and _built_for(source) != _built_for(configuration):
        upload = Upload(source.code_sha256, source.size_bytes, created_by=by)
        record = _with_version(record, upload, configuration, new)
    return _next_generation(record, new.now)


def tightens(before: Function, after: Function) -> bool:
    """Whether a change takes away access that somebody may be using: it must hold everywhere before it is answered."""
    closes = _is_closed(after) and not _is_closed(before)
    return closes or (after.switched_off and not before.switched_off)


def is_tight(function: Function) -> bool:
    """Whether access to the function is restricted at all."""
    return function.switched_off or _is_closed(function)


def uploaded(
    record: Record, upload: Upload, new: NewVersion, configuration: Configuration | None = None
) -> tuple[Record, Version, bool]:
    """The function with the uploaded code: the record, the version, and whether the version is new.

    `configuration` (None: as it is) changes in the same generation; of an upload that is only built, runtime and entrypoint matter
    alone and belong to the version. Code, runtime and entrypoint that equal those of the newest version which is built or may
    still be give that version again; it is activated when it does not serve but should. So they do when they are those of a
    version whose build failed for what is in them: it would fail again.
    """
    wanted = configuration or record.function.configuration
    same = _same_as_newest(record, upload, wanted)
    if upload.build_only:
        record = record if same is not None else _with_version(record, upload, wanted, new)
        return record, _kept(record, record.function.last_version if same is None else same.number), same is None
    before = record.function
    record = record.with_function(replace(before, configuration=wanted))
    if same is None:
        record = _with_version(record, upload, wanted, new)
        return _next_generation(record, new.now), _kept(record, record.function.last_version), True
    record = _uploaded_again(record, same, before, new.now)
    return record, _kept(record, same.number), False


def activated(record: Record, number: int, now: datetime) -> Record:
    """The function with a built version as the one that should serve, and that version's runtime and entrypoint.

    A build that is under way goes on but will not serve. Raises VersionNotFound, VersionNotBuilt.
    """
    function = record.function
    version = record.version(number)
    if version is None:
        raise VersionNotFound(f"{function.kind} {function.name!r} has no version {number}")
    if version.state is not VersionState.BUILT:
        raise VersionNotBuilt(f"version {number} is {version.state}: only a built version can be activated")
    if _is_outcome(function, number):
        return record
    pending = record.version(function.pending_version)
    if pending is not None:
        record = record.with_versions([replace(pending, activate=False)])
    configuration = replace(function.configuration, runtime=version.runtime, entrypoint=version.entrypoint)
    aimed = replace(
        function, configuration=configuration, code_version=number, desired_version=number, pending_version=0
    )
    return _next_generation(record.with_function(aimed), now)


def deleted(record: Record, now: datetime) -> Record:
    """The function as it is while services clean up after it; builds are cancelled, its name is free."""
    record = _cancelled(record, "cancelled: the function was deleted", only_build_only=False)
    function = replace(record.function, deleted_at=now, pending_version=0)
    return record.with_function(function)


def _is_closed(function: Function) -> bool:
    return function.configuration.access is Access.AUTHENTICATED


def _built_for(thing: Configuration | Version) -> tuple[str, str]:
    return thing.runtime, thing.entrypoint


def _kept(record: Record, number: int) -> Version:
    version = record.version(number)
    assert version is not None, f"version {number} was just put there"  # noqa: S101 - an invariant, not a check of input
    return version


def _same_as_newest(record: Record, upload: Upload, configuration: Configuration) -> Version | None:
    """The version that this upload would become again."""
    for version in reversed(record.versions):
        if version.usable or version.fails_again:
            same = version.code_sha256 == upload.code_sha256 and _built_for(version) == _built_for(configuration)
            if same or version.usable:
                return version if same else None
    return None


def _uploaded_again(record: Record, version: Version, before: Function, now: datetime) -> Record:
    """The record, whose configuration may differ from that of `before`, with a version that is there already as what should serve."""
    changed = record.function.configuration != before.configuration
    if version.state is VersionState.FAILED:
        known = before.failed_build == before.code_version == version.number
        return record if known and not changed else _failed_again(record, version, now)
    record = _served_again(record, version, now)
    if changed and record.function.generation == before.generation:
        return _next_generation(record, now)
    return record


def _served_again(record: Record, version: Version, now: datetime) -> Record:
    """An upload of what is there already means that it should serve, whatever happened since."""
    if version.state is VersionState.BUILT:
        return activated(record, version.number, now)
    if version.activate:
        return record
    record = _cancelled(record, _superseded(version.number), only_build_only=False)
    record = record.with_versions([replace(version, activate=True)])
    function = replace(record.function, code_version=version.number, pending_version=version.number)
    return _next_generation(record.with_function(function), now)


def _failed_again(record: Record, version: Version, now: datetime) -> Record:
    """The outcome of a build that failed, as the newest generation's."""
    record = _cancelled(record, _superseded(version.number), only_build_only=False)
    function = record.function
    function = replace(function, code_version=version.number, pending_version=0, generation=function.generation + 1)
    failed = replace(function, failed_build=version.number, phase=Phase.FAILED, message=version.message, updated_at=now)
    return record.with_function(replace(failed, observed_generation=failed.generation))


def _is_outcome(function: Function, number: int) -> bool:
    """Whether the newest generation already is about serving this version, and has not failed."""
    aimed = number == function.code_version == function.desired_version
    return aimed and function.phase in (Phase.DEPLOYING, Phase.READY)


def _with_version(record: Record, upload: Upload, configuration: Configuration, new: NewVersion) -> Record:
    """The record with one more version, which makes older builds needless and pushes the oldest versions out."""
    function = record.function
    number = function.last_version + 1
    version = Version(
        uid=new.uid,
        function_uid=function.uid,
        namespace=function.namespace,
        name=function.name,
        number=number,
        code_sha256=upload.code_sha256,
        size_bytes=upload.size_bytes,
        runtime=configuration.runtime,
        entrypoint=configuration.entrypoint,
        created_by=upload.created_by,
        created_at=new.now,
        activate=not upload.build_only,
        message=BUILD_QUEUED,
    )
    record = _cancelled(record, _superseded(number), only_build_only=upload.build_only)
    function = replace(function, last_version=number)
    if not upload.build_only:
        function = replace(function, code_version=number, pending_version=number)
    return _trimmed(record.with_function(function).with_versions([version]), new.kept)


def _superseded(number: int) -> str:
    return f"cancelled: version {number} came after it"


def _cancelled(record: Record, message: str, *, only_build_only: bool) -> Record:
    """Unfinished builds cancelled. What is only built makes no build needless that is to serve."""
    needless: Iterable[Version] = (
        replace(version, state=VersionState.CANCELLED, message=message)
        for version in record.versions
        if version.unfinished and not (only_build_only and version.activate)
    )
    return record.with_versions(needless)


def _trimmed(record: Record, kept: int) -> Record:
    """The record without its oldest versions beyond `kept`; none goes that serves, should serve or is being built."""
    function = record.function
    needed = {function.active_version, function.desired_version, function.code_version}
    idle = [version for version in record.versions if version.number not in needed and not version.unfinished]
    excess = max(len(record.versions) - kept, 0)
    gone = {version.number for version in idle[:excess]}
    return replace(record, versions=tuple(version for version in record.versions if version.number not in gone))


def _next_generation(record: Record, now: datetime) -> Record:
    """One more generation, at the beginning of its way."""
    function = replace(record.function, generation=record.function.generation + 1, updated_at=now)
    pending = record.version(function.pending_version)
    if pending is not None:
        building = pending.state is VersionState.BUILDING
        phase = Phase.BUILDING if building else Phase.PENDING
        return record.with_function(replace(function, phase=phase, message=pending.message, failed_build=0))
    if function.desired_version:
        return record.with_function(deploying(function))
    if function.failed_build:  # nothing built to fall back on: the outcome is the same
        return record.with_function(replace(function, observed_generation=function.generation))
    return record.with_function(replace(function, phase=Phase.PENDING, message=WAITING_FOR_CODE))


def deploying(function: Function) -> Function:
    """The function at the point where its desired version is to be started, or its instances are to be let go."""
    message = SWITCHING_OFF if function.switched_off else f"starting version {function.desired_version}"
    return replace(function, phase=Phase.DEPLOYING, message=message, failed_build=0)
