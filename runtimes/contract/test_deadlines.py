"""Deadlines and CANCEL: who is told what, and what becomes of a handler that cannot be stopped."""

import json
import time

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client
from runtimes.contract.instances import Instances, eventually

BOTH = pytest.mark.parametrize("name", ["slow", "async_slow"])


def begin(client: Client, deadline_ms: int | None = None, **event: object) -> int:
    return client.begin(json.dumps(event).encode(), deadline_ms=deadline_ms)


@BOTH
def test_at_its_deadline_a_call_is_answered_504(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name).path) as client:
        started = time.monotonic()
        answer = client.call({"do": "wait"}, deadline_ms=200, id="inv", request_id="req")
        assert 0.2 <= time.monotonic() - started < 1.2
        assert answer.status == 504
        assert answer.json() == {
            "error": "the function did not answer within 0.2 s",
            "code": "FUNCTION_TIMEOUT",
            "request_id": "req",
        }
        assert answer.head["error"]["type"] == "FUNCTION_TIMEOUT"
        client.call({"do": "release"})


@BOTH
def test_a_call_that_ends_in_time_is_not_touched_by_its_deadline(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"do": "sleep", "seconds": 0.1, "name": "a"}, deadline_ms=10_000)
        assert answer.json() == {"name": "a"}


@BOTH
def test_a_deadline_that_has_passed_already_is_answered_at_once(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name).path) as client:
        assert client.call({"do": "wait"}, deadline_ms=0).status == 504
        client.call({"do": "release"})


def test_a_deadline_counts_while_the_body_is_still_coming(instances: Instances) -> None:
    with instances.client("echo") as client:
        call_id = client.begin(b"", end=False, deadline_ms=100)
        assert client.answer(call_id).status == 504
        client.send(protocol.BODY, call_id, b"late")
        client.send(protocol.END, call_id)
        assert client.call({}).status == 200


@BOTH
def test_cancel_is_answered_with_a_last_frame(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name).path) as client:
        call_id = begin(client, do="wait")
        client.send(protocol.CANCEL, call_id)
        answer = client.answer(call_id)
        assert answer.status == 499
        assert answer.json()["code"] == "CANCELLED"
        client.call({"do": "release"})


def test_cancel_of_a_call_whose_body_is_still_coming(instances: Instances) -> None:
    with instances.client("echo") as client:
        call_id = client.begin(b"{", end=False)
        client.send(protocol.CANCEL, call_id)
        assert client.answer(call_id).status == 499
        assert client.call({}).status == 200


def test_cancel_after_the_answer_changes_nothing(instances: Instances) -> None:
    with instances.client("echo") as client:
        call_id = client.begin(b"{}")
        assert client.answer(call_id).status == 200
        client.send(protocol.CANCEL, call_id)
        client.ping()
        assert [frame for frame in client.pending() if frame.call_id == call_id] == []


@pytest.mark.parametrize("ending", ["cancel", "deadline", "hang_up"])
def test_an_async_handler_is_really_cancelled(instances: Instances, ending: str) -> None:
    instance = instances.fresh("async_slow")
    with Client(instance.path) as watcher:
        with Client(instance.path) as client:
            call_id = begin(client, 100 if ending == "deadline" else None, do="wait", name="it")
            eventually(lambda: watcher.call({"do": "state"}).json()["running"] == 1 or ending == "deadline")
            if ending == "cancel":
                client.send(protocol.CANCEL, call_id)
            if ending != "hang_up":
                client.answer(call_id)
        eventually(lambda: watcher.call({"do": "state"}).json()["cancelled"] == ["it"])
        assert watcher.call({"do": "state"}).json()["running"] == 0


@BOTH
def test_a_cancelled_call_makes_room_when_its_handler_is_done(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name, concurrency=2).path) as client:
        call_id = begin(client, do="wait")
        client.send(protocol.CANCEL, call_id)
        client.answer(call_id)
        client.call({"do": "release"})
        eventually(lambda: client.call({"do": "state"}).json()["running"] == 0)
        assert [client.call({"do": "wait"}).status for _ in range(4)] == [200] * 4


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("slow", {"do": "wait"}),
        ("slow", {"do": "spin", "seconds": 60}),
        ("async_slow", {"do": "stubborn"}),
        ("async_slow", {"do": "block", "seconds": 60}),
    ],
    ids=["waiting thread", "busy thread", "task that will not go", "task that blocks the loop"],
)
def test_a_handler_that_cannot_be_stopped_gets_the_instance_replaced(
    instances: Instances, name: str, event: dict[str, object]
) -> None:
    instance = instances.fresh(name, grace_ms=1_500)
    with Client(instance.path) as client, Client(instance.path, role="invoker") as other:
        answer = client.call(event, deadline_ms=100)
        assert answer.status == 504
        ended = time.monotonic()
        for caller in (client, other):
            caller.wait(lambda frame: frame.kind == protocol.DRAIN)
        assert 0.7 <= time.monotonic() - ended < 5
        instance.wait(10)


def test_the_others_are_finished_before_a_stuck_instance_ends(instances: Instances) -> None:
    instance = instances.fresh("slow", grace_ms=8_000)
    with Client(instance.path) as client, Client(instance.path) as other:
        long = begin(other, do="sleep", seconds=2.0, name="long")
        assert client.call({"do": "wait"}, deadline_ms=100).status == 504
        client.wait(lambda frame: frame.kind == protocol.DRAIN)
        refused = client.call({"do": "state"})
        assert refused.status == 503
        assert refused.head["retry"] is True
        assert other.answer(long).json() == {"name": "long"}


@BOTH
def test_a_stopped_stream_ends_with_the_error(instances: Instances, name: str) -> None:
    stream = {"slow": "stream", "async_slow": "async_stream"}[name]
    with Client(instances.fresh(stream).path) as client:
        call_id = client.begin(json.dumps({"count": 1000, "size": 65536}).encode(), deadline_ms=300)
        answer = client.answer(call_id, credit=False)
        assert answer.status == 200
        assert answer.cut is not None
        assert answer.cut["error"]["type"] == "FUNCTION_TIMEOUT"
        eventually(lambda: client.call({"do": "state"}).json()["closed"] == 1)
