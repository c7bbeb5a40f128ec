"""Instances for tests, and how to wait for what they do."""

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtimes.contract.client import Client
from runtimes.contract.harness import Instance, RuntimeUnderTest, start


def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not come about in time"
        time.sleep(0.005)


class Instances:
    """Instances for tests: shared ones live as long as the session, started once for each fixture."""

    def __init__(self, runtime: RuntimeUnderTest) -> None:
        self.runtime = runtime
        self._shared: dict[str, Instance] = {}
        self._fresh: list[Instance] = []

    def shared(self, name: str) -> Instance:
        """The instance of a fixture handler, for tests that leave it as it was."""
        instance = self._shared.get(name)
        if instance is None or instance.process.poll() is not None:
            instance = self._shared[name] = start(self.runtime, f"{name}.handle")
        return instance

    def fresh(
        self,
        name: str,
        *,
        entrypoint: str | None = None,
        code: Path | None = None,
        concurrency: int = 16,
        grace_ms: int = 10_000,
        environment: Mapping[str, str] | None = None,
        listener: socket.socket | None = None,
    ) -> Instance:
        """A new instance, ended after the test."""
        instance = start(
            self.runtime,
            entrypoint or f"{name}.handle",
            code=code,
            concurrency=concurrency,
            grace_ms=grace_ms,
            environment=environment,
            listener=listener,
        )
        self._fresh.append(instance)
        return instance

    def client(self, name: str, **options: Any) -> Client:
        """A connection to the shared instance of a fixture handler."""
        return Client(self.shared(name).path, **options)

    def stop_fresh(self) -> None:
        while self._fresh:
            self._fresh.pop().stop()

    def stop_all(self) -> None:
        self.stop_fresh()
        for instance in self._shared.values():
            instance.stop()
