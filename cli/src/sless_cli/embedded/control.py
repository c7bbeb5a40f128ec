"""The supervisor's control socket: one JSON object a line, both ways. `status` is answered; `stop` is answered by its end."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sless_cli.embedded.loop import Loop

_LONGEST_REQUEST = 4096


class ControlServer:
    """Answers requests `{"op": NAME}` by what the operation of that name returns; connections stay open until either end goes."""

    def __init__(self, loop: Loop, path: Path, operations: Mapping[str, Callable[[], Mapping[str, object]]]) -> None:
        self._loop = loop
        self._path = path
        self._operations = operations
        self._clients: dict[int, tuple[socket.socket, bytes]] = {}
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(16)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """End all connections, which tells a waiting `sless down` that the platform has stopped."""
        for descriptor in list(self._clients):
            self._drop(descriptor)
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        descriptor = client.fileno()
        self._clients[descriptor] = (client, b"")
        self._loop.watch(descriptor, lambda: self._read(descriptor))

    def _read(self, descriptor: int) -> None:
        client, partial = self._clients[descriptor]
        try:
            data = client.recv(_LONGEST_REQUEST)
        except OSError:
            data = b""
        *lines, partial = (partial + data).split(b"\n")
        if not data or len(partial) > _LONGEST_REQUEST:
            self._drop(descriptor)
            return
        self._clients[descriptor] = (client, partial)
        for line in lines:
            self._answer(client, line)

    def _answer(self, client: socket.socket, line: bytes) -> None:
        try:
            client.send(json.dumps(self._result(line)).encode() + b"\n")
        except OSError:
            return  # the client went away, or does not read its few hundred bytes

    def _result(self, line: bytes) -> Mapping[str, object]:
        try:
            operation = self._operations[json.loads(line)["op"]]
        except (ValueError, KeyError, TypeError):
            return {"error": f"unknown request; there are {', '.join(sorted(self._operations))}"}
        return operation()

    def _drop(self, descriptor: int) -> None:
        client, _ = self._clients.pop(descriptor)
        self._loop.unwatch(descriptor)
        client.close()


def ask(path: Path, operation: str, *, limit: float) -> dict[str, Any]:
    """The supervisor's answer. Raises OSError when it cannot be reached or does not answer within `limit` seconds."""
    with _connected(path, limit) as connection:
        return _ask(connection, operation)


def stop_and_wait(path: Path, *, limit: float) -> None:
    """Have the supervisor stop everything and wait until it has. Raises OSError, TimeoutError after `limit` seconds."""
    with _connected(path, limit) as connection:
        _ask(connection, "stop")
        while connection.recv(_LONGEST_REQUEST):
            continue


def _connected(path: Path, limit: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit)
    try:
        connection.connect(os.fspath(path))
    except OSError:
        connection.close()
        raise
    return connection


def _ask(connection: socket.socket, operation: str) -> dict[str, Any]:
    connection.sendall(json.dumps({"op": operation}).encode() + b"\n")
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(65536)
        if not data:
            raise ConnectionError("the supervisor ended while it was asked")
        received += data
    answer = json.loads(received)
    return answer if isinstance(answer, dict) else {}
