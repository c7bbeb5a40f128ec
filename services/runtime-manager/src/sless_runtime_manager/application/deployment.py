"""The trace of a deployment: from what asked for it to what the registry is told of it."""

from __future__ import annotations

from sless_platform import telemetry, tracing
from sless_platform.telemetry import Attributes, Span
from sless_platform.tracing import Trace

from sless_runtime_manager.domain import Outcome, Phase, Workload


class Deployment:
    """One function's newest generation on its way to serve, as a span where one is made; between two of them, nothing."""

    def __init__(self) -> None:
        self._generation = 0
        self._trace: Trace | None = None
        self._span: Span | None = None

    def follow(self, workload: Workload | None, told: Outcome | None) -> None:
        """What should run is this, and the registry was told that of it last."""
        if workload is None or not workload.deploying or workload.generation == self._generation:
            return
        if told is not None and told.generation == workload.generation and told.phase is not Phase.DEPLOYING:
            return
        self.give_up()
        self._generation = workload.generation
        asked = tracing.kept(workload.traceparent)
        self._span = telemetry.begin("deploy", _facts(workload), parent=asked)
        self._trace = asked if self._span is None else self._span.trace

    def trace(self, generation: int) -> Trace | None:
        """What is done for a generation belongs there while that is being deployed."""
        return self._trace if generation == self._generation else None

    def told(self, outcome: Outcome) -> None:
        """The registry has been told."""
        if outcome.generation != self._generation or outcome.phase is Phase.DEPLOYING:
            return
        if self._span is not None and outcome.phase is Phase.FAILED:
            self._span.fail("FAILED", outcome.message)
        self._end()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        if self._span is not None:
            self._span.fail("CANCELLED")
        self._end()

    def _end(self) -> None:
        if self._span is not None:
            self._span.end()
        self._generation, self._trace, self._span = 0, None, None


def _facts(workload: Workload) -> Attributes:
    return {
        "sless.namespace": workload.namespace,
        "sless.name": workload.name,
        "sless.version": workload.version,
        "sless.generation": workload.generation,
    }
