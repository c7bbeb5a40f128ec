"""JSON heads: what goes out is what the reference says, what comes in is checked."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sless_calls import frames, heads
from sless_calls.errors import ProtocolError
from sless_calls.heads import CallHead

from tests.support.patience import PATIENT

TEXT = st.text(max_size=20)


def decoded(data: bytes | bytearray) -> tuple[dict[str, Any], bytes]:
    length, kind, call_id, size = struct.unpack_from(">IBII", data)
    assert (length, kind, call_id) == (len(data) - 4, frames.CALL, 9)
    head: dict[str, Any] = json.loads(data[13 : 13 + size])
    return head, bytes(data[13 + size :])


@PATIENT
@given(
    path=TEXT,
    query=TEXT,
    headers=st.lists(st.tuples(TEXT, TEXT), max_size=5),
    deadline_ms=st.none() | st.integers(0, 10**9),
    body=st.binary(max_size=100),
    end=st.booleans(),
)
def test_a_call_is_one_frame_with_its_head_and_body(
    path: str, query: str, headers: list[tuple[str, str]], deadline_ms: int | None, body: bytes, end: bool
) -> None:
    head = CallHead(id="c", path=path, query=query, headers=headers, deadline_ms=deadline_ms)
    found, rest = decoded(heads.encode_call(9, head, body, end=end))
    assert rest == body
    assert found["end"] is end
    assert found.get("path", "/") == path
    assert found.get("query", "") == query
    assert found.get("headers", []) == [list(pair) for pair in headers]
    assert found.get("deadline_ms") == deadline_ms


def test_header_bytes_that_are_no_utf8_are_replaced() -> None:
    value = b"caf\xe9".decode("utf-8", "surrogateescape")
    found, _ = decoded(heads.encode_call(9, CallHead(id="c", headers=[("x", value)]), b"", end=True))
    assert found["headers"] == [["x", "caf\ufffd"]]


def test_a_head_above_the_greatest_is_refused_here() -> None:
    with pytest.raises(ValueError, match="524288"):
        heads.encode_call(9, CallHead(id="c", headers=[("x", "y" * frames.MAX_HEAD)]), b"", end=True)


def reply(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(head)) + head + body


def test_a_reply_is_decoded_with_its_body() -> None:
    head, body = heads.decode_reply(
        reply(b'{"status": 503, "retry": true, "end": true, "error": {"type": "E", "message": "m"}, "x": 1}', b"b")
    )
    assert (head.status, head.retry, head.end, body) == (503, True, True, b"b")
    assert head.error is not None
    assert head.error.type == "E"


@pytest.mark.parametrize(
    "payload",
    [
        reply(b"{}"),
        reply(b"[]"),
        reply(b'{"status": "200"}'),
        reply(b'{"status": 199}'),
        reply(b'{"status": 600}'),
        reply(b'{"status": 200, "headers": [["a"]]}'),
        reply(b'{"status": 200, "headers": {"a": "b"}}'),
        reply(b'{"status": 200, "handler_ms": "x"}'),
        reply(b"\xff"),
        struct.pack(">I", 3) + b"{}",
        struct.pack(">I", 2**32 - 1) + b"{}",
    ],
)
def test_a_reply_that_is_not_as_the_reference_says_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        heads.decode_reply(payload)
