"""The whole platform for end-to-end tests, started as a person starts it: by `sless up`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from sless_cli.embedded import issuer
from sless_cli.embedded.layout import Layout, layout
from sless_contracts.catalog import namespace_of

Found = TypeVar("Found")

SLESS = Path(sys.executable).parent / "sless"
START_LIMIT_SEC = 120
READY_LIMIT_SEC = 60
HTTP = httpx.Client(timeout=90, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
"""One client for all: making one costs tens of milliseconds. Each request has a connection of its own."""


@dataclass
class Platform:
    """A running `sless up --detach`."""

    home: Path
    data: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands: nothing of this test run's but the path."""
        kept = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE") if name in os.environ}
        return {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", **self.settings}

    @property
    def layout(self) -> Layout:
        """Its folders."""
        return layout(self.data, self.environ)

    def sless(self, *arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs the command line."""
        environ = {**self.environ, **options.pop("environ", {})}
        done = subprocess.run(
            [SLESS, *arguments],
            check=False,
            env=environ,
            text=True,
            capture_output=True,
            timeout=START_LIMIT_SEC,
            **options,
        )
        assert not check or done.returncode == 0, f"sless {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self, *arguments: str) -> None:
        """Starts it."""
        self.sless("up", "--detach", "--port", "0", "--data", str(self.data), *arguments)
        self.endpoint = self.status()["endpoint"]

    def down(self) -> None:
        """Stops it."""
        self.sless("down", "--data", str(self.data))

    def status(self) -> dict[str, Any]:
        """What `sless status` says."""
        found: dict[str, Any] = json.loads(self.sless("status", "--data", str(self.data), "--output", "json").stdout)
        return found

    def pid(self, service: str) -> int:
        """The process of a service."""
        return int(next(entry["pid"] for entry in self.status()["services"] if entry["name"] == service))

    def program_of(self, namespace: str, name: str) -> int:
        """The process that runs this function's code, as the launcher tells it."""
        with socket.socket(socket.AF_UNIX) as launcher:
            launcher.connect(str(self.layout.launcher_socket))
            launcher.sendall(b'{"id": 1, "op": "list"}\n')
            told = json.loads(launcher.makefile("rb").readline())
        for instance in told["result"]["instances"]:
            note = instance["note"]
            if (note["namespace"], note["name"]) == (namespace, name):
                reaper = int(instance["pid"])
                return int(Path(f"/proc/{reaper}/task/{reaper}/children").read_text().split()[0])
        raise AssertionError(f"no instance of {name}")

    def token(self, sub: str) -> str:
        """A token of the embedded issuer."""
        return issuer.load(self.layout.issuer_key).token(sub, timedelta(hours=1), datetime.now(UTC))

    def user(self, sub: str | None = None) -> User:
        """A user of their own."""
        name = sub or f"user-{uuid.uuid4().hex[:12]}"
        return User(self, name, self.token(name))

    def request(self, method: str, path: str, token: str, **options: Any) -> httpx.Response:
        """A request with this token."""
        return HTTP.request(method, self.endpoint + path, headers={"Authorization": f"Bearer {token}"}, **options)

    def log(self) -> str:
        """What the services wrote."""
        return self.layout.platform_log.read_text(errors="replace")


@dataclass
class User:
    """Somebody with a token, and the REST API as they use it."""

    platform: Platform
    sub: str
    token: str

    @property
    def namespace(self) -> str:
        """Their namespace."""
        return namespace_of(self.sub)

    @property
    def base(self) -> str:
        """The REST address of their namespace."""
        return f"{self.platform.endpoint}/v1/namespaces/{self.namespace}"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request below their namespace, with their token."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return HTTP.request(method, self.base + path, headers=headers, **options)

    def api_key(self, name: str = "test", **fields: Any) -> dict[str, Any]:
        """A new API key of theirs, with its secret."""
        made = self.request("POST", "/api-keys", json={"name": name, **fields})
        assert made.status_code == 201, made.text
        key: dict[str, Any] = made.json()
        return key

    def fn(self, name: str, path: str = "", *, method: str = "GET", **options: Any) -> httpx.Response:
        """A call of a function's public URL."""
        return HTTP.request(method, self.url(name) + path, **options)

    def url(self, name: str) -> str:
        """A service's public URL."""
        return f"{self.platform.endpoint}/fn/{self.namespace}/{name}"

    def create(self, name: str, kind: str = "services", **fields: Any) -> httpx.Response:
        """Creates a function or service."""
        body = {"name": name, "runtime": "python3.11", "entrypoint": "handler.handle", **fields}
        return self.request("POST", f"/{kind}", json=body)

    def upload(
        self, name: str, files: Mapping[str, str | bytes] | bytes, kind: str = "services", wait: int | None = 60
    ) -> httpx.Response:
        """Uploads code: files by path, or the bytes of an archive."""
        archive = files if isinstance(files, bytes) else zipped(files)
        query = "" if wait is None else f"?wait={wait}"
        return self.request(
            "POST", f"/{kind}/{name}/upload{query}", content=archive, headers={"Content-Type": "application/zip"}
        )

    def deploy(self, name: str, handler: str, kind: str = "services", **fields: Any) -> dict[str, Any]:
        """A function with this handler.py that is Ready."""
        created = self.create(name, kind, **fields)
        assert created.status_code == 201, created.text
        uploaded = self.upload(name, {"handler.py": textwrap.dedent(handler)}, kind)
        assert uploaded.status_code == 200, uploaded.text
        return self.get(name, kind)

    def get(self, name: str, kind: str = "services") -> dict[str, Any]:
        """The resource."""
        answer = self.request("GET", f"/{kind}/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def settled(self, name: str, kind: str = "services") -> dict[str, Any]:
        """The resource once the outcome of its newest generation is known."""

        def known() -> dict[str, Any] | None:
            found = self.get(name, kind)
            return found if found["observed_generation"] == found["generation"] else None

        return until(known, f"{name} to settle")


def until(condition: Callable[[], Found | None], what: str, limit_sec: float = READY_LIMIT_SEC) -> Found:
    """Waits for a condition and gives what it gave."""
    end = time.monotonic() + limit_sec
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {limit_sec} s for {what} in vain")


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """An archive of files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return target.getvalue()


@contextlib.contextmanager
def running_platform(*arguments: str, **settings: str) -> Iterator[Platform]:
    """A platform of a test's own: may be broken at will."""
    with tempfile.TemporaryDirectory(prefix="sless-e2e-") as folder:
        platform = Platform(Path(folder), Path(folder) / "data", settings)
        try:
            platform.up(*arguments)
            yield platform
        finally:
            platform.sless("down", "--data", str(platform.data), check=False)


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """One platform for all tests that leave it whole."""
    with running_platform(SLESS_IDLE_SEC="3") as started:
        yield started


@pytest.fixture
def user(platform: Platform) -> User:
    """Somebody new."""
    return platform.user()
