"""A small package index over HTTP, for tests: wheels and source distributions that the test makes (PEP 503)."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import tarfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

ANY = "py3-none-any"
_BUILD_SYSTEM = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_BACKEND = """\
import os, subprocess, sys, time, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
{body}
    name = "{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for path, content in {files!r}.items():
            wheel.writestr(path, content)
    return name
"""


def wheel(
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None = None,
    *,
    requires: tuple[str, ...] = (),
    tag: str = ANY,
    extras: Mapping[str, tuple[str, ...]] | None = None,
) -> bytes:
    """A wheel; without files it has one module of its name with a `VERSION`."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in _wheel_files(name, version, files, requires, tag, extras or {}).items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), content)
    return target.getvalue()


def source(name: str, version: str, body: str = "pass", *, files: Mapping[str, str] | None = None) -> bytes:
    """A source distribution whose build runs `body`, then gives a wheel; `os`, `subprocess`, `sys` and `time` are imported."""
    packed = {path: _text(content) for path, content in _wheel_files(name, version, files, (), ANY, {}).items()}
    contents = {
        "PKG-INFO": _metadata(name, version, (), {}),
        "pyproject.toml": _BUILD_SYSTEM,
        "backend.py": _BACKEND.format(body=textwrap.indent(body, "    "), name=name, version=version, files=packed),
    }
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path, text in contents.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return target.getvalue()


@dataclass
class Index:
    """What a running index has, and what was asked of it.

    broken  the status it answers everything with.
    stop    makes it unreachable.
    """

    port: int
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    broken: int | None = None
    stop: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def url(self) -> str:
        """Its address for installers."""
        return f"http://127.0.0.1:{self.port}/simple/"

    @property
    def files_url(self) -> str:
        """Where its files lie."""
        return f"http://127.0.0.1:{self.port}/files"

    def add_wheel(self, name: str, version: str, *arguments: Any, tag: str = ANY, **options: Any) -> str:
        """Offer a wheel; its SHA-256."""
        return self._add(name, f"{name}-{version}-{tag}.whl", wheel(name, version, *arguments, tag=tag, **options))

    def add_source(self, name: str, version: str, *arguments: Any, **options: Any) -> str:
        """Offer a source distribution; its SHA-256."""
        return self._add(name, f"{name}-{version}.tar.gz", source(name, version, *arguments, **options))

    def _add(self, name: str, file: str, content: bytes) -> str:
        self.files.setdefault(name.replace("_", "-"), {})[file] = content
        return hashlib.sha256(content).hexdigest()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        self.asked.append(path)
        if self.broken is not None:
            return self.broken, "text/plain", b"broken"
        kind, _, rest = path.strip("/").partition("/")
        if kind == "simple" and rest in self.files:
            return 200, "text/html", _page(self.files[rest]).encode()
        found = [content for files in self.files.values() for file, content in files.items() if file == rest]
        return (200, "application/octet-stream", found[0]) if kind == "files" and found else (404, "text/plain", b"")


@contextmanager
def package_index() -> Iterator[Index]:
    """An index that runs for the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = index.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        index = Index(server.server_port)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        index.stop = stop
        try:
            yield index
        finally:
            stop()


def _page(files: Mapping[str, bytes]) -> str:
    links = (
        f'<a href="/files/{html.escape(name)}#sha256={hashlib.sha256(content).hexdigest()}">{html.escape(name)}</a>'
        for name, content in files.items()
    )
    return "<!DOCTYPE html><html><body>" + "<br>".join(links) + "</body></html>"


def _wheel_files(
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None,
    requires: tuple[str, ...],
    tag: str,
    extras: Mapping[str, tuple[str, ...]],
) -> dict[str, str | bytes]:
    modules = {f"{name}.py": f"VERSION = {version!r}\n"} if files is None else files
    about = f"{name}-{version}.dist-info"
    contents: dict[str, str | bytes] = {
        **modules,
        f"{about}/METADATA": _metadata(name, version, requires, extras),
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},sha256={_digest(content)},{len(_bytes(content))}\n" for path, content in contents.items())
    return {**contents, f"{about}/RECORD": record + f"{about}/RECORD,,\n"}


def _metadata(name: str, version: str, requires: tuple[str, ...], extras: Mapping[str, tuple[str, ...]]) -> str:
    lines = ["Metadata-Version: 2.2", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {item}" for item in requires]
    for extra, items in extras.items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {item}; extra == "{extra}"' for item in items)]
    return "\n".join(lines) + "\n"


def _digest(content: str | bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(_bytes(content)).digest()).rstrip(b"=").decode()


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode()
