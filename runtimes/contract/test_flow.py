"""Flow control: one MiB a call and direction, and nobody runs ahead of it."""

import json
import struct

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import MAX_BODY, WINDOW, Client
from runtimes.contract.instances import Instances, eventually

BOTH = pytest.mark.parametrize("name", ["stream", "async_stream"])


def received(client: Client, call_id: int) -> int:
    """Bytes of an answer that are here and were not waited for."""
    return sum(
        len(frame.first_body()) if frame.kind == protocol.REPLY else len(frame.payload)
        for frame in client.pending()
        if frame.call_id == call_id and frame.kind in (protocol.REPLY, protocol.BODY)
    )


def until_quiet(client: Client, call_id: int, amount: int) -> None:
    """Read until `amount` bytes of an answer are here."""

    def enough() -> bool:
        client.ping()
        return received(client, call_id) >= amount

    eventually(enough)


@BOTH
def test_an_answer_waits_for_credit_after_one_mebibyte(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        call_id = client.begin(json.dumps({"do": "whole", "size": 3 * WINDOW}).encode())
        until_quiet(client, call_id, WINDOW)
        client.ping()
        assert received(client, call_id) == WINDOW
        client.send(protocol.CREDIT, call_id, struct.pack(">I", 1000))
        until_quiet(client, call_id, WINDOW + 1000)
        client.ping()
        assert received(client, call_id) == WINDOW + 1000
        client.send(protocol.CREDIT, call_id, struct.pack(">I", 2 * WINDOW - 1000))
        assert len(client.answer(call_id, credit=False).body) == 3 * WINDOW


@BOTH
def test_no_frame_of_a_body_is_larger_than_256_kibibytes(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        call_id = client.begin(json.dumps({"count": 2, "size": 400_000}).encode())
        until_quiet(client, call_id, 800_000)
        sizes = [len(frame.payload) for frame in client.pending() if frame.kind == protocol.BODY]
        assert sizes
        assert max(sizes) <= MAX_BODY
        assert len(client.answer(call_id).body) == 800_000


@BOTH
def test_a_generator_is_not_run_ahead_of_its_reader(instances: Instances, name: str) -> None:
    with instances.client(name) as client, instances.client(name) as other:
        call_id = client.begin(json.dumps({"count": 1000, "size": 64 * 1024}).encode())
        until_quiet(client, call_id, WINDOW)
        made = other.call({"do": "state"}).json()["made"]
        assert made <= 18, "sixteen chunks fill the window, one waits, one may be in the making"
        client.send(protocol.CANCEL, call_id)
        client.answer(call_id, credit=False)
        eventually(lambda: other.call({"do": "state"}).json()["closed"] >= 1)


@BOTH
def test_small_chunks_flow_at_once(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"count": 500, "size": 10})
        assert len(answer.body) == 5000


@BOTH
def test_a_slow_reader_holds_up_nobody_else(instances: Instances, name: str) -> None:
    with instances.client(name) as slow, instances.client(name) as other:
        calls = [slow.begin(json.dumps({"do": "whole", "size": 8 * WINDOW}).encode()) for _ in range(4)]
        for _ in range(20):
            assert other.call({"do": "whole", "size": 10}).body == b"x" * 10
        for call_id in calls:
            assert len(slow.answer(call_id).body) == 8 * WINDOW


def test_the_request_is_granted_credit_as_it_comes(instances: Instances) -> None:
    with instances.client("echo") as client:
        call_id = client.upload(b"x" * (5 * WINDOW), headers=[["content-type", "text/plain"]])
        assert len(client.answer(call_id).json()["event"]["body"]) == 5 * WINDOW


def test_interleaved_bodies_are_not_mixed(instances: Instances) -> None:
    with instances.client("echo") as client:
        calls = {client.begin(end=False, headers=[["content-type", "text/plain"]]): letter for letter in "abcdef"}
        for _ in range(50):
            for call_id, letter in calls.items():
                client.send(protocol.BODY, call_id, letter.encode() * 1000)
        for call_id in calls:
            client.send(protocol.END, call_id)
        for call_id, letter in calls.items():
            assert client.answer(call_id).json()["event"]["body"] == letter * 50_000
