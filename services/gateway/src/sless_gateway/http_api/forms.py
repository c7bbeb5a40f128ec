"""What a client may say of a function, and how it is told that it said something else.

The Structs below are the shapes; msgspec checks them, and the API's document is made from them. Ranges and names are
for the registry to judge, but for numbers that the contract's fields cannot carry.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from sless_contracts import catalog
from sless_platform.errors import InvalidArgument

from sless_gateway.domain import (
    Access,
    ConfigChange,
    FunctionConfig,
    FunctionKey,
    KeptSecret,
    Kind,
    Replicas,
    SecretValue,
)
from sless_gateway.http_api import fields
from sless_gateway.http_api.fields import ReadOnly

_SHOWN_CHARS: Final = 80


class ReplicasForm(msgspec.Struct, forbid_unknown_fields=True):
    """`replicas` as an object; what is left out has the kind's default."""

    min: Annotated[int | None, fields.MIN_REPLICAS] = None
    max: Annotated[int | None, fields.MAX_REPLICAS] = None
    concurrency: Annotated[int | None, fields.CONCURRENCY] = None


class KeptSecretForm(msgspec.Struct, forbid_unknown_fields=True):
    """A secret variable that keeps its value."""

    sha256: Annotated[str, fields.KEPT_SHA256]


class _OptionalFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What may be said of a function beside its runtime and entrypoint; null means the default."""

    name: Annotated[str | None, fields.NAME] = None
    display_name: Annotated[str | None, fields.DISPLAY_NAME] = None
    description: Annotated[str | None, fields.DESCRIPTION] = None
    memory_mb: Annotated[int | None, fields.MEMORY_MB] = None
    timeout_sec: Annotated[int | None, fields.TIMEOUT_SEC] = None
    env_vars: Annotated[dict[str, str] | None, fields.ENV_VARS] = None
    replicas: Annotated[int | ReplicasForm | None, fields.REPLICAS] = None
    labels: Annotated[dict[str, str] | None, fields.LABELS] = None
    access: Annotated[str | None, fields.ACCESS_OR_NULL] = None
    idempotent: Annotated[bool | None, fields.IDEMPOTENT] = None
    secret_env: Annotated[dict[str, str | KeptSecretForm] | None, fields.SECRET_ENV] = None
    namespace: ReadOnly = None
    kind: ReadOnly = None
    status: ReadOnly = None
    phase: ReadOnly = None
    message: ReadOnly = None
    generation: ReadOnly = None
    observed_generation: ReadOnly = None
    active_version: ReadOnly = None
    image_ref: ReadOnly = None
    url: ReadOnly = None
    invoke_url: ReadOnly = None
    last_built_at: ReadOnly = None
    created_at: ReadOnly = None
    updated_at: ReadOnly = None


class FunctionForm(_OptionalFields, kw_only=True):
    """The body of a replace: null is the same as left out."""

    runtime: Annotated[str, fields.RUNTIME]
    entrypoint: Annotated[str, fields.ENTRYPOINT]


class ConfigForm(_OptionalFields, kw_only=True):
    """Configuration that comes with an upload: the fields that are there change, all others stay."""

    runtime: Annotated[str, fields.RUNTIME] | msgspec.UnsetType = msgspec.UNSET
    entrypoint: Annotated[str, fields.ENTRYPOINT] | msgspec.UnsetType = msgspec.UNSET


class CreateFunctionForm(FunctionForm, kw_only=True):
    """The body of a create, which must name what is made."""

    name: Annotated[str, fields.NAME]


_CHANGEABLE: Final = frozenset(field.name for field in dataclasses.fields(FunctionConfig))
_Form = TypeVar("_Form", bound=msgspec.Struct)


def form_of(body: Mapping[str, Any], form: type[_Form]) -> _Form:
    """The body in the shape of `form`. Raises InvalidArgument naming the field and the value."""
    try:
        return msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        raise _told(str(error), body) from None


def config_change(body: Mapping[str, Any], key: FunctionKey) -> ConfigChange | None:
    """The fields of a body as a change of the function that the path names; None when none of them can be changed.

    Raises InvalidArgument as form_of and config_of do.
    """
    form = form_of(body, ConfigForm)
    check_name(form.name, key)
    changed = _CHANGEABLE.intersection(body)
    return ConfigChange(config_of(form, key.kind), changed) if changed else None


def check_name(name: str | None, key: FunctionKey) -> None:
    """Raise InvalidArgument for another name than the path's."""
    if name not in {None, key.name}:
        raise InvalidArgument(f"name can't be changed: it is {key.name}, not {name}", field="name")


def config_of(form: FunctionForm | ConfigForm, kind: Kind) -> FunctionConfig:
    """The whole configuration: what the form says, defaults of the catalogue for what it leaves out."""
    return FunctionConfig(
        runtime=form.runtime or "",
        entrypoint=form.entrypoint or "",
        display_name=form.display_name or "",
        description=form.description or "",
        memory_mb=_within("memory_mb", form.memory_mb, catalog.MEMORY_MB, catalog.DEFAULT_MEMORY_MB),
        timeout_sec=_timeout(form.timeout_sec, kind),
        env_vars=form.env_vars or {},
        secret_env={name: _secret(value) for name, value in (form.secret_env or {}).items()},
        replicas=_replicas(form.replicas, catalog.DEFAULTS[kind.value]),
        labels=form.labels or {},
        access=_access(form.access),
        idempotent=form.idempotent or False,
    )


def _timeout(seconds: int | None, kind: Kind) -> int | None:
    if kind is Kind.SERVICE and not seconds:
        return None
    if seconds is None:
        return catalog.DEFAULTS[kind.value].timeout_sec
    return _within("timeout_sec", seconds, catalog.TIMEOUT_SEC, 0)


def _replicas(value: int | ReplicasForm | None, defaults: catalog.KindDefaults) -> Replicas:
    if isinstance(value, int):
        value = ReplicasForm(min=_within("replicas", value, catalog.REPLICAS, 0), max=value)
    form = value or ReplicasForm()
    return Replicas(
        _within("replicas.min", form.min, catalog.REPLICAS, defaults.min_replicas),
        _within("replicas.max", form.max, catalog.REPLICAS, defaults.max_replicas),
        _within("replicas.concurrency", form.concurrency, catalog.CONCURRENCY, defaults.concurrency),
    )


def _within(name: str, value: int | None, bounds: catalog.Range, default: int) -> int:
    """The value, or the default for None. The contract says 0 for "the default" and has 32 bits, so what it would not
    carry as it is meant is judged here already, by the same range.
    """
    if value is None:
        return default
    if value not in bounds:
        raise InvalidArgument(f"{name} must be {bounds}, not {value}", field=name)
    return value


def _access(value: str | None) -> Access:
    if value is None:
        return Access.PUBLIC
    try:
        return Access(value)
    except ValueError:
        raise InvalidArgument(f"access must be public or authenticated, not {_shown(value)}", field="access") from None


def _secret(value: str | KeptSecretForm) -> SecretValue:
    return KeptSecret(value.sha256) if isinstance(value, KeptSecretForm) else value


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$\.(?P<path>.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*?)`(?: - at `\$\.(?P<path>.*)`)?")
_EXPECTED: Final = re.compile(r"Expected `(?P<types>.*?)`, got `.*?` - at `\$\.(?P<path>.*)`")
_NO_TIME: Final = re.compile(
    r"(?:Invalid RFC3339 encoded datetime|Expected `datetime` with a timezone component) - at `\$\.(?P<path>.*)`"
)
_WORDS: Final = {
    "datetime": "a time such as 2030-01-31T12:00:00Z",
    "int": "a whole number",
    "str": "a string",
    "bool": "true or false",
    "object": "an object",
}
_WORDS_OF_FIELDS: Final = {
    "secret_env": 'a string, or {"sha256": …} to keep the stored value',
    "replicas": "a whole number, or an object with min, max and concurrency",
}


def _told(message: str, body: Mapping[str, Any]) -> InvalidArgument:
    """msgspec's message as a sentence of ours."""
    if match := _UNKNOWN.fullmatch(message):
        name = _joined(match["path"], match["name"], body)
        return InvalidArgument(f"unknown field {_shown(name)}", field=name)
    if match := _MISSING.fullmatch(message):
        name = _joined(match["path"], match["name"], body)
        return InvalidArgument(f"{name} is required", field=name)
    if match := _EXPECTED.fullmatch(message):
        return _mismatch(match["types"], match["path"], body)
    if match := _NO_TIME.fullmatch(message):
        return _mismatch("datetime", match["path"], body)
    return InvalidArgument(f"the body can't be understood: {message}")


def _mismatch(types: str, path: str, body: Mapping[str, Any]) -> InvalidArgument:
    name = _resolved(path, body)
    field, _, entry = name.partition(".")
    words = " or ".join(_WORDS.get(kind, kind) for kind in types.split(" | ") if kind != "null")
    if field in _WORDS_OF_FIELDS and (field == "replicas") == (not entry):
        words = _WORDS_OF_FIELDS[field]
    value = body[field]
    if entry and isinstance(value, Mapping):
        value = value.get(entry)
    shown = "" if field == "secret_env" else f", not {_shown(value)}"
    return InvalidArgument(f"{name} must be {words}{shown}", field=name)


def _joined(path: str | None, name: str, body: Mapping[str, Any]) -> str:
    return name if path is None else f"{_resolved(path, body)}.{name}"


def _resolved(path: str, body: Mapping[str, Any]) -> str:
    """The path with the key that msgspec leaves out of maps (`env_vars[...]`)."""
    field, bracket, rest = path.partition("[...]")
    if not bracket:
        return path
    wanted: Any = str | KeptSecretForm if field == "secret_env" else str
    return f"{field}.{next(key for key, value in body[field].items() if not _fits(value, wanted))}{rest}"


def _fits(value: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
