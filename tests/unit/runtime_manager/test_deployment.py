"""Which trace a deployment belongs to, where no spans are made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sless_platform.tracing import Trace
from sless_runtime_manager.application.deployment import Deployment
from sless_runtime_manager.domain import Kind, Limits, Outcome, Phase, Workload

ASKED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WORKLOAD = Workload(
    function_uid="f",
    namespace="sless-a",
    namespace_number=1,
    name="hello",
    kind=Kind.FUNCTION,
    generation=2,
    version=1,
    runtime="python3.11",
    entrypoint="handler.handle",
    layers=(),
    memory_mb=128,
    environment={},
    limits=Limits(least=0, most=3, concurrency=2),
    template="a",
    deploying=True,
    revision=7,
    traceparent=ASKED,
)


def outcome(phase: Phase, generation: int = 2) -> Outcome:
    return Outcome(generation=generation, version=1, phase=phase)


def test_what_is_done_for_a_generation_belongs_to_what_asked_for_it() -> None:
    deployment = Deployment()
    deployment.follow(WORKLOAD, None)

    assert deployment.trace(2) == Trace(ASKED)
    assert deployment.trace(1) is None
    deployment.told(outcome(Phase.DEPLOYING))
    assert deployment.trace(2) == Trace(ASKED)


@pytest.mark.parametrize("phase", [Phase.READY, Phase.FAILED])
def test_it_ends_with_its_outcome_and_begins_once(phase: Phase) -> None:
    deployment = Deployment()
    deployment.follow(WORKLOAD, None)

    deployment.told(outcome(phase))
    deployment.follow(WORKLOAD, outcome(phase))

    assert deployment.trace(2) is None


def test_a_newer_generation_takes_its_place() -> None:
    deployment = Deployment()
    deployment.follow(WORKLOAD, None)
    newer = ASKED.replace("00f067aa0ba902b7", "b7ad6b7169203331")

    deployment.follow(replace(WORKLOAD, generation=3, traceparent=newer), outcome(Phase.READY))
    deployment.told(outcome(Phase.READY))

    assert (deployment.trace(2), deployment.trace(3)) == (None, Trace(newer))


@pytest.mark.parametrize("workload", [None, replace(WORKLOAD, deploying=False), replace(WORKLOAD, traceparent="")])
def test_what_nobody_asked_for_belongs_to_no_trace(workload: Workload | None) -> None:
    deployment = Deployment()
    deployment.follow(workload, None)

    assert deployment.trace(2) is None
