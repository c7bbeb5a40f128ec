"""Many calls at once, and one too many."""

import json
import threading

import pytest

from runtimes.contract.client import Client
from runtimes.contract.instances import Instances, eventually

BOTH = pytest.mark.parametrize("name", ["slow", "async_slow"])


@BOTH
def test_a_call_too_many_is_refused_at_once(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name, concurrency=3).path) as client:
        calls = [client.begin(b'{"do": "wait"}') for _ in range(3)]
        refused = client.call({"do": "state"})
        assert refused.status == 503
        assert refused.head["retry"] is True
        assert refused.head["end"] is True
        with Client(client.socket.getpeername()) as other:
            assert other.call({"do": "state"}).head["retry"] is True
        assert not [frame for frame in client.pending() if frame.call_id in calls]


@BOTH
def test_there_is_room_as_soon_as_an_answer_is_here(instances: Instances, name: str) -> None:
    """A caller that keeps an instance exactly full is never refused."""
    with Client(instances.fresh(name, concurrency=1).path) as client:
        for _ in range(300):
            assert client.call({"do": "state"}).status == 200


@BOTH
def test_as_many_calls_run_at_once_as_may(instances: Instances, name: str) -> None:
    with Client(instances.fresh(name, concurrency=9).path) as client:
        calls = [client.begin(b'{"do": "wait"}') for _ in range(8)]
        eventually(lambda: client.call({"do": "state"}).json()["running"] == 8)
        assert client.call({"do": "release"}).status == 200
        for call_id in calls:
            assert client.answer(call_id).status == 200


@pytest.mark.fault(31)
@pytest.mark.parametrize("name", ["echo", "async_echo"])
def test_answers_of_many_callers_and_calls_are_not_mixed(instances: Instances, name: str) -> None:
    instance = instances.fresh(name, concurrency=1000)
    wrong: list[object] = []

    def caller(letter: str) -> None:
        with Client(instance.path) as client:
            calls = {client.begin(json.dumps({"n": f"{letter}{i}"}).encode()): f"{letter}{i}" for i in range(100)}
            for call_id, expected in reversed(list(calls.items())):
                answer = client.answer(call_id)
                if answer.status != 200 or answer.json()["event"]["n"] != expected:
                    wrong.append((expected, answer))

    threads = [threading.Thread(target=caller, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


@BOTH
def test_an_idle_instance_serves_again_after_a_burst(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        for _ in range(3):
            calls = [client.begin(b'{"do": "state"}') for _ in range(16)]
            assert {client.answer(call_id).status for call_id in calls} == {200}
