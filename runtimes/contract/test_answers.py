"""What a handler may return, and what becomes of it."""

from typing import Any

import pytest

from runtimes.contract import recorded
from runtimes.contract.instances import Instances

VECTORS = recorded.load("answers")


@pytest.mark.fault(19)
@pytest.mark.parametrize("name", ["answers", "async_answers"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["case"])
def test_answer_vectors(instances: Instances, name: str, vector: dict[str, Any]) -> None:
    with instances.client(name) as client:
        answer = client.call({"case": vector["case"]})
    assert answer.status == vector["status"]
    if "error_contains" in vector:
        error = answer.json()
        assert error["code"] == "HANDLER_ERROR"
        assert vector["error_contains"] in error["error"]
        return
    assert answer.header("content-type") == vector.get("content_type")
    if "json" in vector:
        assert answer.json() == vector["json"]
    if "body_base64" in vector:
        assert answer.body == recorded.body(vector)
    if "body" in vector:
        expected = vector["body"]
        assert answer.body.decode() == (expected[instances.runtime.name] if isinstance(expected, dict) else expected)
    if "headers" in vector:
        assert [list(pair) for pair in answer.headers] == vector["headers"]


@pytest.mark.fault(20)
def test_headers_for_one_hop_stay_and_duplicates_are_kept(instances: Instances) -> None:
    with instances.client("answers") as client:
        hop = client.call({"case": "response_hop_by_hop"})
        assert [name for name, _ in hop.headers] == ["X-Kept", "content-type"]
        cookies = client.call({"case": "response_cookies"})
        assert [value for name, value in cookies.headers if name == "Set-Cookie"] == ["a=1", "b=2"]


@pytest.mark.parametrize("name", ["answers", "async_answers"])
def test_a_large_answer_comes_whole(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"case": "large"})
        assert answer.body == b"x" * (3 * 1024 * 1024 + 7)
        assert answer.cut is None


@pytest.mark.parametrize("name", ["generator", "async_generator"])
def test_a_generator_function_streams(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        answer = client.call({"count": 3})
        assert answer.body == b"line 0\nline 1\nline 2\n"
        assert answer.header("content-type") == "text/plain; charset=utf-8"
        assert client.call({"count": 0}).body == b""


def test_the_time_in_the_handler_is_told(instances: Instances) -> None:
    with instances.client("slow") as client:
        answer = client.call({"do": "sleep", "seconds": 0.05})
        assert 50 <= answer.head["handler_ms"] < 5_000
