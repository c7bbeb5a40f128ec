"""What reaches a handler and what comes back, through the whole platform."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.embedded import Platform, User, until

EVENT = "def handle(event):\n    return event\n"


@pytest.fixture(scope="module")
def echo(platform: Platform) -> User:
    """Somebody with a service `echo` that answers its event."""
    user = platform.user()
    user.deploy("echo", EVENT)
    return user


@pytest.mark.fault(18)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_every_method_reaches_the_handler(echo: User, method: str) -> None:
    answer = echo.fn("echo", "/sub%20path/x?a=1&a=2&b=", method=method)

    assert answer.status_code == 200
    event = answer.json()
    assert (event["_method"], event["_path"], event["_query"]) == (method, "/sub path/x", {"a": "2", "b": ""})


def test_head_reaches_the_handler_and_has_no_body(echo: User) -> None:
    answer = echo.fn("echo", method="HEAD")

    assert (answer.status_code, answer.content) == (200, b"")


ODD = {
    "long text": {"text": "x" * 2000},
    "null": {"value": None},
    "negative": {"value": -17, "real": -0.5, "large": 2**60},
    "infinity as text": {"value": "Infinity", "other": "NaN"},
    "scripts": {"text": "漢字かな한글", "emoji": "👩‍👩‍👧‍👦🏳️‍🌈", "العربية": "نص"},
    "nested": {"a": [{"b": [[], {}, [None, True, 0]]}]},
    "odd keys": {"": 1, " ": 2, "a.b": 3, "_x": 4},
    "control characters": {"text": "\x00\x01\t\n\r\x7f\u2028"},
}


@pytest.mark.fault(32)
@pytest.mark.parametrize("case", ODD)
def test_odd_events_pass_unchanged(echo: User, case: str) -> None:
    event = ODD[case]

    answer = echo.fn("echo", method="POST", json=event).json()

    assert {
        name: value for name, value in answer.items() if name not in {"_method", "_path", "_query", "_headers"}
    } == event


@pytest.mark.fault(32)
@pytest.mark.parametrize("body", ["[1, 2, null]", "true", "42", "-0.25", '"text"', "null"])
def test_json_that_is_no_object_arrives_as_it_is(echo: User, body: str) -> None:
    answer = echo.fn("echo", method="POST", content=body, headers={"Content-Type": "application/json"})

    if body == '"text"':
        assert answer.text == "text"
    else:
        assert answer.json() == json.loads(body)


def test_duplicate_headers_are_kept_and_hop_by_hop_ones_are_not(user: User) -> None:
    user.deploy(
        "headers",
        """
        def handle(event):
            headers = {'Set-Cookie': ['a=1', 'b=2'], 'Connection': 'x-drop', 'X-Drop': '1', 'Keep-Alive': '5'}
            return {'statusCode': 201, 'headers': headers, 'body': str(sorted(event['_headers']))}
        """,
    )

    answer = user.fn("headers", headers={"Connection": "x-hop", "X-Hop": "1", "X-Kept": "2"})

    assert answer.status_code == 201
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "x-drop" not in answer.headers
    assert "keep-alive" not in answer.headers
    assert "'x-kept'" in answer.text
    assert "'x-hop'" not in answer.text


@pytest.mark.fault(19)
def test_values_that_json_lacks_are_serialised(user: User) -> None:
    user.deploy(
        "values",
        """
        import datetime, decimal, uuid

        def handle(event):
            return {
                'at': datetime.datetime(2026, 1, 2, 3, 4, 5),
                'day': datetime.date(2026, 1, 2),
                'price': decimal.Decimal('1.10'),
                'id': uuid.UUID(int=1),
                'set': {1},
                'bytes': b'ab',
                'nan': float('nan'),
            }
        """,
    )

    assert user.fn("values").json() == {
        "at": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "price": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "set": [1],
        "bytes": "YWI=",
        "nan": None,
    }


def test_a_handler_that_raises_costs_one_500_and_lives_on(user: User, platform: Platform) -> None:
    user.deploy(
        "raises",
        """
        COUNT = [0]

        def handle(event):
            COUNT[0] += 1
            if event.get('bad'):
                raise KeyError('no such thing')
            return COUNT[0]
        """,
    )

    bad = user.fn("raises", method="POST", json={"bad": True})

    assert bad.status_code == 500
    error = bad.json()
    assert (error["code"], error["type"]) == ("HANDLER_ERROR", "KeyError")
    assert error["request_id"] == bad.headers["x-request-id"]
    assert "Traceback" not in bad.text
    assert user.fn("raises").json() == 2
    logs = list(platform.layout.logs.glob("*.log"))
    assert any(
        error["request_id"] in text and "KeyError" in text for text in (log.read_text(errors="replace") for log in logs)
    )


@pytest.mark.fault(31)
def test_many_crashing_calls_are_all_answered_and_others_do_not_notice(user: User, platform: Platform) -> None:
    user.deploy(
        "crash",
        """
        import os

        def handle(event):
            os._exit(3)
        """,
        replicas={"min": 1, "max": 4, "concurrency": 16},
    )
    neighbour = platform.user()
    neighbour.deploy(
        "calm",
        """
        def handle(event):
            return 'calm'
        """,
    )

    def call(number: int) -> tuple[str, int, str]:
        who, name = (neighbour, "calm") if number % 3 == 0 else (user, "crash")
        answer = who.fn(name)
        return name, answer.status_code, answer.headers["content-type"]

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(call, range(110)))

    calm = {answer for answer in answers if answer[0] == "calm"}
    assert {status for _, status, _ in calm} == {200}
    crashed = [answer for answer in answers if answer[0] == "crash"]
    assert {status for _, status, _ in crashed} <= {502, 503, 504}
    assert sum(status == 502 for _, status, _ in crashed) >= 1
    assert all(kind.startswith("application/json") for _, _, kind in crashed)
    assert platform.status()["services"]


def test_a_handler_that_prints_and_dies_says_why_in_its_log(user: User, platform: Platform) -> None:
    user.deploy(
        "dies",
        """
        import os

        def handle(event):
            print('about to die', flush=True)
            os.abort()
        """,
    )

    answer = user.fn("dies")

    assert (answer.status_code, answer.json()["code"]) == (502, "FUNCTION_CRASHED")


@pytest.mark.fault(7)
def test_the_timeout_is_the_functions_own(user: User) -> None:
    user.deploy(
        "slow",
        """
        import time

        def handle(event):
            time.sleep(float(event['sec']))
            return 'done'
        """,
        timeout_sec=2,
    )

    started = time.monotonic()
    cut = user.fn("slow", method="POST", json={"sec": 30})
    took = time.monotonic() - started
    after = user.fn("slow", method="POST", json={"sec": 0})

    assert (cut.status_code, cut.json()["code"]) == (504, "FUNCTION_TIMEOUT")
    assert took < 10
    assert (after.status_code, after.text) == (200, "done")


def test_an_async_handler_is_cancelled_at_its_deadline(user: User) -> None:
    user.deploy(
        "aslow",
        """
        import asyncio
        ENDED = []

        async def handle(event):
            if not event.get('sec'):
                return ENDED
            try:
                await asyncio.sleep(event['sec'])
            finally:
                ENDED.append('cancelled')
        """,
        timeout_sec=1,
    )

    assert user.fn("aslow", method="POST", json={"sec": 30}).status_code == 504
    until(lambda: user.fn("aslow").json() == ["cancelled"] or None, "the handler to be cancelled", 5)


def test_an_async_handler_that_blocks_takes_no_other_call_with_it(user: User) -> None:
    user.deploy(
        "blocks",
        """
        async def handle(event):
            while event.get('block'):
                pass
            return 'fine'
        """,
        timeout_sec=1,
    )

    assert user.fn("blocks", method="POST", json={"block": True}).status_code == 504
    after = user.fn("blocks")

    assert (after.status_code, after.text) == (200, "fine")


def test_an_answer_streams(user: User) -> None:
    user.deploy(
        "stream",
        """
        import time

        def handle(event):
            def parts():
                for number in range(3):
                    yield f'part {number}\\n'
                    time.sleep(0.4)
            return parts()
        """,
    )

    arrivals = []
    with httpx.stream("GET", user.url("stream"), timeout=30) as answer:
        for chunk in answer.iter_text():
            arrivals.append((time.monotonic(), chunk))

    assert "".join(chunk for _, chunk in arrivals) == "part 0\npart 1\npart 2\n"
    assert arrivals[-1][0] - arrivals[0][0] > 0.5


def test_large_bodies_pass_both_ways_and_too_large_ones_are_refused(user: User) -> None:
    user.deploy(
        "large",
        """
        import base64

        def handle(event):
            data = base64.b64decode(event['body']) if event['isBase64Encoded'] else event['body'].encode()
            return data
        """,
        memory_mb=1024,
    )
    body = bytes(range(256)) * (20 * 4096)

    answer = user.fn("large", method="POST", content=body, headers={"Content-Type": "application/octet-stream"})
    assert (answer.status_code, answer.content == body) == (200, True)

    refused = user.fn("large", method="POST", content=b"x" * (33 * 1024 * 1024))
    assert (refused.status_code, refused.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")


def test_an_unknown_function_is_404_in_json(user: User) -> None:
    answer = user.fn("nothing", "/x/y", method="PUT", content=b"x")

    assert answer.status_code == 404
    assert answer.json() == {
        "error": answer.json()["error"],
        "code": "NOT_FOUND",
        "request_id": answer.headers["x-request-id"],
    }
    assert "nothing" in answer.json()["error"]


def test_calls_beyond_one_instances_room_get_more_instances(user: User) -> None:
    user.deploy(
        "wide",
        """
        import os, time

        def handle(event):
            time.sleep(0.3)
            return os.environ['SLESS_INSTANCE']
        """,
        replicas={"min": 0, "max": 3, "concurrency": 2},
    )

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: user.fn("wide"), range(36)))

    assert {answer.status_code for answer in answers} == {200}
    assert 2 <= len({answer.text for answer in answers}) <= 3


def test_a_call_waits_while_its_function_starts(user: User) -> None:
    user.deploy(
        "start",
        """
        import time
        time.sleep(1)

        def handle(event):
            return 'up'
        """,
        "functions",
    )
    until(lambda: user.get("start", "functions")["phase"] == "Ready" or None, "Ready")

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: user.request("POST", "/functions/start/invoke"), range(4)))

    assert {(answer.status_code, answer.text) for answer in answers} == {(200, "up")}
