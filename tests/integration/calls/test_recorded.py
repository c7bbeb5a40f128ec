"""Recorded bytes of protocol 1, replayed against the caller's side."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sless_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from sless_calls import CallError, CallHead, Connection, frames

from runtimes.contract import recorded
from tests.support.patience import PATIENT
from tests.support.recorded_instance import recorded_instance

VECTORS = recorded.load("instance")
HELLO = recorded.raw(VECTORS["calls"][0]["before_call"])
SOON = timedelta(seconds=10)


async def outcome(connection: Connection) -> tuple[str, dict[str, Any]]:
    """How a call ends: `answer` or an error's name, and what came."""
    call = connection.call(CallHead(id="c"), b"{}")
    seen: dict[str, Any] = {}
    try:
        async with asyncio.timeout(10):
            seen["status"] = (await call.reply()).status
            seen["body"] = (await call.read()).decode()
    except CallError as error:
        return type(error).__name__, seen
    seen["logs"] = [line.text for line in call.logs]
    return "answer", seen


@pytest.mark.parametrize("vector", VECTORS["calls"], ids=lambda vector: vector["name"])
async def test_recorded_answers(tmp_path: Path, vector: dict[str, Any]) -> None:
    opening, answer = recorded.raw(vector["before_call"]), recorded.raw(vector["after_call"])
    path = tmp_path / "i"
    async with recorded_instance(path, opening, answer, close=vector.get("close", False)) as instance:
        connection = await Connection.open(f"unix:{path}", role="gateway", open_timeout=SOON)
        name, seen = await outcome(connection)
        assert name == vector["outcome"]
        for key in ("status", "body", "logs"):
            if key in vector:
                assert seen[key] == vector[key]
        if name == "ProtocolError":
            assert connection.closed
        if name == "answer":
            assert (connection.in_flight, connection.closed) == (0, False)
        await connection.close()
        assert bytes(instance.heard).startswith(frames.frame(frames.HELLO, 0, b'{"protocol":[1],"role":"gateway"}'))


@pytest.mark.parametrize("vector", VECTORS["openings"], ids=lambda vector: vector["name"])
async def test_recorded_openings(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = tmp_path / "i"
    async with recorded_instance(path, recorded.raw(vector["bytes"])):
        with pytest.raises(getattr(sless_calls, vector["outcome"])):
            await Connection.open(f"unix:{path}", role="gateway", open_timeout=SOON)


async def test_a_failed_load_carries_its_reason_message_and_detail(tmp_path: Path) -> None:
    path = tmp_path / "i"
    async with recorded_instance(path, recorded.raw(VECTORS["openings"][0]["bytes"])):
        with pytest.raises(sless_calls.LoadFailed) as caught:
            await Connection.open(f"unix:{path}", role="runtime-manager", open_timeout=SOON)
    found = caught.value
    assert (found.reason, found.message, found.detail) == ("LOAD_FAILED", "no handler", "Traceback")


KINDS = st.integers(0, 14)
IDS = st.integers(0, 3)
PAYLOADS = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.just(b"\x00\x00\x00\x1e" + b'{"status": 200, "end": false}x'),
    st.just(b"\x00\x00\x00\x1d" + b'{"status": 200, "end": true} x'),
    st.just(b"\x00\x00\x10\x00"),
)


@settings(PATIENT, max_examples=60)
@given(
    noise=st.one_of(
        st.binary(max_size=200),
        st.lists(st.builds(frames.frame, KINDS, IDS, PAYLOADS), max_size=10).map(b"".join),
    )
)
async def test_whatever_an_instance_says_a_call_ends_and_nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("noise") / "i"
    async with recorded_instance(path, HELLO, noise, close=True):
        connection = await Connection.open(f"unix:{path}", role="gateway", open_timeout=SOON)
        name, _ = await outcome(connection)
        assert name in ("answer", "Refused", "AnswerCut", "InstanceCrashed", "ProtocolError")
        assert connection.in_flight == 0
        await connection.close()
