"""An upload whose dependencies are there already, until it serves, beside uv installing the same from its warm cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures.table import Figure, middle
from tests.support.embedded import running_platform

PAIRS = 11
REQUIREMENTS = "requests==2.32.3\nmsgpack==1.1.0\n"
HANDLER = "import requests, msgpack\n\n\ndef handle(event):\n    return {{'version': {number}}}\n"
_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")


def measure() -> Sequence[Figure]:
    """Medians of interleaved pairs: new code each time, the requirements unchanged."""
    index = {name: os.environ[name] for name in _INDEX if name in os.environ}
    ours, theirs = [], []
    with running_platform(**index) as platform, tempfile.TemporaryDirectory() as folder:
        user = platform.user()
        assert user.create("with-packages").status_code == 201
        for number in range(PAIRS + 1):
            code = {"handler.py": HANDLER.format(number=number), "requirements.txt": REQUIREMENTS}
            began = time.perf_counter()
            answer = user.upload("with-packages", code)
            ours.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, answer.text
            theirs.append(_installed_ms(Path(folder), number))
    return [
        Figure(
            "upload → Ready, dependencies cached", middle(ours[1:]), "ms", "`uv pip install` of the same, cache warm",
            middle(theirs[1:]), "≤ 1.5", f"p50 of {PAIRS}, requests and msgpack",
        )
    ]  # fmt: skip


def _installed_ms(folder: Path, number: int) -> float:
    requirements = folder / "requirements.txt"
    requirements.write_text(REQUIREMENTS)
    uv = Path(sys.executable).parent / "uv"
    command = [
        str(uv), "pip", "install", "--quiet", "--python", sys.executable,
        "--cache-dir", str(folder / "cache"), "--target", str(folder / str(number)), "-r", str(requirements),
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True, timeout=120)
    return (time.perf_counter() - began) * 1000
