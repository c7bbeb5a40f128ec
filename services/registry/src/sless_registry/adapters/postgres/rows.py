"""Rows and resources, each made of the other."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from sless_registry.domain.resources import (
    Access,
    BuildError,
    Configuration,
    Function,
    Kind,
    Namespace,
    Phase,
    Replicas,
    Secret,
    Served,
    Version,
    VersionState,
)
from sless_registry.ports import Answer, RequestKey, StoredAnswer

Row = Mapping[str, Any]

_FUNCTION_FIELDS = tuple(field.name for field in fields(Function))
_VERSION_FIELDS = tuple(field.name for field in fields(Version))
_NEWER_FIELDS: Mapping[str, Any] = {"traceparent": "", "served": None}
"""What answers lack which were stored by a release before, and what stands for it."""


def namespace(row: Row) -> Namespace:
    """The namespace of a row."""
    return Namespace(row["name"], row["number"], row["created_at"])


def function(row: Row) -> Function:
    """The function of a row, or of what function_row made."""
    values = {name: _field(row, name) for name in _FUNCTION_FIELDS}
    values |= _times(row, "last_built_at", "created_at", "updated_at", "deleted_at")
    values["kind"] = Kind(row["kind"])
    values["phase"] = Phase(row["phase"])
    values["configuration"] = _configuration(row["configuration"])
    served = values["served"]
    values["served"] = None if served is None else Served(served["generation"], _configuration(served["configuration"]))
    return Function(**values)


def function_row(function: Function) -> dict[str, Any]:
    """The function as a JSON object with the columns of its row."""
    row = {name: getattr(function, name) for name in _FUNCTION_FIELDS}
    row |= _texts(row, "last_built_at", "created_at", "updated_at", "deleted_at")
    row["configuration"] = _configuration_object(function.configuration)
    served = function.served
    row["served"] = (
        None
        if served is None
        else {"generation": served.generation, "configuration": _configuration_object(served.configuration)}
    )
    return row


def version(row: Row) -> Version:
    """The version of a row, or of what version_row made."""
    values = {name: _field(row, name) for name in _VERSION_FIELDS}
    values |= _times(row, "created_at", "build_started_at", "build_finished_at")
    values["state"] = VersionState(row["state"])
    values["layers"] = tuple(row["layers"])
    values["error"] = None if row["error"] is None else BuildError(**row["error"])
    return Version(**values)


def version_row(version: Version) -> dict[str, Any]:
    """The version as a JSON object with the columns of its row."""
    row = {name: getattr(version, name) for name in _VERSION_FIELDS}
    row |= _texts(row, "created_at", "build_started_at", "build_finished_at")
    row["error"] = None if version.error is None else asdict(version.error)
    return row


def stored_answer(key: RequestKey, row: Row) -> StoredAnswer:
    """The answer of a row."""
    told = row["answer"]
    answer = Answer(
        function=None if told["function"] is None else function(told["function"]),
        version=None if told["version"] is None else version(told["version"]),
        created=told["created"],
        fenced=told["fenced"],
    )
    return StoredAnswer(key, row["fingerprint"], answer, row["revision"], row["created_at"])


def answer_row(stored: StoredAnswer) -> dict[str, Any]:
    """The answer as a JSON object with the columns of its row, less the revision."""
    answer = stored.answer
    told = {
        "function": None if answer.function is None else function_row(answer.function),
        "version": None if answer.version is None else version_row(answer.version),
        "created": answer.created,
        "fenced": answer.fenced,
    }
    return {
        **asdict(stored.key),
        "fingerprint": "\\x" + stored.fingerprint.hex(),
        "answer": told,
        "created_at": stored.created_at.isoformat(),
    }


def _field(row: Row, name: str) -> Any:
    return row.get(name, _NEWER_FIELDS[name]) if name in _NEWER_FIELDS else row[name]


def _times(row: Row, *names: str) -> dict[str, Any]:
    return {name: _time(row[name]) for name in names}


def _time(value: datetime | str | None) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _texts(row: Row, *names: str) -> dict[str, Any]:
    return {name: None if row[name] is None else row[name].isoformat() for name in names}


def _configuration(told: Mapping[str, Any]) -> Configuration:
    timeout = told["timeout_sec"]
    plain = {key: value for key, value in told.items() if key != "timeout_sec"}
    plain |= {
        "timeout": None if timeout is None else timedelta(seconds=timeout),
        "replicas": Replicas(**told["replicas"]),
        "access": Access(told["access"]),
        "secret_env": {name: _secret(secret) for name, secret in told["secret_env"].items()},
    }
    return Configuration(**plain)


def _configuration_object(configuration: Configuration) -> dict[str, Any]:
    told = {field.name: getattr(configuration, field.name) for field in fields(Configuration)}
    timeout = told.pop("timeout")
    told["timeout_sec"] = None if timeout is None else int(timeout.total_seconds())
    told["replicas"] = asdict(configuration.replicas)
    told["secret_env"] = {name: _secret_object(secret) for name, secret in configuration.secret_env.items()}
    return told


def _secret(told: Mapping[str, str]) -> Secret:
    return Secret(told["digest"], told["key_id"], base64.b64decode(told["sealed"]))


def _secret_object(secret: Secret) -> dict[str, str]:
    sealed = base64.b64encode(secret.sealed).decode()
    return {"digest": secret.digest, "key_id": secret.key_id, "sealed": sealed}
