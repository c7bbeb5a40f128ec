"""One table from kinds of errors to gRPC statuses, the same over the wire and back."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from sless_platform import errors
from sless_platform.errors import Internal, Kind, PlatformError, Unavailable, class_of
from sless_platform.rpc import status

from tests.support.rpc import METHODS, Echo, EchoStub, drained, everywhere, outcome, running_echo

TABLE = [
    (Kind.INVALID_ARGUMENT, grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidArgument, 3),
    (Kind.NOT_FOUND, grpc.StatusCode.NOT_FOUND, errors.NotFound, 5),
    (Kind.ALREADY_EXISTS, grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExists, 6),
    (Kind.PERMISSION_DENIED, grpc.StatusCode.PERMISSION_DENIED, errors.PermissionDenied, 7),
    (Kind.UNAUTHENTICATED, grpc.StatusCode.UNAUTHENTICATED, errors.Unauthenticated, 16),
    (Kind.FAILED_PRECONDITION, grpc.StatusCode.FAILED_PRECONDITION, errors.FailedPrecondition, 9),
    (Kind.ABORTED, grpc.StatusCode.ABORTED, errors.Aborted, 10),
    (Kind.RESOURCE_EXHAUSTED, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ResourceExhausted, 8),
    (Kind.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, errors.Unavailable, 14),
    (Kind.DEADLINE_EXCEEDED, grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded, 4),
    (Kind.INTERNAL, grpc.StatusCode.INTERNAL, errors.Internal, 13),
    (Kind.UNIMPLEMENTED, grpc.StatusCode.UNIMPLEMENTED, errors.Unimplemented, 12),
    (Kind.CANCELLED, grpc.StatusCode.CANCELLED, errors.Cancelled, 1),
    (Kind.OUT_OF_RANGE, grpc.StatusCode.OUT_OF_RANGE, errors.OutOfRange, 11),
]

ROWS = pytest.mark.parametrize(("kind", "code", "error_class", "number"), TABLE, ids=[row[0].value for row in TABLE])


class WidgetStuck(errors.FailedPrecondition):
    """As a service writes its own."""

    reason = "WIDGET_STUCK"


def test_the_table_has_every_kind() -> None:
    assert {row[0] for row in TABLE} == set(Kind)


@ROWS
def test_every_kind_has_its_status_and_class(
    kind: Kind, code: grpc.StatusCode, error_class: type[PlatformError], number: int
) -> None:
    error = error_class("a sentence")

    assert error_class.kind is kind
    assert class_of(kind) is error_class
    assert status.code_of(error) is code
    assert status.KINDS[code] is kind
    sent = status.to_status(error)
    assert (sent.code, sent.message) == (number, "a sentence")


@ROWS
async def test_every_kind_comes_back_as_its_class_from_every_kind_of_call(
    kind: Kind, code: grpc.StatusCode, error_class: type[PlatformError], number: int, tmp_path: Path
) -> None:
    def act() -> Any:
        raise error_class(
            f"widget 木 is {kind.value} {number}",
            field="widget.size",
            retry_after=timedelta(milliseconds=60_500),
            metadata={"widget": "w-1"},
            reason=f"WIDGET_{code.name}",
        )

    async with running_echo(everywhere(act), tmp_path) as running, running.channel() as channel:
        for method in METHODS:
            with pytest.raises(PlatformError) as raised:
                await outcome(EchoStub(channel.channel), method)
            error = raised.value
            assert type(error) is error_class
            assert error.message == f"widget 木 is {kind.value} {number}"
            assert error.field == "widget.size"
            assert error.retry_after == timedelta(milliseconds=60_500)
            assert error.metadata == {"widget": "w-1"}
            assert error.reason == f"WIDGET_{code.name}"


async def test_a_plain_client_finds_the_standard_details(tmp_path: Path) -> None:
    def act() -> Any:
        raise WidgetStuck("the widget is stuck", field="widget", retry_after=timedelta(seconds=2), metadata={"a": "b"})

    async with (
        running_echo(everywhere(act), tmp_path, error_domain="widgets.test") as running,
        grpc.aio.insecure_channel(running.target) as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await EchoStub(raw).Unary(b"")
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert raised.value.details() == "the widget is stuck"
    sent = Status.FromString(dict(raised.value.trailing_metadata())[status.DETAILS_KEY])
    info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    assert len(sent.details) == 3
    assert sent.details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == ("WIDGET_STUCK", "widgets.test", {"a": "b"})
    assert sent.details[1].Unpack(bad_request)
    assert bad_request.field_violations[0].field == "widget"
    assert sent.details[2].Unpack(retry)
    assert retry.retry_delay.seconds == 2


def test_optional_details_are_sent_only_where_they_apply() -> None:
    sent = status.to_status(errors.NotFound("gone"))
    assert [detail.TypeName() for detail in sent.details] == ["google.rpc.ErrorInfo"]
    back = status.from_status(sent)
    assert (back.field, back.retry_after, back.metadata) == (None, None, {})


@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_exception_is_logged_and_hidden(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def act() -> Any:
        raise RuntimeError('duplicate key value violates unique constraint "widgets_pkey"')

    async with running_echo(everywhere(act), tmp_path) as running, running.channel() as channel:
        with pytest.raises(Internal) as raised:
            await outcome(EchoStub(channel.channel), method, metadata=(("x-request-id", "r-77"),))
    assert raised.value.message == "internal error; request id r-77"
    assert raised.value.__cause__ is not None
    assert "widgets_pkey" not in repr(raised.value.__cause__)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.name == "sless_platform.rpc.guard"
    assert "widgets_pkey" in record.getMessage()
    assert "r-77" in record.getMessage()


async def test_an_unknown_exception_without_a_request_id_gets_one(tmp_path: Path) -> None:
    def act() -> Any:
        raise KeyError("secret")

    async with running_echo(everywhere(act), tmp_path) as running, running.channel() as channel:
        with pytest.raises(Internal) as raised:
            await EchoStub(channel.channel).Unary(b"")
    assert re.fullmatch(r"internal error; request id [0-9a-f]{32}", raised.value.message)


@pytest.mark.parametrize("method", METHODS)
async def test_a_typed_error_is_no_event_for_the_log(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def act() -> Any:
        raise errors.NotFound("no such widget")

    caplog.set_level(logging.INFO)
    async with running_echo(everywhere(act), tmp_path) as running, running.channel() as channel:
        with pytest.raises(errors.NotFound):
            await outcome(EchoStub(channel.channel), method)
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


async def test_an_error_after_some_answers_comes_after_them(tmp_path: Path) -> None:
    async def answers(_request: Any, _context: Any) -> Any:
        yield b"1"
        yield b"2"
        raise errors.Aborted("changed meanwhile")

    seen: list[bytes] = []
    servicer = Echo(Answers=answers, Duplex=answers)
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        stub = EchoStub(channel.channel)
        for stream in (stub.Answers(b""), stub.Duplex()):
            with pytest.raises(errors.Aborted):
                await drained(stream, seen)
    assert seen == [b"1", b"2"] * 2


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (ExceptionGroup("both", [errors.NotFound("first"), errors.Aborted("second")]), errors.NotFound),
        (ExceptionGroup("deep", [ExceptionGroup("in", [Unavailable("first")])]), Unavailable),
        (ExceptionGroup("mixed", [errors.NotFound("first"), ValueError("hidden")]), Internal),
    ],
    ids=["typed", "nested", "mixed"],
)
async def test_a_task_groups_typed_errors_are_told(
    group: ExceptionGroup[Exception], expected: type[PlatformError], tmp_path: Path
) -> None:
    def act() -> Any:
        raise group

    async with running_echo(everywhere(act), tmp_path) as running, running.channel(tries=1) as channel:
        with pytest.raises(expected) as raised:
            await EchoStub(channel.channel).Unary(b"")
    assert "hidden" not in str(raised.value)


async def test_an_over_long_message_is_shortened_and_still_arrives(tmp_path: Path) -> None:
    def act() -> Any:
        raise errors.FailedPrecondition("木" * 50_000 + "the end", metadata={"log": "y" * 50_000})

    async with running_echo(everywhere(act), tmp_path) as running, running.channel() as channel:
        with pytest.raises(errors.FailedPrecondition) as raised:
            await EchoStub(channel.channel).Unary(b"")
    assert raised.value.message.endswith("the end")
    assert "…" in raised.value.message
    assert len(raised.value.message) <= status.MAX_MESSAGE_CHARACTERS
    assert len(raised.value.metadata["log"]) <= status.MAX_METADATA_CHARACTERS


@pytest.mark.parametrize(
    ("code", "expected"), [(grpc.StatusCode.UNKNOWN, Internal), (grpc.StatusCode.DATA_LOSS, Internal)]
)
def test_a_code_that_we_never_send_is_internal(code: grpc.StatusCode, expected: type[PlatformError]) -> None:
    error = status.from_outcome(code, "weird", (), "/a.B/C")
    assert type(error) is expected
    assert error.message == "weird"


def test_details_that_are_not_a_status_are_ignored() -> None:
    error = status.from_outcome(grpc.StatusCode.NOT_FOUND, "gone", ((status.DETAILS_KEY, b"\xff\xff"),), "/a.B/C")
    assert (type(error), error.message) == (errors.NotFound, "gone")


def test_a_code_out_of_every_table_is_internal() -> None:
    assert type(status.from_status(Status(code=99, message="?"))) is Internal
