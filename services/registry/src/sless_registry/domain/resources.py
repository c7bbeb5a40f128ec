"""The resources: namespaces, functions (services are functions of another kind) and versions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sless_contracts import catalog

_NONCE_AND_TAG_BYTES = 28  # AES-GCM: 12 bytes of nonce before, 16 bytes of tag behind the ciphertext


class Kind(enum.StrEnum):
    """Functions and services are one thing; the kind decides defaults and whether there is a permanent URL."""

    FUNCTION = "function"
    SERVICE = "service"


class Access(enum.StrEnum):
    """Who may call the function's URL: anyone, or its owner with a token."""

    PUBLIC = "public"
    AUTHENTICATED = "authenticated"


class Phase(enum.StrEnum):
    """The outcome, so far, of a function's newest generation."""

    PENDING = "Pending"
    BUILDING = "Building"
    DEPLOYING = "Deploying"
    READY = "Ready"
    FAILED = "Failed"


class VersionState(enum.StrEnum):
    """How far a version's build is."""

    PENDING = "Pending"
    BUILDING = "Building"
    BUILT = "Built"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class Namespace:
    """One user's resources. `number`: no other namespace has or had it."""

    name: str
    number: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Replicas:
    """The fewest and most instances, and how many calls one takes at once. max 0 switches the function off."""

    min: int
    max: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Secret:
    """A write-only variable as it is kept: what is shown of it, the key that sealed it, and the sealed value."""

    digest: str
    key_id: str
    sealed: bytes

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return len(self.sealed) - _NONCE_AND_TAG_BYTES


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a user says about a function, after validation. `timeout` None: no limit."""

    runtime: str
    entrypoint: str
    memory_mb: int
    timeout: timedelta | None
    replicas: Replicas
    display_name: str = ""
    description: str = ""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, Secret] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    access: Access = Access.PUBLIC
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """A generation that was reported to serve, and its configuration."""

    generation: int
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Function:
    """A function or service.

    generation           counts changes of configuration, code and activation.
    observed_generation  the newest generation whose outcome (Ready, Failed) is known.
    code_version         the version that the newest generation is about: the last one uploaded to serve, or activated since; 0: none.
    pending_version      `code_version` while its build has not ended, else 0.
    desired_version      the built version that should serve; 0: none.
    active_version       the version that serves; 0: none.
    failed_build         the version whose failed build is the newest generation's outcome; 0: it is not a failed build.
    last_version         the highest number that a version was ever given.
    served               the newest generation that `active_version` has served in; None: none, or it is not known.
    traceparent          W3C traceparent of the request that made the newest generation; "": it had none.
    revision             the registry's revision in which this state was written; 0: not written yet.
    """

    uid: str
    namespace: str
    name: str
    kind: Kind
    configuration: Configuration
    created_at: datetime
    updated_at: datetime
    generation: int = 1
    observed_generation: int = 0
    phase: Phase = Phase.PENDING
    message: str = ""
    code_version: int = 0
    pending_version: int = 0
    desired_version: int = 0
    active_version: int = 0
    failed_build: int = 0
    last_version: int = 0
    image_ref: str = ""
    has_served: bool = False
    last_built_at: datetime | None = None
    deleted_at: datetime | None = None
    served: Served | None = None
    traceparent: str = ""
    revision: int = 0

    @property
    def etag(self) -> str:
        """Changes with every generation, and differs from that of any other function that had the name."""
        return f"{self.uid[:8]}-{self.generation}"

    @property
    def switched_off(self) -> bool:
        """Whether it may have no instance."""
        return self.configuration.replicas.max == 0

    @property
    def switching_off(self) -> bool:
        """Whether its newest generation is Ready as soon as nothing routes to it any more."""
        return self.switched_off and self.phase is Phase.DEPLOYING and self.deleted_at is None

    @property
    def settled(self) -> bool:
        """Whether the newest generation's outcome is known."""
        return self.observed_generation == self.generation

    @property
    def replaceable(self) -> bool:
        """Whether a create may take its name: it failed and never served."""
        return self.phase is Phase.FAILED and not self.has_served

    @property
    def deploying(self) -> bool:
        """Whether it waits for a report of how the deployment of its desired version went."""
        if self.switched_off or not self.desired_version or self.deleted_at is not None:
            return False
        return self.phase is Phase.DEPLOYING or self.active_version != self.desired_version


@dataclass(frozen=True, slots=True)
class BuildError:
    """Why a build failed. `line` from 1, 0 when no line is at fault."""

    reason: str
    message: str
    file: str = ""
    line: int = 0
    package: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable upload and how far its build is.

    code_sha256  hexadecimal SHA-256 of the uploaded archive.
    activate     whether it is to serve once it is built.
    attempt      the build attempt that the state comes from; 0 before the first.
    traceparent  W3C traceparent of the request that made it; "": it had none.
    """

    uid: str
    function_uid: str
    namespace: str
    name: str
    number: int
    code_sha256: str
    size_bytes: int
    runtime: str
    entrypoint: str
    created_by: str
    created_at: datetime
    activate: bool
    state: VersionState = VersionState.PENDING
    active: bool = False
    attempt: int = 0
    image_ref: str = ""
    layers: tuple[str, ...] = ()
    message: str = ""
    error: BuildError | None = None
    build_started_at: datetime | None = None
    build_finished_at: datetime | None = None
    cached: bool = False
    traceparent: str = ""
    revision: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether its build has not ended."""
        return self.state in (VersionState.PENDING, VersionState.BUILDING)

    @property
    def usable(self) -> bool:
        """Whether it is built, or may still be."""
        return self.state not in (VersionState.FAILED, VersionState.CANCELLED)

    @property
    def fails_again(self) -> bool:
        """Whether its build failed for what is in its code, so that the same code would fail in the same way."""
        return self.error is not None and self.error.reason in catalog.FAULTS_OF_CODE
