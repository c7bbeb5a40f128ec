"""`sless invoke`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from sless_cli.api import Api
from sless_cli.completing import any_name
from sless_cli.context import Context, load_context
from sless_cli.errors import ExitCode, UsageFault
from sless_cli.output import note
from sless_cli.resources import existing
from sless_cli.transport import Answer

_WAIT_SEC = 3_700.0
_SHOWN_HEADERS = ("content-type", "x-sless-invocation-id", "x-request-id")


@click.command("invoke")
@click.argument("name", shell_complete=any_name)
@click.option("-d", "--data", help="The event: JSON, or @FILE, or - for stdin.")
@click.option("-v", "--verbose", is_flag=True, help="Show headers and where the log is, on stderr.")
def command(*, name: str, data: str | None, verbose: bool) -> int:
    """Call a function or service.

    The answer's body goes to stdout, status and times to stderr. The exit code is 0 only for an answer of 2xx.
    """
    body = _event(data)
    with Api(load_context(os.environ)) as api:
        found = existing(api, name)
        began = time.monotonic()
        answer = api.send(
            "POST",
            f"{found.path}/invoke",
            content=body,
            headers={"Content-Type": "application/json", "Accept": "*/*"},
            timeout=_WAIT_SEC,
        )
        elapsed_ms = (time.monotonic() - began) * 1000
        _report(answer, elapsed_ms)
        if verbose:
            _report_more(answer, found.answer, api.context)
    _write(answer.body)
    return ExitCode.DONE if 200 <= answer.status < 300 else ExitCode.FAILED


def _event(data: str | None) -> bytes:
    if data is None:
        return b""
    if data == "-":
        return sys.stdin.buffer.read()
    if data.startswith("@"):
        try:
            return Path(data[1:]).read_bytes()
        except OSError as error:
            raise UsageFault(f"cannot read {data[1:]}: {error.strerror}") from error
    try:
        json.loads(data)
    except ValueError as error:
        raise UsageFault(f"-d is no JSON ({error}): for other bodies give a file, -d @FILE, or stdin, -d -") from None
    return data.encode()


def _report(answer: Answer, elapsed_ms: float) -> None:
    note(f"{answer.status} in {elapsed_ms:.1f} ms")


def _report_more(answer: Answer, found: Answer, context: Context) -> None:
    for name in _SHOWN_HEADERS:
        if name in answer.headers:
            note(f"{name}: {answer.headers[name]}")
    log = log_file(context.data_dir, found.headers.get("etag", ""))
    if log is not None:
        note(f"log: {log}")


def log_file(data_dir: str, etag: str) -> Path | None:
    """The function's log in the data folder of an embedded platform; None when it is not on this machine.

    Logs are named by the function's uid, with whose first 8 digits its etag begins.
    """
    uid = etag.removeprefix("W/").strip('"').partition("-")[0]
    if not data_dir or not uid.isalnum():
        return None
    return next(iter(sorted((Path(data_dir) / "logs").glob(f"{uid}*.log"))), None)


def _write(body: bytes) -> None:
    sys.stdout.buffer.write(body)
    if body and sys.stdout.isatty() and not body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
