"""Whatever a caller sends: at worst its own connection ends."""

import contextlib
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.contract import client as protocol
from runtimes.contract import recorded
from runtimes.contract.client import Client
from runtimes.contract.instances import Instances

VECTORS = recorded.load("caller")
FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BOTH = pytest.mark.parametrize("name", ["echo", "async_echo"])


@BOTH
@pytest.mark.parametrize("vector", VECTORS["exchanges"], ids=lambda vector: vector["name"])
def test_recorded_exchanges(instances: Instances, name: str, vector: dict[str, Any]) -> None:
    with instances.client(name, greet=False) as client:
        client.send_raw(recorded.raw(vector["send"]))
        found = []
        for expected in vector["expect"]:
            frame = client.wait(lambda _: True)
            seen: dict[str, Any] = {"type": KINDS[frame.kind], "call_id": frame.call_id}
            if frame.kind == protocol.REPLY:
                seen |= {key: frame.head()[key] for key in ("end", "status")}
            if frame.kind == protocol.PONG:
                seen["payload"] = frame.payload.hex()
            if frame.kind == protocol.GOAWAY:
                seen["reason"] = frame.json()["reason"]
            found.append(seen)
            assert expected["type"] in KINDS.values()
        key = lambda frame: (frame["type"], frame["call_id"])  # noqa: E731
        assert sorted(found, key=key) == sorted(vector["expect"], key=key)


KINDS = {
    getattr(protocol, kind): kind
    for kind in ("HELLO", "GOAWAY", "CALL", "REPLY", "BODY", "END", "LOG", "CANCEL", "CREDIT", "DRAIN", "PING", "PONG")
}


@BOTH
@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda vector: vector["name"])
def test_a_broken_protocol_ends_that_connection_alone(instances: Instances, name: str, vector: dict[str, Any]) -> None:
    with instances.client(name) as other, instances.client(name, greet=False) as client:
        held = other.begin(b'{"n"', end=False)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send_raw(recorded.raw(vector["bytes"]))
        frames = client.until_closed()
        assert frames[-1].kind == protocol.GOAWAY
        assert frames[-1].json()["reason"] == "PROTOCOL_ERROR"
        assert frames[-1].json()["message"]
        other.send(protocol.BODY, held, b": 5}")
        other.send(protocol.END, held)
        assert other.answer(held).json()["event"]["n"] == 5


@BOTH
def test_bytes_that_come_one_by_one_are_the_same_frames(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        for byte in protocol.call_frame(77, b'{"n": 1}'):
            client.send_raw(bytes([byte]))
        assert client.answer(77).json()["event"]["n"] == 1


def frames() -> st.SearchStrategy[bytes]:
    """Frames that are right in form and often wrong in order."""
    head = st.fixed_dictionaries({}, optional={"deadline_ms": st.integers(-5, 5), "end": st.booleans()})
    payload = st.one_of(st.binary(max_size=40), st.just(b""), st.binary(min_size=8, max_size=8))
    return st.one_of(
        st.builds(protocol.frame, st.integers(0, 14), st.integers(0, 3), payload),
        st.builds(
            lambda call_id, body, head: protocol.call_frame(call_id, body, **head), st.integers(0, 3), payload, head
        ),
        st.builds(
            protocol.frame, st.just(protocol.HELLO), st.just(0), st.just(b'{"protocol": [1], "role": "gateway"}')
        ),
    )


def still_alive(instances: Instances, name: str, data: bytes) -> None:
    """Send it on a connection of its own; the instance goes on as if nothing had been."""
    instance = instances.shared(name)
    pid = instance.process.pid
    with Client(instance.path, greet=False) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send_raw(data)
            client.socket.shutdown(socket.SHUT_WR)
        client.until_closed()
    with instances.client(name) as other:
        assert other.call({"n": 1}).json()["event"]["n"] == 1
    assert instances.shared(name).process.pid == pid


@BOTH
@FUZZ
@given(data=st.binary(max_size=400))
def test_any_bytes(instances: Instances, name: str, data: bytes) -> None:
    still_alive(instances, name, data)


@BOTH
@FUZZ
@given(data=st.lists(frames(), max_size=8).map(b"".join), greeted=st.booleans())
def test_any_frames_in_any_order(instances: Instances, name: str, data: bytes, greeted: bool) -> None:
    hello = protocol.frame(protocol.HELLO, 0, b'{"protocol": [1], "role": "invoker"}')
    still_alive(instances, name, hello + data if greeted else data)


@BOTH
@FUZZ
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_call_with_some_bytes_changed(instances: Instances, name: str, flips: list[tuple[int, int]]) -> None:
    data = bytearray(recorded.raw(VECTORS["exchanges"][1]["send"]))
    for position, value in flips:
        data[position % len(data)] ^= value
    still_alive(instances, name, bytes(data))
