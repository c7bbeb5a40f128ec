"""Any sequence of writes and reports keeps what must always hold of a function and its versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sless_registry.domain import lifecycle
from sless_registry.domain.record import Record, changes
from sless_registry.domain.reports import BuildReport, build_reported, status_reported, switched_off
from sless_registry.domain.resources import BuildError, Phase, Replicas, VersionState
from sless_registry.errors import VersionNotBuilt, VersionNotFound

from tests.support.registry_domain import a_record, an_upload, at, new_version, status

KEPT = 4
REPORTED = (VersionState.BUILDING, VersionState.BUILT, VersionState.FAILED)
OUTCOMES = (Phase.READY, Phase.FAILED)
CHANGES: list[dict[str, Any]] = [
    {"memory_mb": 128},
    {"memory_mb": 256},
    {"replicas": Replicas(0, 0, 16)},
    {"replicas": Replicas(0, 10, 16)},
    {"entrypoint": "handler.handle"},
    {"entrypoint": "other.handle"},
]
IN_BUILD = {VersionState.PENDING: Phase.PENDING, VersionState.BUILDING: Phase.BUILDING}


class Lifecycle(RuleBasedStateMachine):
    """One function; each rule is one write or report."""

    record: Record
    before: Record
    clock: int

    @initialize(highest=st.sampled_from([0, 1, 10]))
    def create(self, highest: int) -> None:
        self.record = a_record(replicas=Replicas(0, highest, 16))
        self.before = self.record
        self.clock = 0

    @property
    def live(self) -> bool:
        return self.record.function.deleted_at is None

    def _step(self, after: Record) -> None:
        self.before, self.record = self.record, after
        self.clock += 1
        if after.function.last_version > self.before.function.last_version:
            needed = {after.function.active_version, after.function.desired_version, after.function.code_version}
            busy = [version for version in after.versions if version.unfinished or version.number in needed]
            assert len(after.versions) <= max(KEPT, len(busy))

    @rule(seed=st.sampled_from("abc"), build_only=st.booleans(), change=st.sampled_from([{}, *CHANGES]))
    @precondition(lambda self: self.live)
    def upload(self, seed: str, build_only: bool, change: dict[str, Any]) -> None:
        number = self.record.function.last_version + 1
        configuration = replace(self.record.function.configuration, **change)
        after, version, created = lifecycle.uploaded(
            self.record, an_upload(seed, build_only=build_only), replace(new_version(number), kept=KEPT), configuration
        )
        assert (version.runtime, version.entrypoint) == (configuration.runtime, configuration.entrypoint)
        assert build_only or after.function.configuration == configuration
        assert not build_only or replace(after.function, last_version=0) == replace(
            self.record.function, last_version=0
        )
        assert version in after.versions
        assert created == (version.number == number)
        self._step(after)
        if not build_only:
            again, _, created_again = lifecycle.uploaded(
                after, an_upload(seed), replace(new_version(number + 1), kept=KEPT)
            )
            assert not created_again
            assert not changes(after, again)

    @rule(data=st.data(), state=st.sampled_from(REPORTED), attempt=st.integers(1, 3))
    @precondition(lambda self: self.record.versions)
    def report_build(self, data: st.DataObject, state: VersionState, attempt: int) -> None:
        version = data.draw(st.sampled_from(self.record.versions))
        layers = ("sha256:1",) if state is VersionState.BUILT else ()
        error = data.draw(st.sampled_from([None, BuildError("SYNTAX_ERROR", ""), BuildError("PLATFORM", "")]))
        report = BuildReport(version.uid, attempt, state, layers=layers, error=error)
        after = build_reported(self.record, report, at(self.clock))
        assert build_reported(after, report, at(self.clock + 1)).function == after.function
        if not version.unfinished or attempt < version.attempt:
            assert after == self.record
        self._step(after)

    @rule(phase=st.sampled_from([Phase.DEPLOYING, *OUTCOMES]), off=st.sampled_from([(0, 0)] * 4 + [(1, 0), (0, 1)]))
    def report_status(self, phase: Phase, off: tuple[int, int]) -> None:
        late, other = off
        function = self.record.function
        report = status(
            self.record, phase, generation=function.generation - late, version=function.desired_version + other
        )
        after = status_reported(self.record, report, at(self.clock))
        if late or other or not function.desired_version or not self.live or function.switched_off:
            assert after is None
        if after is not None:
            assert after.function.generation == function.generation
            self._step(after)

    @rule(change=st.sampled_from(CHANGES))
    @precondition(lambda self: self.live)
    def configure(self, change: dict[str, Any]) -> None:
        function = self.record.function
        configuration = replace(function.configuration, **change)
        after = lifecycle.configured(
            self.record, configuration, by="sub", new=replace(new_version(function.last_version + 1), kept=KEPT)
        )
        assert (after == self.record) == (configuration == function.configuration)
        assert after.function.generation - function.generation == (after != self.record)
        self._step(after)

    @rule(data=st.data())
    @precondition(lambda self: self.live and self.record.versions)
    def activate(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.record.versions))
        try:
            after = lifecycle.activated(self.record, version.number, at(self.clock))
        except VersionNotBuilt:
            assert version.state is not VersionState.BUILT
            return
        assert after.function.desired_version == after.function.code_version == version.number
        self._step(after)

    @rule()
    def activate_what_is_not_there(self) -> None:
        try:
            lifecycle.activated(self.record, self.record.function.last_version + 1, at(self.clock))
        except VersionNotFound:
            return
        raise AssertionError("a version that does not exist was activated")

    @rule()
    def settle(self) -> None:
        self._step(switched_off(self.record))

    @rule()
    @precondition(lambda self: self.live and self.clock > 15)
    def delete(self) -> None:
        self._step(lifecycle.deleted(self.record, at(self.clock)))

    @invariant()
    def the_outcome_is_known_exactly_when_it_is_ready_or_failed(self) -> None:
        function = self.record.function
        assert 0 <= function.observed_generation <= function.generation
        assert function.settled == (function.phase in OUTCOMES)

    @invariant()
    def the_phase_says_what_is_waited_for(self) -> None:
        function = self.record.function
        if not self.live:
            return
        pending = self.record.version(function.pending_version)
        if pending is not None:
            assert function.phase is IN_BUILD[pending.state]
        elif function.desired_version:
            assert function.phase in (Phase.DEPLOYING, *OUTCOMES)
        else:
            assert function.phase is (Phase.FAILED if function.failed_build else Phase.PENDING)

    @invariant()
    def a_failed_build_is_the_outcome_until_the_next_generation(self) -> None:
        function = self.record.function
        if function.failed_build and self.live:
            assert function.phase is Phase.FAILED
            assert function.settled

    @invariant()
    def the_pending_version_is_the_one_unfinished_build_that_is_to_serve(self) -> None:
        to_serve = [version.number for version in self.record.versions if version.unfinished and version.activate]
        pending = self.record.function.pending_version
        assert to_serve == ([pending] if pending else [])

    @invariant()
    def ready_means_that_the_desired_version_serves_or_that_it_is_switched_off(self) -> None:
        function = self.record.function
        if function.phase is Phase.READY:
            assert function.switched_off or function.active_version == function.desired_version

    @invariant()
    def what_serves_or_should_serve_is_built_and_kept(self) -> None:
        function = self.record.function
        for number in filter(None, (function.desired_version, function.active_version)):
            version = self.record.version(number)
            assert version is not None
            assert version.state is VersionState.BUILT
        active = [version.number for version in self.record.versions if version.active]
        assert active == ([function.active_version] if function.active_version else [])

    @invariant()
    def configuration_and_code_belong_together(self) -> None:
        function = self.record.function
        if function.code_version:
            version = self.record.version(function.code_version)
            assert version is not None
            assert (version.runtime, version.entrypoint) == (
                function.configuration.runtime,
                function.configuration.entrypoint,
            )

    @invariant()
    def numbers_are_given_once(self) -> None:
        numbers = [version.number for version in self.record.versions]
        assert numbers == sorted(set(numbers))
        assert all(number <= self.record.function.last_version for number in numbers)

    @invariant()
    def generations_and_service_never_go_back(self) -> None:
        before, now = self.before.function, self.record.function
        assert now.generation in (before.generation, before.generation + 1)
        assert now.has_served >= before.has_served
        assert (now.etag == before.etag) == (now.generation == before.generation)
        assert bool(now.active_version) == now.has_served
        assert now.last_version - before.last_version in (0, 1)

    @invariant()
    def nothing_is_built_for_a_deleted_function(self) -> None:
        if not self.live:
            assert not any(version.unfinished for version in self.record.versions)

    @invariant()
    def a_write_that_changes_nothing_writes_nothing(self) -> None:
        assert bool(changes(self.before, self.record)) == (self.before != self.record)


Lifecycle.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLifecycle = Lifecycle.TestCase
