"""What a handler sees of a call."""

import json
from datetime import datetime
from typing import Any

import pytest

from runtimes.contract import recorded
from runtimes.contract.instances import Instances

VECTORS = recorded.load("events")
ECHOES = ("echo", "async_echo")


@pytest.mark.fault(32)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_event_vectors(instances: Instances, vector: dict[str, Any]) -> None:
    with instances.client("echo") as client:
        answer = client.call(body=recorded.body(vector), **{"headers": [], **vector.get("head", {})})
        assert answer.status == 200
        assert answer.json()["event"] == vector["event"]


@pytest.mark.fault(18)
@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X-OWN"]
)
def test_every_method_reaches_the_handler(instances: Instances, name: str, method: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"a": 1}, method=method)
        assert answer.status == 200
        assert answer.json()["event"]["_method"] == method


@pytest.mark.parametrize("name", ECHOES)
def test_the_context_carries_what_surrounds_the_call(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        head: dict[str, Any] = {
            "id": "01J0",
            "request_id": "req-1",
            "method": "PUT",
            "path": "/a%20b",
            "query": "x=1&x=2",
            "headers": [["X-A", "1"], ["x-a", "2"]],
            "trigger": "cron",
            "attempt": 3,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "schedule_time": "2024-02-29T12:00:00.000Z",
            "deadline_ms": 60_000,
        }
        context = client.call(**head).json()["context"]
    assert datetime.fromisoformat(context.pop("deadline")).utcoffset() is not None
    assert 0 < context.pop("remaining_ms") <= 60_000
    assert context == {
        "request_id": "req-1",
        "invocation_id": "01J0",
        "namespace": "sless-0123456789abcdef",
        "function": "fixture",
        "version": 7,
        "memory_mb": 256,
        "trigger": "cron",
        "attempt": 3,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "schedule_time": "2024-02-29T12:00:00.000Z",
        "method": "PUT",
        "path": "/a%20b",
        "query": "x=1&x=2",
        "headers": [["X-A", "1"], ["x-a", "2"]],
    }


def test_without_a_limit_there_is_no_deadline(instances: Instances) -> None:
    with instances.client("echo") as client:
        context = client.call({}, id="only-id").json()["context"]
        assert context["deadline"] is None
        assert context["remaining_ms"] is None, "infinity, which JSON has no number for"
        assert context["request_id"] == "only-id"


def test_a_body_in_many_frames_is_one_event(instances: Instances) -> None:
    text = "漢字😀" * 700_000
    with instances.client("echo") as client:
        call_id = client.upload(json.dumps({"text": text}).encode(), headers=[["content-type", "application/json"]])
        assert client.answer(call_id).json()["event"]["text"] == text


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 1024 * 1024, 1024 * 1024 + 1])
def test_bodies_about_the_size_of_a_frame_and_of_the_window(instances: Instances, size: int) -> None:
    with instances.client("async_echo") as client:
        call_id = client.upload(b"x" * size, headers=[["content-type", "text/plain"]])
        assert len(client.answer(call_id).json()["event"]["body"]) == size


def test_the_handler_runs_in_the_folder_of_its_code(instances: Instances) -> None:
    with instances.client("echo") as client:
        assert client.call({}).json()["process"]["cwd"] == str(instances.runtime.fixtures)
