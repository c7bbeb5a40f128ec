"""Log lines."""

from __future__ import annotations

import json
import logging as std
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from sless_platform import logging, tracing
from sless_platform.logging import REDACTED, bind, bound, configure, get_logger, scrub


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = std.getLogger()
    handlers, level, config = list(root.handlers), root.level, structlog.get_config()
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_one_json_object_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    get_logger("mail.box").info("letter stored", size=3, to=["a", "b"], when=object)
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "letter stored",
        "level": "info",
        "logger": "mail.box",
        "service": "mail",
        "size": 3,
        "to": ["a", "b"],
        "when": "<class 'object'>",
    }


def test_lines_of_libraries_come_out_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    std.getLogger("asyncpg").warning("slow %s", "query", extra={"password": "hunter2", "rows": 3})
    (line,) = lines(capsys)
    assert (line["event"], line["logger"], line["level"]) == ("slow query", "asyncpg", "warning")
    assert (line["rows"], line["password"]) == (3, REDACTED)


@pytest.mark.parametrize(("level", "expected"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_is_a_floor(level: str, expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", level, json=True)
    log = get_logger("mail")
    log.debug("d")
    log.info("i")
    log.warning("w")
    assert len(lines(capsys)) == expected


@pytest.mark.parametrize("json_lines", [True, False])
def test_a_traceback_is_part_of_its_line(json_lines: bool, capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=json_lines)
    try:
        raise RuntimeError("broken: pg://me:hunter2@host/db")  # secret-scan: allow
    except RuntimeError:
        get_logger("mail").exception("it failed")
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "RuntimeError: broken" in text
    assert "hunter2" not in text
    assert (text.count("\n") == 1) is json_lines


def test_a_terminals_line_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=False)
    get_logger("mail").info("letter stored", size=3, token="hunter2")
    text = capsys.readouterr().err
    assert "letter stored" in text
    assert "size=3" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "key",
    [
        "password", "passwd", "PGPASSWORD", "passphrase", "secret", "client_secret", "token", "access_token", "authorization",
        "Authorization", "dsn", "POSTGRES_DSN", "api_key", "apikey", "cookie", "set-cookie", "private_key", "identity_key",
        "credentials", "key_pem",
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_key_at_any_depth(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    get_logger("mail").info("x", **{key: "hunter2"}, deep={"list": [{key: "hunter2"}]}, pair=({key: b"hunter2"},))
    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert text.count(REDACTED) == 3


@pytest.mark.parametrize("key", ["key", "object_key", "subject", "passed", "path"])
def test_plain_keys_keep_their_values(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    get_logger("mail").info("x", **{key: "visible"})
    assert lines(capsys)[0][key] == "visible"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at postgresql://me:hunter2@db:5432/x?y=1", f"at postgresql://me:{REDACTED}@db:5432/x?y=1"),
        (
            "amqps://u:p%40ss@host and http://a:b@c",  # secret-scan: allow
            f"amqps://u:{REDACTED}@host and http://a:{REDACTED}@c",
        ),  # secret-scan: allow
        ("http://host:80/path is no password", "http://host:80/path is no password"),
        ("Authorization: Bearer abcdefghijkl", f"Authorization: Bearer {REDACTED}"),
        ("authorization: bearer abcdefghijkl", f"authorization: bearer {REDACTED}"),
        ("a bearer of news", "a bearer of news"),
        ("token eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2ln!", f"token {REDACTED}!"),  # secret-scan: allow
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_in_texts_are_taken_out(text: str, expected: str) -> None:
    assert scrub(text) == expected


def test_what_is_bound_is_on_every_line_of_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    bind(request_id="r-1")
    get_logger("a").info("x")
    std.getLogger("b").info("y")
    assert [line["request_id"] for line in lines(capsys)] == ["r-1", "r-1"]
    assert bound("request_id") == "r-1"
    assert bound("unheard_of") is None


def test_a_line_within_a_trace_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail", json=True)
    with tracing.within(tracing.Trace(f"00-{0xABC:032x}-{0xDEF:016x}-01")):
        get_logger("mail").info("inside")
    get_logger("mail").info("outside")
    inside, outside = lines(capsys)
    assert (inside["trace_id"], inside["span_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert "trace_id" not in outside


def test_configuring_again_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    configure("first", json=True)
    configure("second", json=True)
    get_logger("x").info("once")
    assert [line["service"] for line in lines(capsys)] == ["second"]


def test_a_pipe_gets_json_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    configure("mail")
    get_logger("x").info("once")
    assert lines(capsys)[0]["event"] == "once"


def test_redaction_goes_deep_but_not_for_ever() -> None:
    nested: dict[str, Any] = {}
    nested["self"] = nested
    assert logging.redact(None, "", {"event": nested})["event"]["self"]["self"]
