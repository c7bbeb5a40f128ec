"""Lines belong to the call that printed them; they are bounded, and nobody waits for their reader."""

import json
import time

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client
from runtimes.contract.instances import Instances, eventually


def own_lines(client: Client) -> list[str]:
    """Texts of the lines that belong to no call and are here."""
    client.ping()
    frames = [frame for frame in client.pending() if frame.kind == protocol.LOG and frame.call_id == 0]
    return [line["text"] for frame in frames for line in frame.json()]


def test_a_line_says_when_where_and_what(instances: Instances) -> None:
    with instances.client("print") as client:
        before = time.time_ns() // 1_000_000
        answer = client.call({"do": "lines", "lines": ["first", "", "漢字 😀"]})
        assert answer.lines() == ["first", "", "漢字 😀"]
        for line in answer.logs:
            assert (line["stream"], line["level"]) == ("stdout", "info")
            assert before <= line["ts"] <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("name", ["print", "async_print"])
def test_calls_that_print_at_once_keep_their_lines(instances: Instances, name: str) -> None:
    with instances.client(name) as client:
        calls = {client.begin(json.dumps({"do": "together", "name": who}).encode()): who for who in ("a", "b")}
        for call_id, who in calls.items():
            assert client.answer(call_id).lines() == [f"{who} {number}" for number in range(50)]


def test_lines_of_start_up_go_to_the_runtime_manager_alone(instances: Instances) -> None:
    instance = instances.fresh("print")
    with Client(instance.path) as gateway, Client(instance.path, role="runtime-manager") as manager:
        found: list[str] = []
        while len(found) < 2:
            frame = manager.wait(lambda one: one.kind == protocol.LOG and one.call_id == 0)
            found += [line["text"] for line in frame.json()]
        assert found == ["at start", "error at start"]
        assert own_lines(gateway) == []


def test_what_is_printed_after_the_call_belongs_to_nobody(instances: Instances) -> None:
    instance = instances.fresh("print")
    with Client(instance.path, role="runtime-manager") as manager, Client(instance.path) as client:
        assert client.call({"do": "later", "name": "x"}).lines() == []
        client.call({"do": "go"})
        eventually(lambda: "later of x" in own_lines(manager))
        assert own_lines(client) == []


def test_lines_of_a_running_call_are_seen_before_it_ends(instances: Instances) -> None:
    with instances.client("print") as client:
        call_id = client.begin(b'{"do": "slowly"}')
        log = client.wait(lambda frame: frame.call_id == call_id and frame.kind == protocol.LOG)
        assert [line["text"] for line in log.json()] == ["first"]
        client.call({"do": "go"})
        assert client.answer(call_id).lines() == ["second"]


@pytest.mark.parametrize("size", [64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 200_000])
def test_a_long_line_is_split(instances: Instances, size: int) -> None:
    with instances.client("print") as client:
        lines = client.call({"do": "long", "size": size}).lines()
        assert "".join(lines) == "x" * size
        assert [len(line) for line in lines[:-1]] == [64 * 1024] * ((size - 1) // (64 * 1024))
        assert 0 < len(lines[-1]) <= 64 * 1024


def test_a_call_has_one_mebibyte_of_lines_and_the_rest_is_counted(instances: Instances) -> None:
    with instances.client("print") as client:
        answer = client.call({"do": "much", "lines": 1500, "size": 1024})
        assert answer.status == 200
        kept = 1024 * 1024 // 1023
        assert len(answer.logs) == kept + 1
        assert answer.logs[-1]["text"] == f"{1500 - kept} lines dropped"


def test_a_reader_that_reads_nothing_costs_lines_and_not_the_call(instances: Instances) -> None:
    """Every line is either here or counted, and the handler was never held up."""
    instance = instances.fresh("print", concurrency=32)
    with Client(instance.path, receive_buffer=4096) as slow, Client(instance.path) as other:
        calls = [slow.begin(b'{"do": "much", "lines": 3500, "size": 256}') for _ in range(8)]
        watched = other.call({"do": "lines", "lines": ["not held up"]})
        assert watched.lines() == ["not held up"]
        eventually(lambda: other.call({"do": "count"}).json()["done"] == 8)
        for call_id in calls:
            answer = slow.answer(call_id)
            assert answer.status == 200
            lines = answer.lines()
            dropped = int(lines.pop().split()[0]) if lines and lines[-1].endswith(" lines dropped") else 0
            assert len(lines) + dropped == 3500


def test_no_log_frame_is_larger_than_a_head(instances: Instances) -> None:
    with instances.client("print") as client:
        call_id = client.begin(b'{"do": "much", "lines": 60, "size": 16384}')
        sizes = []
        while (frame := client.wait(lambda one: one.call_id == call_id)).kind == protocol.LOG:
            sizes.append(len(frame.payload))
        assert max(sizes) <= 512 * 1024
        assert sum(sizes) > 60 * 16_000
