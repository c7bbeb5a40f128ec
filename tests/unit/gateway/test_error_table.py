"""What a client sees of each error: a row a test."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sless.auth.v1 import auth_pb2
from sless.builder.v1 import builder_pb2
from sless.invoker.v1 import invoker_pb2
from sless.registry.v1 import registry_pb2
from sless_gateway import errors
from sless_gateway.errors import MethodNotAllowed, Outcome, outcome
from sless_gateway.http_api.errors import error_answer
from sless_platform.errors import Kind, PlatformError, Unavailable, class_of

ROWS = {
    # auth
    ("UNAUTHENTICATED", "TOKEN_INVALID"): (401, "UNAUTHENTICATED"),
    ("UNAVAILABLE", "ISSUER_UNAVAILABLE"): (503, "UNAVAILABLE"),
    # registry
    ("NOT_FOUND", "NAMESPACE_NOT_FOUND"): (404, "NOT_FOUND"),
    ("NOT_FOUND", "FUNCTION_NOT_FOUND"): (404, "NOT_FOUND"),
    ("NOT_FOUND", "VERSION_NOT_FOUND"): (404, "NOT_FOUND"),
    ("ALREADY_EXISTS", "FUNCTION_EXISTS"): (409, "ALREADY_EXISTS"),
    ("INVALID_ARGUMENT", "INVALID_FIELD"): (400, "INVALID_ARGUMENT"),
    ("ABORTED", "ETAG_MISMATCH"): (412, "PRECONDITION_FAILED"),
    ("FAILED_PRECONDITION", "VERSION_NOT_BUILT"): (409, "CONFLICT"),
    ("RESOURCE_EXHAUSTED", "LIMIT_REACHED"): (409, "CONFLICT"),
    ("FAILED_PRECONDITION", "REQUEST_ID_REUSED"): (409, "CONFLICT"),
    ("UNAVAILABLE", "FENCE_PENDING"): (503, "UNAVAILABLE"),
    ("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID"): (400, "INVALID_ARGUMENT"),
    # builder
    ("INVALID_ARGUMENT", "ARCHIVE_INVALID"): (400, "INVALID_ARGUMENT"),
    ("RESOURCE_EXHAUSTED", "ARCHIVE_TOO_LARGE"): (413, "PAYLOAD_TOO_LARGE"),
    ("INVALID_ARGUMENT", "UPLOAD_MALFORMED"): (400, "INVALID_ARGUMENT"),
    ("NOT_FOUND", "LOG_NOT_FOUND"): (404, "NOT_FOUND"),
    ("NOT_FOUND", "SOURCE_NOT_FOUND"): (404, "NOT_FOUND"),
    # invoker
    ("NOT_FOUND", "DISABLED"): (404, "DISABLED"),
    ("FAILED_PRECONDITION", "DISABLED"): (409, "DISABLED"),
    ("UNAVAILABLE", "NOT_READY"): (503, "NOT_READY"),
    ("DEADLINE_EXCEEDED", "INSTANCE_TIMEOUT"): (504, "INSTANCE_TIMEOUT"),
    ("DEADLINE_EXCEEDED", "FUNCTION_TIMEOUT"): (504, "FUNCTION_TIMEOUT"),
    ("UNAVAILABLE", "FUNCTION_CRASHED"): (502, "FUNCTION_CRASHED"),
    ("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"): (429, "TOO_MANY_REQUESTS"),
    ("UNAUTHENTICATED", "TOKEN_REQUIRED"): (401, "UNAUTHENTICATED"),
    ("INVALID_ARGUMENT", "CALL_MALFORMED"): (400, "INVALID_ARGUMENT"),
    ("UNAVAILABLE", "UNAVAILABLE"): (503, "UNAVAILABLE"),
    # the gateway
    ("NOT_FOUND", "ROUTE_NOT_FOUND"): (404, "NOT_FOUND"),
    ("UNIMPLEMENTED", "METHOD_NOT_ALLOWED"): (405, "METHOD_NOT_ALLOWED"),
    ("UNAUTHENTICATED", "TOKEN_MISSING"): (401, "UNAUTHENTICATED"),
    ("UNAVAILABLE", "AUTHENTICATION_AWAY"): (503, "UNAVAILABLE"),
    ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE"): (413, "PAYLOAD_TOO_LARGE"),
    ("RESOURCE_EXHAUSTED", "URI_TOO_LONG"): (414, "URI_TOO_LONG"),
    ("RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE"): (431, "HEADERS_TOO_LARGE"),
    ("INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE"): (415, "UNSUPPORTED_MEDIA_TYPE"),
    ("FAILED_PRECONDITION", "BUILD_FAILED"): (422, "BUILD_FAILED"),
    ("INTERNAL", "HANDLER_ERROR"): (500, "HANDLER_ERROR"),
    ("UNAVAILABLE", "API_KEYS_UNAVAILABLE"): (503, "UNAVAILABLE"),
    ("NOT_FOUND", "API_KEY_NOT_FOUND"): (404, "NOT_FOUND"),
    # every kind, for reasons that nobody has thought of
    ("INVALID_ARGUMENT", "X"): (400, "INVALID_ARGUMENT"),
    ("OUT_OF_RANGE", "X"): (400, "INVALID_ARGUMENT"),
    ("UNAUTHENTICATED", "X"): (401, "UNAUTHENTICATED"),
    ("PERMISSION_DENIED", "X"): (403, "PERMISSION_DENIED"),
    ("NOT_FOUND", "X"): (404, "NOT_FOUND"),
    ("ALREADY_EXISTS", "X"): (409, "ALREADY_EXISTS"),
    ("FAILED_PRECONDITION", "X"): (409, "CONFLICT"),
    ("ABORTED", "X"): (409, "CONFLICT"),
    ("RESOURCE_EXHAUSTED", "X"): (429, "TOO_MANY_REQUESTS"),
    ("UNAVAILABLE", "X"): (503, "UNAVAILABLE"),
    ("DEADLINE_EXCEEDED", "X"): (503, "UNAVAILABLE"),
    ("CANCELLED", "X"): (503, "UNAVAILABLE"),
    ("UNIMPLEMENTED", "X"): (500, "INTERNAL"),
    ("INTERNAL", "X"): (500, "INTERNAL"),
}


def error(kind: str, reason: str, **options: Any) -> PlatformError:
    return class_of(Kind(kind))("what went wrong", reason=reason, **options)


def body_of(told: PlatformError) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(error_answer(told, "r-1").whole().partition(b"\r\n\r\n")[2])
    return body


def headers_of(told: PlatformError) -> dict[str, str]:
    return dict(error_answer(told, "r-1").fields)


@pytest.mark.parametrize("row", ROWS, ids="-".join)
def test_an_error_has_its_status_and_code(row: tuple[str, str]) -> None:
    assert outcome(error(*row)) == Outcome(*ROWS[row])


def test_every_kind_has_a_row() -> None:
    assert {kind for kind, reason in ROWS if reason == "X"} == {kind.value for kind in Kind}


@pytest.mark.parametrize("api", [auth_pb2, registry_pb2, builder_pb2, invoker_pb2])
def test_every_reason_of_the_contracts_has_a_row(api: Any) -> None:
    names = {name.removeprefix("ERROR_REASON_") for name in api.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118

    assert names <= {reason for _, reason in ROWS}


def test_every_reason_of_the_table_and_of_the_gateway_has_a_row() -> None:
    own = {one.reason for one in vars(errors).values() if isinstance(one, type) and issubclass(one, PlatformError)}
    tabled = {reason for reason, _ in errors.TABLE if reason is not None}

    assert tabled <= {reason for _, reason in ROWS}
    assert {reason for reason in own if reason not in {kind.value for kind in Kind}} <= {reason for _, reason in ROWS}


def test_a_body_says_what_is_wrong_and_where() -> None:
    assert body_of(error("INVALID_ARGUMENT", "INVALID_FIELD", field="memory_mb")) == {
        "error": "what went wrong",
        "code": "INVALID_ARGUMENT",
        "field": "memory_mb",
        "request_id": "r-1",
    }


def test_a_body_has_no_field_when_none_is_at_fault() -> None:
    assert list(body_of(error("NOT_FOUND", "X"))) == ["error", "code", "request_id"]


def test_what_the_transport_says_is_not_shown() -> None:
    told = Unavailable("sless.registry.v1.RegistryService cannot be reached now; try again")

    assert body_of(told)["error"] == "the platform can't do this right now; try again"
    assert body_of(error("UNAVAILABLE", "NOT_READY"))["error"] == "what went wrong"


@pytest.mark.parametrize(
    ("kind", "reason", "waits"),
    [
        ("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", True),
        ("UNAVAILABLE", "NOT_READY", True),
        ("UNAVAILABLE", "FUNCTION_CRASHED", False),
        ("DEADLINE_EXCEEDED", "FUNCTION_TIMEOUT", False),
        ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", False),
    ],
)
def test_a_client_is_told_when_to_come_back_only_where_that_helps(kind: str, reason: str, waits: bool) -> None:
    assert ("Retry-After" in headers_of(error(kind, reason))) is waits


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "1"), (1, "1"), (2.5, "3")])
def test_retry_after_is_whole_seconds_and_never_early(seconds: float, said: str) -> None:
    told = error("UNAVAILABLE", "FENCE_PENDING", retry_after=timedelta(seconds=seconds))

    assert headers_of(told)["Retry-After"] == said


def test_401_says_how_to_authenticate() -> None:
    assert headers_of(error("UNAUTHENTICATED", "TOKEN_MISSING"))["WWW-Authenticate"] == 'Bearer realm="sless"'
    invalid = headers_of(error("UNAUTHENTICATED", "TOKEN_INVALID"))["WWW-Authenticate"]
    assert invalid == 'Bearer realm="sless", error="invalid_token"'


def test_405_says_what_is_allowed() -> None:
    assert headers_of(MethodNotAllowed("no", ["GET", "HEAD"]))["Allow"] == "GET, HEAD"
