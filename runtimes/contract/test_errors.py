"""Handlers that fail: the call is lost, the instance is not."""

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client, Closed
from runtimes.contract.instances import Instances

BOTH = pytest.mark.parametrize("name", ["errors", "async_errors"])


@BOTH
@pytest.mark.parametrize(
    ("kind", "error", "type_name"),
    [
        ("value", "ValueError: bad value 😀", "ValueError"),
        ("empty", "KeyError", "KeyError"),
        ("exit", "SystemExit: 3", "SystemExit"),
        ("interrupt", "KeyboardInterrupt", "KeyboardInterrupt"),
        ("base", "BaseException: base", "BaseException"),
        ("generator_exit", "GeneratorExit", "GeneratorExit"),
        ("chained", "RuntimeError: outer", "RuntimeError"),
    ],
)
def test_a_handler_that_raises_costs_one_call(
    instances: Instances, name: str, kind: str, error: str, type_name: str
) -> None:
    with instances.client(name) as client:
        answer = client.call({"kind": kind}, id="inv-1", request_id="req-1")
        assert answer.status == 500
        assert answer.json() == {
            "error": error,
            "code": "HANDLER_ERROR",
            "type": type_name,
            "request_id": "req-1",
        }
        assert answer.header("content-type") == "application/json"
        assert answer.head["error"] == {"type": type_name, "message": error.removeprefix(type_name).removeprefix(": ")}
        assert client.call({"kind": "none"}).body == b"fine"


@BOTH
def test_the_traceback_is_in_the_calls_log_after_what_it_printed(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"kind": "chained"})
        lines = answer.lines()
        assert lines[0] == "about to fail"
        assert any("KeyError: 'inner'" in line for line in lines)
        assert lines[-1] == "RuntimeError: outer"
        assert answer.logs[-1]["stream"] == "stderr"
        assert answer.logs[-1]["level"] == "error"


@BOTH
def test_the_traceback_shows_the_users_frames_alone(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        text = "\n".join(client.call({"kind": "value"}).lines())
        assert "in fail" in text
        assert "sless_runtime" not in text


@BOTH
@pytest.mark.parametrize("kind", ["custom", "recursion", "long", "surrogate"])
def test_errors_that_are_hard_to_show(instances: Instances, name: str, kind: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"kind": kind})
        assert answer.status == 500
        assert answer.json()["code"] == "HANDLER_ERROR"
        assert len(answer.json()["error"]) < 2_100
        assert client.call({"kind": "none"}).status == 200


@BOTH
def test_an_error_after_the_first_chunk_ends_the_body_with_an_error(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"kind": "value", "stream": True})
        assert answer.status == 200
        assert answer.body == b"first"
        assert answer.cut is not None
        assert answer.cut["error"] == {"type": "ValueError", "message": "bad value 😀"}
        assert client.call({"kind": "none"}).status == 200


def test_a_task_of_the_users_that_exits_does_not_end_the_instance(instances: Instances) -> None:
    with instances.client("async_errors") as client:
        assert client.call({"kind": "task_exit"}).status == 200
        assert client.call({"kind": "none"}).status == 200


def test_a_cancellation_of_the_handlers_own_is_its_error(instances: Instances) -> None:
    with instances.client("async_errors") as client:
        answer = client.call({"kind": "cancelled"})
        assert answer.status == 500
        assert answer.json()["type"] == "CancelledError"


def test_a_process_that_dies_closes_the_socket(instances: Instances) -> None:
    instance = instances.fresh("exit")
    with Client(instance.path) as client:
        client.begin(b'{"code": 3}')
        with pytest.raises((Closed, ConnectionResetError)):
            client.wait(lambda frame: frame.kind == protocol.REPLY)
    assert instance.wait() == 3


@pytest.mark.fault(31)
@BOTH
def test_many_failing_calls_among_good_ones_each_get_their_own_status(instances: Instances, name: str) -> None:
    with instances.client(name) as client, instances.client(name) as other:
        for _ in range(5):
            calls = [
                (who, who.begin(b'{"kind": "%s"}' % kind), status)
                for who in (client, other)
                for kind, status in ((b"value", 500), (b"none", 200), (b"exit", 500), (b"none", 200))
            ]
            for who, call_id, status in calls:
                assert who.answer(call_id).status == status
