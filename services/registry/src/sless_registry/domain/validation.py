"""Whether what a request says is allowed: one place, for create and update alike, by the catalogue and the limits.

Every function raises InvalidField, whose sentence and `field` name the field as the REST API does, and the value.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from sless_contracts import catalog, limits

from sless_registry.domain.drafts import Draft, SecretDraft
from sless_registry.domain.resources import Access, Configuration, Kind, Replicas, Secret
from sless_registry.errors import InvalidField

_SHOWN_CHARS: Final = 80
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DNS_LABEL_RULE: Final = "lower-case letters, digits and hyphens, beginning and ending with a letter or digit"


StoreSecret = Callable[[str, SecretDraft], Secret]
"""Makes of a variable's name and draft what is to be kept; raises InvalidField for a digest that nothing stored has."""


def namespace_name(namespace: str) -> str:
    """The namespace's name, when it can be one."""
    if not catalog.NAMESPACE_PATTERN.fullmatch(namespace):
        raise InvalidField(
            f'namespace must be "sless-" and 16 hexadecimal digits, not {_shown(namespace)}', field="namespace"
        )
    return namespace


def function_name(name: str) -> str:
    """The function's name, when it can be one (a DNS-1123 label)."""
    if not name:
        raise InvalidField("name is required", field="name")
    if not catalog.NAME_PATTERN.fullmatch(name):
        raise InvalidField(
            f"name must be at most {limits.NAME_CHARS.value} {_DNS_LABEL_RULE}, not {_shown(name)}", field="name"
        )
    return name


def request_id(value: str) -> str:
    """The request id in its canonical form, when it is a UUID."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise InvalidField(f"request_id must be a UUID, not {_shown(value)}", field="request_id") from None


def code_digest(value: str) -> str:
    """The digest of an archive, when it can be one."""
    if not _SHA256.fullmatch(value):
        raise InvalidField(f"code_sha256 must be 64 hexadecimal digits, not {_shown(value)}", field="code_sha256")
    return value


def configuration(
    draft: Draft, kind: Kind, *, stored: Mapping[str, Secret], store_secret: StoreSecret
) -> Configuration:
    """The draft with the kind's defaults filled in, when all of it is allowed.

    `stored`: the secret variables that the function has. Raises InvalidField for the first field that is not allowed.
    """
    _check(draft, kind, stored)
    return Configuration(
        display_name=draft.display_name,
        description=draft.description,
        runtime=draft.runtime,
        entrypoint=draft.entrypoint,
        memory_mb=draft.memory_mb or catalog.DEFAULT_MEMORY_MB,
        timeout=_timeout(draft.timeout, kind),
        env_vars=dict(draft.env_vars),
        secret_env={name: store_secret(name, secret) for name, secret in draft.secret_env.items()},
        replicas=draft.replicas or _default_replicas(kind),
        labels=dict(draft.labels),
        access=draft.access or Access.PUBLIC,
        idempotent=draft.idempotent,
    )


def _check(draft: Draft, kind: Kind, stored: Mapping[str, Secret]) -> None:
    _text("display_name", draft.display_name, limits.DISPLAY_NAME_CHARS)
    _text("description", draft.description, limits.DESCRIPTION_CHARS)
    _runtime(draft.runtime)
    _entrypoint(draft.entrypoint)
    _within("memory_mb", draft.memory_mb or catalog.DEFAULT_MEMORY_MB, catalog.MEMORY_MB)
    _timeout(draft.timeout, kind)
    _replicas(draft.replicas or _default_replicas(kind))
    _labels(draft.labels)
    _environment(draft, stored)


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def _within(field: str, value: int, allowed: catalog.Range) -> None:
    if value not in allowed:
        raise InvalidField(f"{field} must be {allowed}, not {value}", field=field)


def _text(field: str, value: str, limit: limits.Limit) -> None:
    if len(value) > limit.value:
        raise InvalidField(f"{field} must be at most {limit.value} {limit.unit}, not {len(value)}", field=field)
    _no_nul(field, value)


def _no_nul(field: str, value: str) -> None:
    if "\0" in value:
        raise InvalidField(f"{field} must not contain a zero byte, not {_shown(value)}", field=field)


def _runtime(runtime: str) -> None:
    if not runtime:
        raise InvalidField("runtime is required", field="runtime")
    if runtime not in catalog.RUNTIMES:
        known = ", ".join(catalog.RUNTIMES)
        raise InvalidField(f"runtime must be one of {known}, not {_shown(runtime)}", field="runtime")


def _entrypoint(entrypoint: str) -> None:
    if not entrypoint:
        raise InvalidField("entrypoint is required", field="entrypoint")
    fits = len(entrypoint.encode()) <= limits.PATH_BYTES.value
    if not fits or not catalog.ENTRYPOINT_PATTERN.fullmatch(entrypoint):
        raise InvalidField(f"entrypoint must be module.function, not {_shown(entrypoint)}", field="entrypoint")


def _timeout(timeout: timedelta | None, kind: Kind) -> timedelta | None:
    """The time limit of calls; a service has none when it names none or 0."""
    default = catalog.DEFAULTS[kind].timeout_sec
    if timeout is None or (not timeout and default is None):
        return None if default is None else timedelta(seconds=default)
    seconds = timeout / timedelta(seconds=1)
    if timeout % timedelta(seconds=1):
        raise InvalidField(f"timeout_sec must be a whole number of seconds, not {seconds:g}", field="timeout_sec")
    _within("timeout_sec", int(seconds), catalog.TIMEOUT_SEC)
    return timeout


def _default_replicas(kind: Kind) -> Replicas:
    default = catalog.DEFAULTS[kind]
    return Replicas(default.min_replicas, default.max_replicas, default.concurrency)


def _replicas(replicas: Replicas) -> None:
    _within("replicas.min", replicas.min, catalog.REPLICAS)
    _within("replicas.max", replicas.max, catalog.REPLICAS)
    _within("replicas.concurrency", replicas.concurrency, catalog.CONCURRENCY)
    if replicas.min > replicas.max:
        raise InvalidField(
            f"replicas.min must be at most replicas.max ({replicas.max}), not {replicas.min}", field="replicas.min"
        )


def _labels(labels: Mapping[str, str]) -> None:
    if len(labels) > limits.LABELS.value:
        raise InvalidField(f"labels must be at most {limits.LABELS.value}, not {len(labels)}", field="labels")
    for key, value in labels.items():
        if not key:
            raise InvalidField("labels must not have an empty key", field="labels")
        _text(f"labels.{_cut(key)}", key, limits.LABEL_CHARS)
        _text(f"labels.{_cut(key)}", value, limits.LABEL_CHARS)


def _environment(draft: Draft, stored: Mapping[str, Secret]) -> None:
    for name, value in draft.env_vars.items():
        _variable("env_vars", name)
        _no_nul(f"env_vars.{_cut(name)}", value)
    for name, secret in draft.secret_env.items():
        _variable("secret_env", name)
        _no_nul(f"secret_env.{_cut(name)}", secret.value or "")
        if name in draft.env_vars:
            field = f"secret_env.{_cut(name)}"
            raise InvalidField(f"{field} is in env_vars too: give it once", field=field)
    total = sum(len(name) + len(value.encode()) for name, value in draft.env_vars.items())
    total += sum(len(name) + _size(secret, stored.get(name)) for name, secret in draft.secret_env.items())
    if total > limits.ENVIRONMENT_BYTES.value:
        allowed = limits.ENVIRONMENT_BYTES.value
        raise InvalidField(
            f"env_vars and secret_env together must be at most {allowed} bytes, not {total}", field="env_vars"
        )


def _size(draft: SecretDraft, stored: Secret | None) -> int:
    """Bytes of the value that a secret variable will have."""
    if draft.value is not None:
        return len(draft.value.encode())
    return 0 if stored is None else stored.size


def _variable(field: str, name: str) -> None:
    if not catalog.VARIABLE_PATTERN.fullmatch(name):
        raise InvalidField(
            f"{field} names must be letters, digits and underscores, not beginning with a digit, not {_shown(name)}",
            field=f"{field}.{_cut(name)}",
        )
    if name.startswith(catalog.RESERVED_VARIABLE_PREFIX):
        raise InvalidField(
            f"{field} names must not begin with {catalog.RESERVED_VARIABLE_PREFIX}, which is the platform's,"
            f" not {_shown(name)}",
            field=f"{field}.{_cut(name)}",
        )


def _cut(name: str) -> str:
    """A name as part of a field's path; such paths travel in headers, which are bounded."""
    return name if len(name) <= _SHOWN_CHARS else name[: _SHOWN_CHARS - 1] + "…"
