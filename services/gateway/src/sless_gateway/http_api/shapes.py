"""What resources look like to clients: names, order and forms of fields as the REST API has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from sless_gateway.application.uploads import Progress, Uploaded
from sless_gateway.domain import (
    ApiKey,
    BuildError,
    Caller,
    Function,
    KeptSecret,
    Kind,
    Namespace,
    NewApiKey,
    Replicas,
    Version,
    VersionState,
)
from sless_gateway.http_api import fields
from sless_gateway.http_api.fields import KindName, PhaseName, Sha256, StateName, Time, about


class ReplicasShape(msgspec.Struct):
    """Bounds on instances."""

    min: Annotated[int, fields.MIN_REPLICAS]
    max: Annotated[int, fields.MAX_REPLICAS]
    concurrency: Annotated[int, fields.CONCURRENCY]


class SecretShape(msgspec.Struct):
    """What is known of a secret variable."""

    sha256: Annotated[str, about("A keyed digest that changes with the value.")]


class FunctionShape(msgspec.Struct, kw_only=True):
    """A function or service."""

    name: Annotated[str, fields.NAME]
    namespace: str
    kind: KindName
    display_name: Annotated[str, fields.DISPLAY_NAME]
    description: Annotated[str, fields.DESCRIPTION]
    runtime: Annotated[str, fields.RUNTIME]
    entrypoint: Annotated[str, fields.ENTRYPOINT]
    memory_mb: Annotated[int, fields.MEMORY_MB]
    timeout_sec: Annotated[int | None, about("How long a call may take, in seconds; null: no limit.")]
    env_vars: dict[str, str]
    replicas: ReplicasShape
    labels: dict[str, str]
    access: Annotated[str, fields.ACCESS]
    idempotent: Annotated[bool, fields.IDEMPOTENT]
    secret_env: dict[str, SecretShape]
    status: Annotated[PhaseName, about("An alias of phase that older clients read.")]
    phase: PhaseName
    message: Annotated[str, about("Why the phase is what it is.")]
    generation: Annotated[int, about("Counts every change of configuration, code or active version.")]
    observed_generation: Annotated[int, about("The newest generation whose outcome is known.")]
    active_version: Annotated[int | None, about("The version that serves; null while none does.")]
    image_ref: Annotated[str | None, about("The image of the version that serves, with its digest.")]
    url: Annotated[str | None, about("The public URL; null while nothing exposes it.")]
    invoke_url: Annotated[str, about("Where its owner calls it.")]
    last_built_at: Time | None
    created_at: Time | None
    updated_at: Time | None


class BuildErrorShape(msgspec.Struct):
    """Why a build failed."""

    reason: Annotated[str, about("A word for programs, such as SYNTAX_ERROR.")]
    message: str
    file: Annotated[str | None, about("The file at fault, relative to the archive's root.")]
    line: Annotated[int | None, about("The line at fault, from 1.")]
    package: Annotated[str | None, about("The package at fault.")]


class BuildShape(msgspec.Struct):
    """How a build went."""

    started_at: Time | None
    finished_at: Time | None
    cached: Annotated[bool, about("Whether all its layers were there already.")]


class VersionShape(msgspec.Struct, kw_only=True):
    """A version."""

    version: Annotated[int, about("1, 2, 3…", minimum=1)]
    state: StateName
    active: Annotated[bool, about("Whether it serves.")]
    code_sha256: Sha256
    size_bytes: int
    image_ref: str | None
    message: Annotated[str, about("The state explained; the log's end when the build failed.")]
    error: BuildErrorShape | None
    created_by: Annotated[str, about("The `sub` of who uploaded it.")]
    created_at: Time | None
    build: BuildShape


class UploadShape(msgspec.Struct):
    """What an upload is answered with."""

    message: str
    phase: PhaseName
    version: int
    code_sha256: Sha256


class SourceFileShape(msgspec.Struct):
    """A file as it was uploaded."""

    path: Annotated[str, about("Relative to the archive's root, with slashes.")]
    size: Annotated[int, about("Bytes of the file.")]
    encoding: Annotated[str, about("How `content` stands for the bytes.", enum=["utf-8", "base64"])]
    content: str


class SourceShape(msgspec.Struct):
    """A version's source."""

    version: int
    entrypoint: str
    files: Annotated[list[SourceFileShape], about("By path.")]
    truncated: Annotated[bool, about("Whether files are left out, each whole, because all would be too much for JSON.")]


class NamespaceShape(msgspec.Struct):
    """A namespace."""

    namespace: str
    created_at: Time | None


class ApiKeyShape(msgspec.Struct, kw_only=True):
    """An API key without its secret."""

    id: str
    name: Annotated[str, about("A name for people.")]
    hint: Annotated[str, about("How the secret begins, by which people tell keys apart.")]
    created_by: Annotated[str, about("The `sub` of who made it, for whom it acts.")]
    created_at: Time | None
    expires_at: Annotated[Time | None, about("When it stops to work; null: never.")]
    last_used_at: Annotated[Time | None, about("At most a minute old; null: never.")]


class NewApiKeyShape(ApiKeyShape, kw_only=True):
    """An API key that was made just now."""

    secret: Annotated[str, about("What to send as bearer token; it can't be shown again.")]


class WhoAmIShape(msgspec.Struct):
    """Who is calling."""

    sub: str
    namespace: str
    roles: list[str]


class HealthShape(msgspec.Struct):
    """How the gateway is."""

    status: str


_MESSAGES: Final = {
    Progress.QUEUED: "build queued",
    Progress.READY: "ready",
    Progress.UNDER_WAY: "build queued",
}
_THERE_ALREADY: Final = "unchanged: this version has the same content already"
_FAILED_ALREADY: Final = "unchanged: version {} has the same content, and its build failed"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Makes shapes. `external_url`: where clients reach the gateway, without a slash at its end."""

    external_url: str

    def function(self, function: Function) -> FunctionShape:
        """A function or service."""
        config, key = function.config, function.key
        url = f"{self.external_url}/fn/{key.namespace}/{key.name}" if key.kind is Kind.SERVICE else None
        return FunctionShape(
            name=key.name,
            namespace=key.namespace,
            kind=key.kind.value,
            display_name=config.display_name,
            description=config.description,
            runtime=config.runtime,
            entrypoint=config.entrypoint,
            memory_mb=config.memory_mb,
            timeout_sec=config.timeout_sec,
            env_vars=dict(sorted(config.env_vars.items())),
            replicas=_replicas(config.replicas),
            labels=dict(sorted(config.labels.items())),
            access=config.access.value,
            idempotent=config.idempotent,
            secret_env={
                name: SecretShape(value.sha256)
                for name, value in sorted(config.secret_env.items())
                if isinstance(value, KeptSecret)
            },
            status=function.phase.value,
            phase=function.phase.value,
            message=function.message,
            generation=function.generation,
            observed_generation=function.observed_generation,
            active_version=function.active_version,
            image_ref=function.image_ref,
            url=url,
            invoke_url=url or f"{self._path(function)}/invoke",
            last_built_at=moment(function.last_built_at),
            created_at=moment(function.created_at),
            updated_at=moment(function.updated_at),
        )

    def functions(self, functions: Sequence[Function]) -> list[FunctionShape]:
        """A list."""
        return [self.function(function) for function in functions]

    def _path(self, function: Function) -> str:
        key = function.key
        return f"{self.external_url}/v1/namespaces/{key.namespace}/{key.kind.collection}/{key.name}"


def version(version: Version) -> VersionShape:
    """A version."""
    return VersionShape(
        version=version.number,
        state=version.state.value,
        active=version.active,
        code_sha256=version.code_sha256,
        size_bytes=version.size_bytes,
        image_ref=version.image_ref,
        message=version.message,
        error=None if version.error is None else _build_error(version.error),
        created_by=version.created_by,
        created_at=moment(version.created_at),
        build=BuildShape(moment(version.build_started_at), moment(version.build_finished_at), version.cached),
    )


def upload(uploaded: Uploaded) -> UploadShape:
    """What became of an upload."""
    version = uploaded.upload.version
    message = _MESSAGES[uploaded.progress]
    if uploaded.progress is Progress.QUEUED and not uploaded.upload.created:
        failed = version.state is VersionState.FAILED
        message = _FAILED_ALREADY.format(version.number) if failed else _THERE_ALREADY
    return UploadShape(message, uploaded.function.phase.value, version.number, version.code_sha256)


def namespace(namespace: Namespace) -> NamespaceShape:
    """A namespace."""
    return NamespaceShape(namespace.name, moment(namespace.created_at))


def api_key(key: ApiKey) -> ApiKeyShape:
    """An API key, without its secret."""
    return ApiKeyShape(**_api_key(key))


def new_api_key(made: NewApiKey) -> NewApiKeyShape:
    """A new API key, with its secret."""
    return NewApiKeyShape(**_api_key(made.key), secret=made.secret)


def whoami(caller: Caller) -> WhoAmIShape:
    """Who is calling."""
    principal = caller.principal
    return WhoAmIShape(principal.subject, principal.namespace, sorted(principal.roles))


def moment(value: datetime | None) -> str | None:
    """A time as RFC 3339 in UTC with milliseconds; None stays None."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _api_key(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "hint": key.hint,
        "created_by": key.created_by,
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "last_used_at": moment(key.last_used_at),
    }


def _replicas(replicas: Replicas) -> ReplicasShape:
    return ReplicasShape(replicas.min, replicas.max, replicas.concurrency)


def _build_error(error: BuildError) -> BuildErrorShape:
    return BuildErrorShape(error.reason, error.message, error.file, error.line, error.package)
