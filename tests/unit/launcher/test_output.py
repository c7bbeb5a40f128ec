"""What is kept and what is passed on of an instance's output."""

from __future__ import annotations

import json
import socket

from sless_runtime_manager.launcher.client import Client
from sless_runtime_manager.launcher.mounts import _unescape
from sless_runtime_manager.launcher.output import TAIL_BYTES, Output


def test_the_tail_is_the_last_of_both_streams() -> None:
    output = Output(0.0)
    output.take("stdout", b"a" * TAIL_BYTES, 0.0)
    output.take("stderr", b"the end", 0.0)
    assert output.tail == "a" * (TAIL_BYTES - 7) + "the end"


def test_a_character_cut_in_two_is_put_together_again() -> None:
    output = Output(0.0)
    first, second = "grün".encode()[:3], "grün".encode()[3:]
    assert output.take("stdout", first, 0.0) == "gr"
    assert output.take("stderr", b"between", 0.0) == "between"
    assert output.take("stdout", second, 0.0) == "ün"


def test_one_that_prints_too_much_is_passed_on_in_part() -> None:
    output = Output(0.0)
    passed = [output.take("stdout", b"x" * 65536, 0.0) for _ in range(40)]
    assert [text is not None for text in passed] == [True] * 16 + [False] * 24
    assert output.take("stdout", b"y" * 65536, 0.25) == "y" * 65536


def test_a_client_that_does_not_read_is_told_how_much_it_missed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = Client(ours)
        chunk = "z" * 65536
        for _ in range(100):
            client.send_output("i-1", "stdout", chunk, len(chunk))
        client.send({"event": "ended", "instance_id": "i-2"})
        theirs.settimeout(5)
        received = b""
        while client.waits or b"ended" not in received:
            received += theirs.recv(1 << 20)
            client.flush()
        client.send_output("i-1", "stdout", "after", 5)
        received += theirs.recv(1 << 20)
    events = [json.loads(line) for line in received.splitlines()]
    texts = [event for event in events if event["event"] == "output"]
    assert texts[-1] == {
        "event": "output",
        "instance_id": "i-1",
        "stream": "stdout",
        "text": "after",
        "dropped": texts[-1]["dropped"],
    }
    assert sum(len(event["text"]) + event["dropped"] for event in texts) == 100 * 65536 + 5
    assert texts[-1]["dropped"] > 0


def test_a_line_without_end_closes_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = Client(ours)
        for _ in range(32):
            theirs.sendall(b"x" * 65536)
            assert client.receive() == []
            if client.closed:
                break
        assert client.closed


def test_mount_points_with_blanks_are_read() -> None:
    assert _unescape(r"/mnt/a\040b\134c") == r"/mnt/a b\c"
