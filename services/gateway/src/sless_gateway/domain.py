"""What the gateway speaks of: callers, resources as clients see them, calls. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sless_platform.identity import Principal


class Kind(enum.Enum):
    """Function or service; the value is what the API calls it."""

    FUNCTION = "function"
    SERVICE = "service"

    @property
    def collection(self) -> str:
        """The path segment of its collection."""
        return f"{self.value}s"


class Access(enum.Enum):
    """Who may call a service's URL."""

    PUBLIC = "public"
    AUTHENTICATED = "authenticated"


class Phase(enum.Enum):
    """The outcome of a function's newest generation so far; the value is what the API calls it."""

    PENDING = "Pending"
    BUILDING = "Building"
    DEPLOYING = "Deploying"
    READY = "Ready"
    FAILED = "Failed"


class VersionState(enum.Enum):
    """How far a version's build is; the value is what the API calls it."""

    PENDING = "Pending"
    BUILDING = "Building"
    BUILT = "Built"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """Whether the build is over."""
        return self not in {VersionState.PENDING, VersionState.BUILDING}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a bearer token belongs to, and the identities with which the gateway asks other services in their name.

    `identities`: service → token. `until`: when the first of token and identities ends. `remember_until`: until when all
    this may be believed without asking again.
    """

    principal: Principal
    identities: Mapping[str, str]
    until: datetime
    remember_until: datetime


@dataclass(frozen=True, slots=True)
class FunctionKey:
    """Names one function or service."""

    namespace: str
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Namespace:
    """A user's namespace. `number` is one that no other has or had."""

    name: str
    number: int
    created_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its secret. `expires_at` None: never."""

    id: str
    name: str
    hint: str
    created_by: str
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """An API key that was made just now, and its secret."""

    key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Bounds on instances, and the calls at once in one of them."""

    min: int
    max: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """Stands for the stored value of a secret variable, known by its hexadecimal SHA-256."""

    sha256: str


SecretValue = str | KeptSecret
"""A new value, or the stored one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """All that a client may say of a function. `timeout_sec` None: no limit."""

    runtime: str
    entrypoint: str
    display_name: str
    description: str
    memory_mb: int
    timeout_sec: int | None
    env_vars: Mapping[str, str]
    secret_env: Mapping[str, SecretValue] = field(repr=False)
    replicas: Replicas
    labels: Mapping[str, str]
    access: Access
    idempotent: bool


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Configuration that changes with an upload: the values, and which of them."""

    config: FunctionConfig
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or service as it is. `active_version` None: nothing serves yet."""

    key: FunctionKey
    config: FunctionConfig
    phase: Phase
    message: str
    generation: int
    observed_generation: int
    active_version: int | None
    image_ref: str | None
    last_built_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    etag: str

    @property
    def settled(self) -> bool:
        """Whether the outcome of the newest generation is known."""
        return self.observed_generation == self.generation


@dataclass(frozen=True, slots=True)
class BuildError:
    """Why a build failed; `line` is counted from 1."""

    reason: str
    message: str
    file: str | None
    line: int | None
    package: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """An upload and its build."""

    number: int
    state: VersionState
    active: bool
    code_sha256: str
    size_bytes: int
    image_ref: str | None
    message: str
    error: BuildError | None
    created_by: str
    created_at: datetime | None
    build_started_at: datetime | None
    build_finished_at: datetime | None
    cached: bool
    etag: str


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload became; not `created`: the newest version has the same content and configuration already."""

    version: Version
    created: bool
    function: Function


@dataclass(frozen=True, slots=True)
class SourceHead:
    """Whose source it is. `files`: how many there are, also those that are not given. `uid`: the version's, which no other has."""

    version: int
    uid: str
    entrypoint: str
    files: int
    archive_bytes: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source, whole."""

    path: str
    content: bytes = field(repr=False)


class Trigger(enum.Enum):
    """What makes a call."""

    HTTP = "http"
    INVOKE = "invoke"


Headers = list[tuple[str, str]]
"""Header fields in their order, duplicates kept; bytes outside ASCII are Latin-1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call without its body. `path` and `query` are as they came; `kind` None means either."""

    namespace: str
    name: str
    kind: Kind | None
    trigger: Trigger
    method: str
    path: str
    query: str
    headers: Headers
    request_id: str
    invocation_id: str
    owner_authenticated: bool = False


class CallBody(Protocol):
    """The body of a call: what is in hand already, then the rest as it comes."""

    @property
    def held(self) -> bytes:
        """The first bytes."""
        ...

    @property
    def complete(self) -> bool:
        """Whether `held` is all of it."""
        ...

    async def read(self) -> bytes:
        """What comes next after `held`; b"" after the last. Raises what is wrong with the client's body."""
        ...

    def rewind(self) -> bool:
        """Have all that was read so far in `held` again. False when that was too much to be kept."""
        ...

    def settle(self) -> None:
        """Let go of what was kept: the call is answered, so nothing will be sent again."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer and its first bytes; `complete`: these are all of it."""

    status: int
    headers: Headers
    invocation_id: str
    first: bytes
    complete: bool
