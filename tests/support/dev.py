"""`sless dev` as a person runs it, for end-to-end tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from tests.support.embedded import HTTP, SLESS

LIMIT_SEC = 60


@dataclass
class Dev:
    """A running `sless dev`. `out` and `err` grow with what it writes."""

    process: subprocess.Popen[str]
    url: str = ""
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    def call(self, path: str = "/", method: str = "GET", **options: object) -> httpx.Response:
        """One request."""
        return HTTP.request(method, self.url + path, **options)  # type: ignore[arg-type]

    def saw(self, text: str, *, times: int = 1, out: bool = False) -> str:
        """Wait until a line that has this text was written so often; the last of them."""
        until = time.monotonic() + LIMIT_SEC
        while time.monotonic() < until:
            found = [line for line in (self.out if out else self.err) if text in line]
            if len(found) >= times:
                return found[times - 1]
            time.sleep(0.01)
        raise AssertionError(f"{text!r} was not written {times} times:\n{''.join(self.out)}\n{''.join(self.err)}")

    def answers(self, text: str) -> httpx.Response:
        """Wait for an answer with this text in it."""
        until = time.monotonic() + LIMIT_SEC
        while time.monotonic() < until:
            answer = self.call()
            if text in answer.text:
                return answer
        raise AssertionError(f"no answer with {text!r}:\n{''.join(self.err)}")

    def interrupt(self) -> int:
        """Ctrl-C; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT_SEC)


@contextlib.contextmanager
def running_dev(folder: Path, *arguments: str, home: Path, **environ: str) -> Iterator[Dev]:
    """`sless dev FOLDER`, ended afterwards."""
    kept = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE") if name in os.environ}
    process = subprocess.Popen(
        # A shell that runs the tests in the background has them ignore interrupts, and what they start as well.
        ["env", "--default-signal=INT", str(SLESS), "dev", str(folder), "--port", "0", *arguments],
        env={**kept, "HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    dev = Dev(process)
    assert process.stdout is not None
    assert process.stderr is not None
    threads = [_reader(process.stdout, dev.out), _reader(process.stderr, dev.err)]
    try:
        dev.url = dev.saw("http://", out=True).strip()
        yield dev
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            process.wait(LIMIT_SEC)
        finally:
            process.kill()
            process.wait()
            for thread in threads:
                thread.join(LIMIT_SEC)
            process.stdout.close()
            process.stderr.close()


def _reader(stream: IO[str], lines: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: lines.extend(stream), daemon=True)
    thread.start()
    return thread


def processes_below(folder: Path) -> list[int]:
    """Processes whose command line or environment names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in words:
                    found.append(int(entry.name))
    return found
