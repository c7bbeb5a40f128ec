"""What the registry tells of functions and versions, and what an upload tells it, as far as the builder must understand it."""

from __future__ import annotations

from dataclasses import dataclass

from sless_builder.domain.build import BuildState, FunctionUid, VersionUid


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function. `active_version` 0: none serves."""

    uid: FunctionUid
    runtime: str
    entrypoint: str
    active_version: int = 0


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version; `message`: its state explained for people."""

    uid: VersionUid
    state: BuildState
    number: int
    code_sha256: str
    runtime: str
    entrypoint: str
    message: str


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Configuration that changes with an upload.

    message     the registry's message, serialised, to be passed on unread.
    fields      which of its fields to take.
    entrypoint  what that becomes; None when it stays.
    """

    message: bytes
    fields: tuple[str, ...]
    entrypoint: str | None = None
