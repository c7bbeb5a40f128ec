"""What resources look like to clients."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_contracts import catalog
from sless_gateway.adapters import convert
from sless_gateway.domain import FunctionKey, Kind
from sless_gateway.http_api import shapes
from sless_gateway.http_api.forms import FunctionForm, config_of, form_of
from sless_gateway.http_api.shapes import Shapes, moment

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def stored(kind: int = pb.FUNCTION_KIND_FUNCTION, **fields: Any) -> pb.Function:
    """A function as the registry has it."""
    function = pb.Function(
        uid="0123456789abcdef",
        namespace="sless-ffd1f598c169b0ae",
        name="hello",
        kind=pb.FunctionKind.ValueType(kind),
        runtime="python3.11",
        entrypoint="handler.handle",
        memory_mb=128,
        env_vars={"K": "V"},
        secret_env={"S": pb.SecretValue(sha256="ab")},
        replicas=pb.Replicas(min=0, max=10, concurrency=16),
        access=pb.ACCESS_PUBLIC,
        phase=pb.PHASE_READY,
        generation=7,
        observed_generation=7,
        etag="01234567-7",
        **fields,
    )
    function.created_at.FromDatetime(MOMENT)
    function.timeout.FromTimedelta(timedelta(seconds=30))
    return function


def shown(message: pb.Function) -> dict[str, Any]:
    shape = Shapes("https://x.test").function(convert.function(message))
    encoded: dict[str, Any] = json.loads(msgspec.json.encode(shape))
    return encoded


def test_a_function_has_the_fields_of_the_api_in_their_order() -> None:
    assert list(shown(stored())) == [
        "name", "namespace", "kind", "display_name", "description", "runtime", "entrypoint", "memory_mb",
        "timeout_sec", "env_vars", "replicas", "labels", "access", "idempotent", "secret_env", "status", "phase",
        "message", "generation", "observed_generation", "active_version", "image_ref", "url", "invoke_url",
        "last_built_at", "created_at", "updated_at",
    ]  # fmt: skip


def test_a_function_is_shown_as_it_is() -> None:
    function = shown(stored(active_version=3, image_ref="r@sha256:1"))

    assert function["kind"] == "function"
    assert function["replicas"] == {"min": 0, "max": 10, "concurrency": 16}
    assert function["secret_env"] == {"S": {"sha256": "ab"}}
    assert (function["status"], function["phase"]) == ("Ready", "Ready")
    assert (function["active_version"], function["image_ref"], function["timeout_sec"]) == (3, "r@sha256:1", 30)
    assert function["access"] == "public"


def test_what_is_absent_is_null() -> None:
    function = stored()
    function.ClearField("timeout")
    shape = shown(function)

    for name in ("timeout_sec", "active_version", "image_ref", "last_built_at", "updated_at", "url"):
        assert shape[name] is None, name


def test_nothing_exposes_a_function_and_a_service_has_its_url() -> None:
    function, service = shown(stored()), shown(stored(pb.FUNCTION_KIND_SERVICE))

    base = "https://x.test/v1/namespaces/sless-ffd1f598c169b0ae/functions/hello"
    assert (function["url"], function["invoke_url"]) == (None, f"{base}/invoke")
    url = "https://x.test/fn/sless-ffd1f598c169b0ae/hello"
    assert (service["url"], service["invoke_url"]) == (url, url)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (MOMENT, "2026-01-02T03:04:05.678Z"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3))), "2026-01-02T00:00:00.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds(value: datetime | None, text: str | None) -> None:
    assert moment(value) == text


def test_a_version_has_the_fields_of_the_api_in_their_order() -> None:
    message = pb.Version(
        uid="u" * 32,
        version=3,
        state=pb.VERSION_STATE_FAILED,
        code_sha256="ab",
        size_bytes=812,
        message="log's end",
        error=pb.BuildError(reason="SYNTAX_ERROR", message="invalid syntax", file="handler.py", line=3),
        created_by="sub",
    )
    message.build_started_at.FromDatetime(MOMENT)

    shape = json.loads(msgspec.json.encode(shapes.version(convert.version(message))))

    assert shape == {
        "version": 3,
        "state": "Failed",
        "active": False,
        "code_sha256": "ab",
        "size_bytes": 812,
        "image_ref": None,
        "message": "log's end",
        "error": {
            "reason": "SYNTAX_ERROR",
            "message": "invalid syntax",
            "file": "handler.py",
            "line": 3,
            "package": None,
        },
        "created_by": "sub",
        "created_at": None,
        "build": {"started_at": "2026-01-02T03:04:05.678Z", "finished_at": None, "cached": False},
    }
    assert list(shape)[:4] == ["version", "state", "active", "code_sha256"]


@pytest.mark.parametrize(
    ("enum", "prefix", "shown_by"),
    [
        (pb.Phase, "PHASE_", convert.PHASES),
        (pb.VersionState, "VERSION_STATE_", convert.STATES),
        (pb.Access, "ACCESS_", convert.ACCESSES),
        (pb.FunctionKind, "FUNCTION_KIND_", convert.KINDS),
    ],
)
def test_every_value_of_the_contracts_has_a_name(enum: Any, prefix: str, shown_by: dict[int, Any]) -> None:
    names = {number: name.removeprefix(prefix) for name, number in enum.items() if not name.endswith("_UNSPECIFIED")}

    assert {number: shown_by[number].value.upper() for number in names} == names


@pytest.mark.parametrize("kind", Kind)
def test_a_configuration_survives_the_way_to_the_registry_and_back(kind: Kind) -> None:
    form = form_of(
        {
            "runtime": "python3.11",
            "entrypoint": "a.b",
            "display_name": "Ä 漢字",
            "memory_mb": 512,
            "timeout_sec": 60,
            "env_vars": {"A": "1"},
            "replicas": {"min": 1, "max": 2, "concurrency": 3},
            "labels": {"l": "1"},
            "access": "authenticated",
            "idempotent": True,
            "secret_env": {"S": {"sha256": "ab"}},
        },
        FunctionForm,
    )
    config = config_of(form, kind)
    key = FunctionKey("sless-ffd1f598c169b0ae", "hello", kind)
    message = convert.function_message(key, config)
    message.phase = pb.PHASE_PENDING

    assert convert.function(message).config == config
    assert convert.function(message).key == key


def test_a_secrets_new_value_goes_to_the_registry_alone() -> None:
    config = config_of(
        form_of({"runtime": "r", "entrypoint": "a.b", "secret_env": {"S": "v"}}, FunctionForm), Kind.SERVICE
    )
    message = convert.function_message(FunctionKey("n", "x", Kind.SERVICE), config)

    assert message.secret_env["S"].value == "v"
    assert not message.HasField("timeout")


@pytest.mark.fault(34)
def test_kinds_are_those_of_the_catalogue() -> None:
    assert {kind.value for kind in Kind} == set(catalog.DEFAULTS)
