"""Builders of the registry's domain objects for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sless_registry.domain import lifecycle
from sless_registry.domain.lifecycle import NewVersion, Upload
from sless_registry.domain.record import Record
from sless_registry.domain.reports import BuildReport, StatusReport, build_reported, status_reported
from sless_registry.domain.resources import BuildError, Configuration, Kind, Phase, Replicas, VersionState

NAMESPACE = "sless-cdd874dfa31ba6ca"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: int) -> datetime:
    """NOW and some seconds."""
    return NOW + timedelta(seconds=seconds)


def a_configuration(**fields: Any) -> Configuration:
    """A function's configuration; `fields` change it."""
    given: dict[str, Any] = {
        "runtime": "python3.11",
        "entrypoint": "handler.handle",
        "memory_mb": 128,
        "timeout": timedelta(seconds=30),
        "replicas": Replicas(0, 10, 16),
    }
    return Configuration(**{**given, **fields})


def a_record(uid: str = "f" * 32, name: str = "hello", **fields: Any) -> Record:
    """A function without code; `fields` change its configuration."""
    return lifecycle.created(
        uid=uid, namespace=NAMESPACE, name=name, kind=Kind.FUNCTION, configuration=a_configuration(**fields), now=NOW
    )


def new_version(number: int = 0, kept: int = 50) -> NewVersion:
    """What a new version needs."""
    return NewVersion(uid=f"version-{number}", kept=kept, now=at(number))


def an_upload(seed: str = "a", *, build_only: bool = False) -> Upload:
    """An upload whose content differs with `seed`."""
    return Upload(code_sha256=(seed * 64)[:64], size_bytes=10, created_by="sub", build_only=build_only)


def uploaded(record: Record, seed: str = "a", *, build_only: bool = False, kept: int = 50) -> Record:
    """The record after an upload."""
    number = record.function.last_version + 1
    after, _, _ = lifecycle.uploaded(record, an_upload(seed, build_only=build_only), new_version(number, kept))
    return after


def reported(
    record: Record, number: int, state: VersionState, *, attempt: int = 1, message: str = "", reason: str = ""
) -> Record:
    """The record after a build report about a version; `reason`: why it failed."""
    version = record.version(number)
    assert version is not None
    layers = ("sha256:base", f"sha256:{number}") if state is VersionState.BUILT else ()
    error = BuildError(reason, message) if reason else None
    report = BuildReport(version.uid, attempt, state, message, error, layers=layers)
    return build_reported(record, report, at(100))


def built(record: Record, number: int) -> Record:
    """The record after a version was built."""
    return reported(record, number, VersionState.BUILT)


def status(record: Record, phase: Phase = Phase.READY, **fields: Any) -> StatusReport:
    """A report about the newest generation and the desired version; `fields` change it."""
    function = record.function
    given: dict[str, Any] = {
        "function_uid": function.uid,
        "generation": function.generation,
        "version": function.desired_version,
        "phase": phase,
    }
    return StatusReport(**{**given, **fields})


def ready(record: Record) -> Record:
    """The record after its desired version was reported to serve."""
    after = status_reported(record, status(record), at(200))
    assert after is not None
    return after


def serving(seed: str = "a", **fields: Any) -> Record:
    """A function whose version 1 serves."""
    return ready(built(uploaded(a_record(**fields), seed), 1))
