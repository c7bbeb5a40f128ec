"""How an instance ends: SIGTERM, DRAIN, and the grace."""

import json
import time

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client
from runtimes.contract.instances import Instances, eventually

BOTH = pytest.mark.parametrize("name", ["slow", "async_slow"])


def drained(client: Client) -> None:
    client.wait(lambda frame: frame.kind == protocol.DRAIN)


@BOTH
def test_an_idle_instance_ends_at_once(instances: Instances, name: str) -> None:
    instance = instances.fresh(name)
    with Client(instance.path):
        pass
    instance.terminate()
    assert instance.wait() == 0


@BOTH
def test_sigterm_finishes_what_runs_and_takes_nothing_new(instances: Instances, name: str) -> None:
    instance = instances.fresh(name)
    with Client(instance.path) as client, Client(instance.path) as other:
        call_id = client.begin(json.dumps({"do": "sleep", "seconds": 0.5, "name": "a"}).encode())
        eventually(lambda: other.call({"do": "state"}).json()["running"] == 1)
        instance.terminate()
        drained(client)
        drained(other)
        refused = client.call({"do": "state"})
        assert (refused.status, refused.head["retry"]) == (503, True)
        assert client.answer(call_id).json() == {"name": "a"}
        client.send(protocol.DRAIN)
        other.send(protocol.DRAIN)
        client.until_closed()
        other.until_closed()
    assert instance.wait() == 0


@BOTH
def test_a_call_that_crossed_with_drain_is_refused_not_lost(instances: Instances, name: str) -> None:
    """The instance closes only when the caller has said that nothing is under way."""
    instance = instances.fresh(name)
    with Client(instance.path) as client:
        instance.terminate()
        drained(client)
        for _ in range(3):
            assert client.call({"do": "state"}).head["retry"] is True
        assert instance.process.poll() is None
        client.send(protocol.DRAIN)
        goodbye = client.until_closed()
        assert [frame.kind for frame in goodbye] == [protocol.GOAWAY]
    assert instance.wait() == 0


def test_a_draining_instance_turns_new_callers_away(instances: Instances) -> None:
    instance = instances.fresh("slow")
    with Client(instance.path) as client:
        client.ping()
        instance.terminate()
        drained(client)
        with Client(instance.path, greet=False) as late:
            late.send(protocol.HELLO, payload=b'{"protocol": [1], "role": "gateway"}')
            assert late.until_closed()[0].json()["reason"] == "DRAINING"


@BOTH
def test_what_outlasts_the_grace_ends_with_the_instance(instances: Instances, name: str) -> None:
    instance = instances.fresh(name, grace_ms=300)
    with Client(instance.path) as client:
        client.begin(b'{"do": "wait"}')
        eventually(lambda: client.call({"do": "state"}).json()["running"] == 1)
        started = time.monotonic()
        instance.terminate()
        instance.wait()
        assert 0.25 <= time.monotonic() - started < 5


def test_a_callers_drain_ends_its_connection_when_its_calls_are_over(instances: Instances) -> None:
    with Client(instances.fresh("slow").path) as client, instances.client("slow") as other:
        call_id = client.begin(json.dumps({"do": "sleep", "seconds": 0.2, "name": "a"}).encode())
        client.send(protocol.DRAIN)
        assert client.answer(call_id).json() == {"name": "a"}
        assert [frame.kind for frame in client.until_closed()] == [protocol.GOAWAY]
        assert other.call({"do": "state"}).status == 200


def test_a_callers_goaway_ends_its_connection_and_its_calls(instances: Instances) -> None:
    instance = instances.fresh("async_slow")
    with Client(instance.path) as client, Client(instance.path) as other:
        client.begin(b'{"do": "wait", "name": "a"}')
        eventually(lambda: other.call({"do": "state"}).json()["running"] == 1)
        client.send(protocol.GOAWAY, payload=b'{"reason": "X", "message": "", "detail": ""}')
        client.until_closed()
        eventually(lambda: other.call({"do": "state"}).json()["cancelled"] == ["a"])
