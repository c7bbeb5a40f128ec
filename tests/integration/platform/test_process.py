"""A service's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import IO

import pytest
from sless_platform.logging import REDACTED
from sless_platform.process import notify_ready

SERVICE = """
import asyncio, sys
from pydantic import Field, SecretStr
from sless_platform import errors, process, settings

class MailSettings(settings.Settings):
    dsn: SecretStr = Field(validation_alias="MAIL_DSN", description="where letters are kept")
    ready_fd: int | None = Field(None, validation_alias="READY_FD", description="who waits")

async def serve(loaded):
    print(type(asyncio.get_running_loop()).__module__, flush=True)
    if loaded.dsn.get_secret_value() == "old":
        raise errors.FailedPrecondition("the schema is too old: run `migrate`")
    async with process.stop_signals() as stop:
        process.notify_ready(loaded.ready_fd)
        await stop.wait()
    print("drained", flush=True)

process.run_service(MailSettings, serve)
"""


def start(**environment: str) -> tuple[subprocess.Popen[str], str]:
    """The service, and what it said of its readiness before it went on or ended."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        env={"READY_FD": str(write), **environment},
        pass_fds=(write,),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    with os.fdopen(read) as ready:
        return process, ready.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_says_that_it_is_ready_and_drains_on_a_signal(number: signal.Signals) -> None:
    process, ready = start(MAIL_DSN="good")
    assert ready == "READY\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out.splitlines(), err, process.returncode) == (["uvloop", "drained"], "", 0)


def test_settings_that_cannot_be_used_end_the_process_with_sentences() -> None:
    process, ready = start()
    out, err = process.communicate(timeout=30)
    assert ready == ""
    assert (out, err, process.returncode) == ("", "MAIL_DSN is not set (where letters are kept)\n", 78)


def test_what_an_operator_can_mend_ends_the_process_without_a_traceback() -> None:
    process, ready = start(MAIL_DSN="old")
    assert ready == ""
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("uvloop\n", "the schema is too old: run `migrate`\n", 1)


def test_readiness_is_told_once_and_the_descriptor_closed() -> None:
    read, write = os.pipe()
    notify_ready(write)
    reader: IO[str] = os.fdopen(read)
    with reader:
        assert reader.read() == "READY\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write)


def test_nobody_waiting_is_no_fault() -> None:
    notify_ready(None)
    read, write = os.pipe()
    os.close(read)
    notify_ready(write)


def test_a_point_kills_the_process_without_any_farewell() -> None:
    program = """
import atexit
from sless_platform import faults
atexit.register(print, "farewell")
faults.configure("x=kill")
faults.fault_point("x")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGKILL, "", "")


def test_a_program_that_configures_nothing_writes_nothing_to_stdout() -> None:
    program = """
from sless_platform.logging import get_logger
log = get_logger("x")
log.info("quiet")
log.warning("loud", token="hunter2")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == ""
    assert ended.stderr.strip() == f"event='loud' token='{REDACTED}'"
