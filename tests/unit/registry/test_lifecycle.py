"""What writes and reports make of a function, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sless_registry.domain import lifecycle
from sless_registry.domain.record import Record, changes
from sless_registry.domain.reports import status_reported, switched_off
from sless_registry.domain.resources import Access, Phase, Replicas, VersionState
from sless_registry.errors import EtagMismatch, VersionNotBuilt, VersionNotFound

from tests.support.registry_domain import (
    a_configuration,
    a_record,
    an_upload,
    at,
    built,
    new_version,
    ready,
    reported,
    serving,
    status,
    uploaded,
)


def configured(record: Record, **fields: object) -> Record:
    """The record with some fields of its configuration changed."""
    configuration = replace(record.function.configuration, **fields)  # type: ignore[arg-type]
    return lifecycle.configured(record, configuration, by="sub", new=new_version(record.function.last_version + 1))


def failed(record: Record, number: int, message: str = "line 3: oops") -> Record:
    return reported(record, number, VersionState.FAILED, message=message)


def states(record: Record) -> list[VersionState]:
    return [version.state for version in record.versions]


def test_a_new_function_waits_for_code() -> None:
    function = a_record().function

    assert (function.generation, function.observed_generation) == (1, 0)
    assert (function.phase, function.message) == (Phase.PENDING, "waiting for code: upload a zip")


def test_an_upload_goes_from_the_queue_to_ready() -> None:
    queued = uploaded(a_record())
    building = reported(queued, 1, VersionState.BUILDING)
    starting = built(building, 1)
    served = ready(starting)

    assert [r.function.phase for r in (queued, building, starting, served)] == [
        Phase.PENDING,
        Phase.BUILDING,
        Phase.DEPLOYING,
        Phase.READY,
    ]
    assert {r.function.generation for r in (queued, building, starting, served)} == {2}
    assert served.function.observed_generation == 2
    assert served.function.active_version == served.function.desired_version == 1
    assert served.function.has_served
    assert served.versions[0].active


@pytest.mark.fault(10)
def test_a_failed_build_keeps_the_old_version_and_shows_the_logs_end() -> None:
    after = failed(uploaded(serving(), "b"), 2)

    function = after.function
    assert (function.phase, function.message) == (Phase.FAILED, "line 3: oops")
    assert function.settled
    assert (function.active_version, function.desired_version) == (1, 1)
    assert not function.deploying
    assert after.versions[1].message == "line 3: oops"


def test_a_deployments_success_does_not_hide_a_failed_build() -> None:
    after = failed(uploaded(serving(), "b"), 2)
    assert status_reported(after, status(after, Phase.DEPLOYING), at(300)) is None
    assert status_reported(after, status(after, Phase.FAILED), at(300)) is None

    again = status_reported(after, status(after), at(300))

    assert again is not None
    assert again.function.phase is Phase.FAILED
    assert again.function.failed_build == 2


def test_what_serves_is_noted_while_a_newer_build_is_pending() -> None:
    starting = uploaded(built(uploaded(a_record()), 1), "b")
    assert starting.function.deploying

    served = status_reported(starting, status(starting), at(300))

    assert served is not None
    assert served.function.active_version == 1
    assert served.function.phase is Phase.PENDING
    assert not served.function.settled
    assert failed(served, 2).function.has_served


def test_a_change_of_configuration_after_a_failed_build_is_deployed_with_what_serves() -> None:
    after = configured(failed(uploaded(serving(), "b"), 2), memory_mb=256)

    assert after.function.phase is Phase.DEPLOYING
    assert ready(after).function.phase is Phase.READY
    assert ready(after).function.active_version == 1


def test_a_change_of_configuration_after_a_failed_first_build_stays_failed() -> None:
    after = configured(failed(uploaded(a_record()), 1), memory_mb=256)

    assert (after.function.phase, after.function.message) == (Phase.FAILED, "line 3: oops")
    assert after.function.generation == after.function.observed_generation == 3
    assert after.function.replaceable


@pytest.mark.fault(4)
def test_a_change_of_configuration_is_a_generation_that_must_be_deployed() -> None:
    before = serving()

    after = configured(before, memory_mb=256)

    assert after.function.generation == before.function.generation + 1
    assert after.function.phase is Phase.DEPLOYING
    assert after.function.deploying
    assert after.function.etag != before.function.etag


@pytest.mark.fault(6)
def test_an_update_that_changes_nothing_changes_nothing() -> None:
    before = serving(env_vars={"B": "2", "A": "1"})

    after = configured(before, env_vars={"A": "1", "B": "2"})

    assert not changes(before, after)


def test_a_repeated_report_changes_nothing() -> None:
    served = serving()

    again = status_reported(served, status(served), at(900))

    assert again is not None
    assert not changes(served, again)


@pytest.mark.parametrize("stale", [{"generation": 1}, {"version": 9}, {"version": 0}])
def test_an_outdated_status_report_is_dropped(stale: dict[str, Any]) -> None:
    starting = built(uploaded(a_record()), 1)

    assert status_reported(starting, status(starting, **stale), at(300)) is None


def test_a_status_report_about_a_deleted_function_is_dropped() -> None:
    gone = lifecycle.deleted(serving(), at(300))

    assert status_reported(gone, status(gone), at(301)) is None


def test_progress_does_not_take_an_outcome_back() -> None:
    served = serving()

    assert status_reported(served, status(served, Phase.DEPLOYING), at(300)) is None


def test_a_failed_deployment_keeps_what_serves_and_can_be_tried_again() -> None:
    starting = built(uploaded(serving(), "b"), 2)
    after = status_reported(starting, status(starting, Phase.FAILED, message="exit code 1"), at(300))
    assert after is not None
    assert (after.function.phase, after.function.message) == (Phase.FAILED, "exit code 1")
    assert after.function.active_version == 1

    again = lifecycle.activated(after, 2, at(301))

    assert again.function.phase is Phase.DEPLOYING
    assert again.function.generation == after.function.generation + 1


def test_another_entrypoint_builds_the_same_code_again() -> None:
    after = configured(serving(), entrypoint="other.handle")

    version = after.versions[-1]
    assert (version.number, version.code_sha256, version.entrypoint) == (
        2,
        after.versions[0].code_sha256,
        "other.handle",
    )
    assert (version.created_by, version.state) == ("sub", VersionState.PENDING)
    assert after.function.pending_version == 2
    assert after.function.generation == 3


def test_another_entrypoint_without_code_is_only_stored() -> None:
    after = configured(a_record(), entrypoint="other.handle")

    assert after.versions == ()
    assert after.function.phase is Phase.PENDING
    assert uploaded(after).versions[0].entrypoint == "other.handle"


def test_another_entrypoint_builds_the_code_whose_build_failed() -> None:
    after = configured(failed(uploaded(serving("a"), "b"), 2), entrypoint="other.handle")

    assert after.versions[-1].code_sha256 == "b" * 64


def test_another_entrypoint_builds_the_code_that_was_activated_not_a_newer_one() -> None:
    rolled_back = lifecycle.activated(ready(built(uploaded(serving("a"), "b"), 2)), 1, at(300))

    after = configured(rolled_back, entrypoint="other.handle")

    assert after.versions[-1].code_sha256 == "a" * 64


def test_activating_restores_runtime_and_entrypoint() -> None:
    changed = ready(built(configured(serving(), entrypoint="other.handle"), 2))
    assert changed.function.configuration.entrypoint == "other.handle"

    after = lifecycle.activated(changed, 1, at(300))

    assert after.function.configuration.entrypoint == "handler.handle"
    assert after.function.desired_version == 1
    assert after.function.phase is Phase.DEPLOYING
    assert ready(after).versions[0].active
    assert not ready(after).versions[1].active


def test_activating_what_serves_changes_nothing() -> None:
    served = serving()

    assert lifecycle.activated(served, 1, at(300)) == served


def test_a_build_that_was_under_way_when_another_version_was_activated_does_not_serve() -> None:
    before = uploaded(ready(built(uploaded(serving("a"), "b"), 2)), "c")

    after = ready(built(lifecycle.activated(before, 1, at(300)), 3))

    assert after.function.active_version == after.function.desired_version == 1
    assert after.versions[2].state is VersionState.BUILT


def test_only_a_built_version_can_be_activated() -> None:
    with pytest.raises(VersionNotBuilt, match="version 2 is Pending"):
        lifecycle.activated(uploaded(serving(), "b"), 2, at(300))
    with pytest.raises(VersionNotFound, match="function 'hello' has no version 7"):
        lifecycle.activated(serving(), 7, at(300))


def test_a_new_upload_cancels_the_older_build() -> None:
    after = uploaded(uploaded(a_record(), "a"), "b")

    assert states(after) == [VersionState.CANCELLED, VersionState.PENDING]
    assert after.function.pending_version == 2
    assert states(built(after, 1))[0] is VersionState.CANCELLED


def test_what_is_only_built_leaves_the_pending_version_alone() -> None:
    after = uploaded(uploaded(serving("a"), "b"), "c", build_only=True)

    assert states(after) == [VersionState.BUILT, VersionState.PENDING, VersionState.PENDING]
    assert after.function.pending_version == 2
    assert built(built(after, 2), 3).function.desired_version == 2


def test_a_build_only_upload_changes_no_generation_and_can_be_activated() -> None:
    before = serving("a")
    after = built(uploaded(before, "b", build_only=True), 2)
    assert after.function.generation == before.function.generation
    assert after.function.phase is Phase.READY

    assert lifecycle.activated(after, 2, at(300)).function.desired_version == 2


@pytest.mark.fault(14)
def test_the_same_code_again_is_the_same_version() -> None:
    served = serving("a")

    after, version, created = lifecycle.uploaded(served, an_upload("a"), new_version(2))

    assert (version.number, created) == (1, False)
    assert not changes(served, after)


def test_the_same_code_again_after_a_failed_build_is_built_again() -> None:
    after, version, created = lifecycle.uploaded(failed(uploaded(a_record()), 1), an_upload(), new_version(2))

    assert (version.number, created) == (2, True)
    assert after.function.phase is Phase.PENDING


def failed_by_code(record: Record, number: int) -> Record:
    return reported(record, number, VersionState.FAILED, message="line 3: oops", reason="SYNTAX_ERROR")


def test_the_same_code_again_after_it_failed_by_what_is_in_it_has_failed_again() -> None:
    broken = failed_by_code(uploaded(serving("a"), "b"), 2)

    after, version, created = lifecycle.uploaded(broken, an_upload("b"), new_version(3))

    assert (version.number, created) == (2, False)
    assert not changes(broken, after)
    other, version, created = lifecycle.uploaded(
        broken, an_upload("b"), new_version(3), a_configuration(entrypoint="other.handle")
    )
    assert (version.number, created) == (3, True)
    assert other.function.phase is Phase.PENDING


@pytest.mark.parametrize("reason", ["PLATFORM", "BUILD_TIMEOUT", "RUNTIME_UNAVAILABLE"])
def test_the_same_code_again_is_built_again_when_something_else_had_a_part_in_its_failure(reason: str) -> None:
    broken = reported(uploaded(serving("a"), "b"), 2, VersionState.FAILED, reason=reason)

    _, version, created = lifecycle.uploaded(broken, an_upload("b"), new_version(3))

    assert (version.number, created) == (3, True)


def test_code_that_fails_again_is_the_outcome_also_when_another_version_was_activated_since() -> None:
    back = ready(lifecycle.activated(failed_by_code(uploaded(serving("a"), "b"), 2), 1, at(300)))

    after, version, created = lifecycle.uploaded(back, an_upload("b"), new_version(3))

    assert (version.number, created) == (2, False)
    function = after.function
    assert (function.phase, function.message, function.settled) == (Phase.FAILED, "line 3: oops", True)
    assert (function.generation, function.active_version) == (back.function.generation + 1, 1)
    assert lifecycle.uploaded(after, an_upload("a"), new_version(3))[1].number == 1


def test_code_that_fails_again_takes_its_configuration_with_it() -> None:
    broken = failed_by_code(uploaded(serving("a"), "b"), 2)

    after, _, created = lifecycle.uploaded(broken, an_upload("b"), new_version(3), a_configuration(memory_mb=256))

    assert not created
    assert after.function.configuration.memory_mb == 256
    assert (after.function.phase, after.function.settled) == (Phase.FAILED, True)
    assert after.function.generation == broken.function.generation + 1


def test_what_was_cancelled_is_built_again() -> None:
    cancelled = uploaded(uploaded(serving("a"), "b"), "c")

    _, version, created = lifecycle.uploaded(built(cancelled, 3), an_upload("b"), new_version(4))

    assert (version.number, created) == (4, True)


def test_configuration_that_comes_with_code_is_of_the_same_generation() -> None:
    wanted = a_configuration(memory_mb=256, entrypoint="other.handle")

    after, version, created = lifecycle.uploaded(serving("a"), an_upload("b"), new_version(2), wanted)

    assert created
    assert (after.function.generation, after.function.configuration) == (3, wanted)
    assert (version.runtime, version.entrypoint) == ("python3.11", "other.handle")


def test_configuration_with_the_same_code_changes_and_nothing_is_built() -> None:
    served = serving("a")

    after, version, created = lifecycle.uploaded(served, an_upload("a"), new_version(2), a_configuration(memory_mb=256))

    assert (version.number, created) == (1, False)
    assert after.function.configuration.memory_mb == 256
    assert (after.function.phase, after.function.generation) == (Phase.DEPLOYING, served.function.generation + 1)
    same, _, _ = lifecycle.uploaded(served, an_upload("a"), new_version(2), a_configuration())
    assert not changes(served, same)


def test_configuration_with_code_that_is_being_built_waits_for_it() -> None:
    waiting = uploaded(serving("a"), "b")

    after, version, created = lifecycle.uploaded(
        waiting, an_upload("b"), new_version(3), a_configuration(memory_mb=256)
    )

    assert (version.number, created) == (2, False)
    assert (after.function.phase, after.function.pending_version) == (Phase.PENDING, 2)
    assert after.function.generation == waiting.function.generation + 1


def test_an_upload_that_is_only_built_captures_its_entrypoint_and_leaves_the_function_alone() -> None:
    served = serving("a")
    other = a_configuration(entrypoint="other.handle")

    after, version, created = lifecycle.uploaded(served, an_upload("a", build_only=True), new_version(2), other)

    assert (version.entrypoint, created) == ("other.handle", True)
    assert after.function == replace(served.function, last_version=2)
    activated = lifecycle.activated(built(after, 2), 2, at(300))
    assert activated.function.configuration.entrypoint == "other.handle"
    again, version, created = lifecycle.uploaded(after, an_upload("a", build_only=True), new_version(3), other)
    assert (version.number, created) == (2, False)
    assert not changes(after, again)


def test_rolled_back_code_serves_again_when_it_is_uploaded_again() -> None:
    back = ready(lifecycle.activated(ready(built(uploaded(serving("a"), "b"), 2)), 1, at(300)))

    after, version, created = lifecycle.uploaded(back, an_upload("b"), new_version(3))

    assert (version.number, created) == (2, False)
    assert (after.function.desired_version, after.function.phase) == (2, Phase.DEPLOYING)


def test_the_serving_code_again_after_a_failed_build_serves_again() -> None:
    broken = failed(uploaded(serving("a"), "b"), 2)

    after, version, created = lifecycle.uploaded(broken, an_upload("a"), new_version(3))

    assert (version.number, created) == (1, False)
    assert ready(after).function.phase is Phase.READY


def test_the_same_code_for_another_entrypoint_is_another_version() -> None:
    _, version, created = lifecycle.uploaded(
        built(configured(serving("a"), entrypoint="other.handle"), 2), an_upload("a"), new_version(3)
    )
    assert (version.number, created) == (2, False)

    after, version, created = lifecycle.uploaded(
        configured(a_record(), entrypoint="other.handle"), an_upload("a"), new_version(1)
    )
    assert (version.number, created) == (1, True)
    assert after.versions[0].entrypoint == "other.handle"


def test_a_build_only_version_that_is_uploaded_to_serve_serves() -> None:
    waiting = uploaded(serving("a"), "b", build_only=True)
    promoted = uploaded(waiting, "b")
    assert len(promoted.versions) == 2
    assert promoted.function.pending_version == 2
    assert built(promoted, 2).function.desired_version == 2

    again = uploaded(built(waiting, 2), "b")

    assert again.function.desired_version == 2
    assert again.function.phase is Phase.DEPLOYING


def test_the_oldest_versions_go_but_none_that_is_needed() -> None:
    record = serving("0")
    for seed in "1234":
        record = built(uploaded(record, seed, build_only=True, kept=3), record.function.last_version + 1)

    assert [version.number for version in record.versions] == [1, 4, 5]
    assert record.function.last_version == 5


@pytest.mark.fault(13)
def test_deleting_cancels_the_build() -> None:
    after = lifecycle.deleted(uploaded(serving("a"), "b"), at(300))

    assert states(after) == [VersionState.BUILT, VersionState.CANCELLED]
    assert after.function.deleted_at == at(300)
    assert states(built(after, 2))[1] is VersionState.CANCELLED


def test_only_a_failed_function_that_never_served_gives_way() -> None:
    assert failed(uploaded(a_record()), 1).function.replaceable
    assert not a_record().function.replaceable
    assert not failed(uploaded(serving(), "b"), 2).function.replaceable


def test_switched_off_is_ready_without_a_deployment() -> None:
    after = configured(serving(), replicas=Replicas(0, 0, 16))
    assert after.function.switching_off
    assert not after.function.deploying
    assert status_reported(after, status(after), at(300)) is None

    settled = switched_off(after)

    assert (settled.function.phase, settled.function.message) == (Phase.READY, "switched off: replicas is 0")
    assert settled.function.settled
    assert switched_off(settled) == settled


def test_switching_on_again_is_a_deployment() -> None:
    off = switched_off(configured(serving(), replicas=Replicas(0, 0, 16)))

    after = configured(off, replicas=Replicas(0, 3, 16))

    assert after.function.deploying
    assert ready(after).function.phase is Phase.READY


def test_code_that_is_built_while_switched_off_is_ready_without_a_deployment() -> None:
    after = built(uploaded(a_record(replicas=Replicas(0, 0, 16))), 1)

    assert after.function.switching_off
    assert switched_off(after).function.phase is Phase.READY
    assert not switched_off(after).function.has_served


def test_older_attempts_and_repeated_reports_are_dropped() -> None:
    building = reported(uploaded(a_record()), 1, VersionState.BUILDING, attempt=2)

    assert reported(building, 1, VersionState.FAILED, attempt=1) == building
    done = reported(building, 1, VersionState.BUILT, attempt=2)
    assert reported(done, 1, VersionState.FAILED, attempt=3) == done


def test_an_etag_that_is_not_the_functions_is_refused() -> None:
    function = serving().function
    for etag in ("", "*", function.etag):
        lifecycle.check_etag(function, etag)

    with pytest.raises(EtagMismatch, match=f"its etag is {function.etag}, not x") as refused:
        lifecycle.check_etag(function, "x")
    assert refused.value.metadata == {"etag": function.etag}


def test_only_taking_access_away_tightens() -> None:
    public = serving()
    closed = configured(public, access=Access.AUTHENTICATED)
    off = configured(public, replicas=Replicas(0, 0, 16))

    assert lifecycle.tightens(public.function, closed.function)
    assert lifecycle.tightens(public.function, off.function)
    assert not lifecycle.tightens(closed.function, public.function)
    assert not lifecycle.tightens(off.function, public.function)
    assert not lifecycle.tightens(off.function, configured(off, memory_mb=256).function)
    assert not lifecycle.tightens(public.function, configured(public, memory_mb=256).function)
    opened_while_off = configured(configured(off, access=Access.AUTHENTICATED), access=Access.PUBLIC)
    assert not lifecycle.tightens(configured(off, access=Access.AUTHENTICATED).function, opened_while_off.function)
