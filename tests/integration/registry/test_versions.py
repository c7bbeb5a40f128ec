"""Uploads, builds, deployments and clean-up through the API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from sless.registry.v1 import registry_pb2 as pb
from sless_platform import tracing
from sless_platform.errors import FailedPrecondition, InvalidArgument, NotFound
from sless_platform.tracing import Trace
from sless_registry.application.means import Policy

from tests.support.registry import NAMESPACE, SUB, RunningRegistry, a_code, a_function, running_registry

pytestmark = pytest.mark.usefixtures("fences_pass")

WHERE: dict[str, Any] = {"namespace": NAMESPACE, "name": "hello"}


async def update(registry: RunningRegistry, *paths: str, **fields: Any) -> pb.Function:
    request = pb.UpdateFunctionRequest(function=a_function(**fields), update_mask=FieldMask(paths=paths))
    return (await registry.user().UpdateFunction(request)).function


async def version(registry: RunningRegistry, number: int = 0) -> pb.Version:
    return (await registry.user().GetVersion(pb.GetVersionRequest(**WHERE, version=number))).version


async def workload(registry: RunningRegistry, function: pb.Function) -> pb.Workload:
    request = pb.GetWorkloadRequest(function_uid=function.uid)
    return (await registry.service("runtime-manager").GetWorkload(request)).workload


async def activate(registry: RunningRegistry, number: int) -> pb.ActivateVersionResponse:
    return await registry.user().ActivateVersion(pb.ActivateVersionRequest(**WHERE, version=number))


async def test_an_upload_becomes_a_version_that_is_built_and_serves(registry: RunningRegistry) -> None:
    function = await registry.create()

    uploaded = await registry.upload()

    assert uploaded.created
    assert (uploaded.version.version, uploaded.version.state) == (1, pb.VERSION_STATE_PENDING)
    assert (uploaded.version.code_sha256, uploaded.version.created_by) == (a_code("1"), SUB)
    assert (uploaded.version.runtime, uploaded.version.entrypoint) == ("python3.11", "handler.handle")
    assert uploaded.function.phase == pb.PHASE_PENDING
    assert uploaded.function.generation == 2
    times = {"started_at": Timestamp(seconds=1_000), "finished_at": Timestamp(seconds=1_002)}
    built = await registry.built(uploaded.version, cached=True, **times)
    assert (built.state, built.cached, built.attempt) == (pb.VERSION_STATE_BUILT, True, 1)
    assert (built.build_started_at.seconds, built.build_finished_at.seconds) == (1_000, 1_002)
    wanted = await workload(registry, function)
    assert (wanted.version, wanted.generation, wanted.deploying) == (1, 2, True)
    assert list(wanted.layers) == ["sha256:base", f"sha256:{a_code('1')}"]
    assert await registry.report(function)
    served = await registry.get()
    assert (served.phase, served.active_version, served.image_ref) == (pb.PHASE_READY, 1, "image@1")
    assert served.observed_generation == served.generation == 2
    assert served.last_built_at.seconds == 1_002
    assert (await version(registry)).active
    assert not (await workload(registry, function)).deploying


@pytest.mark.fault(10)
async def test_a_failed_build_says_why_and_keeps_what_serves(registry: RunningRegistry) -> None:
    await registry.deployed()
    second = (await registry.upload(code="2")).version
    error = pb.BuildError(reason="SYNTAX_ERROR", message="invalid syntax", file="handler.py", line=3)

    failed = await registry.built(second, state=pb.VERSION_STATE_FAILED, message="log\0end", error=error, layers=[])

    assert (failed.state, failed.error, failed.message) == (
        pb.VERSION_STATE_FAILED,
        error,
        "log\N{REPLACEMENT CHARACTER}end",
    )
    function = await registry.get()
    assert (function.phase, function.message) == (pb.PHASE_FAILED, "log\N{REPLACEMENT CHARACTER}end")
    assert (function.active_version, function.desired_version, function.has_served) == (1, 1, True)


async def test_a_long_log_is_cut_at_its_beginning(registry: RunningRegistry) -> None:
    await registry.create()
    log = "begin" + "x" * 100_000 + "the end"

    failed = await registry.built((await registry.upload()).version, state=pb.VERSION_STATE_FAILED, message=log)

    assert failed.message.startswith("...")
    assert failed.message.endswith("the end")
    assert len(failed.message) < 20_000
    assert (await registry.get()).message == failed.message


@pytest.mark.fault(14)
async def test_the_same_code_again_is_the_same_version(registry: RunningRegistry) -> None:
    before = await registry.deployed()

    again = await registry.upload()

    assert not again.created
    assert again.version.version == 1
    assert again.function == before


@pytest.mark.fault(42)
async def test_build_reports_can_be_repeated_and_come_late(registry: RunningRegistry) -> None:
    await registry.create()
    uploaded = (await registry.upload()).version
    await registry.built(uploaded, state=pb.VERSION_STATE_BUILDING, attempt=2, layers=[])
    assert (await registry.get()).phase == pb.PHASE_BUILDING
    late = await registry.built(uploaded, state=pb.VERSION_STATE_FAILED, attempt=1, layers=[])
    assert late.state == pb.VERSION_STATE_BUILDING

    first = await registry.built(uploaded, attempt=2)
    revision = await registry.store.revision()
    again = await registry.built(uploaded, attempt=2)
    failed = await registry.built(uploaded, attempt=3, state=pb.VERSION_STATE_FAILED)

    assert first == again == failed
    assert await registry.store.revision() == revision


@pytest.mark.fault(13)
async def test_a_deleted_functions_build_is_cancelled(registry: RunningRegistry) -> None:
    function = await registry.create()
    uploaded = (await registry.upload()).version

    await registry.user().DeleteFunction(pb.DeleteFunctionRequest(**WHERE))

    assert (await registry.built(uploaded)).state == pb.VERSION_STATE_CANCELLED
    for service in ("builder", "runtime-manager"):
        request = pb.ReportFinalizedRequest(function_uid=function.uid)
        await registry.service(service).ReportFinalized(request)
        await registry.service(service).ReportFinalized(request)
    gone = await registry.service("builder").ReportBuild(
        pb.ReportBuildRequest(version_uid=uploaded.uid, attempt=1, state=pb.VERSION_STATE_BUILDING)
    )
    assert not gone.HasField("version")
    assert (await registry.store.function_by_uid(function.uid)).function is None


async def test_a_live_function_cannot_be_finalized(registry: RunningRegistry) -> None:
    function = await registry.create()

    with pytest.raises(FailedPrecondition, match="is not being deleted"):
        await registry.service("builder").ReportFinalized(pb.ReportFinalizedRequest(function_uid=function.uid))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"state": pb.VERSION_STATE_PENDING}, "state"),
        ({"state": 0}, "state"),
        ({"attempt": 0}, "attempt"),
        ({"layers": []}, "layers"),
        ({"started_at": Timestamp(seconds=10**15)}, "started_at"),
    ],
)
async def test_a_build_report_that_cannot_be_is_refused(
    registry: RunningRegistry, fields: dict[str, Any], field: str
) -> None:
    await registry.create()
    uploaded = (await registry.upload()).version

    with pytest.raises(InvalidArgument) as refused:
        await registry.built(uploaded, **fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"code_sha256": "x"}, "code_sha256"),
        ({"code_sha256": a_code("1").upper()}, "code_sha256"),
        ({"size_bytes": 0}, "size_bytes"),
        ({"created_by": ""}, "created_by"),
    ],
)
async def test_an_upload_that_cannot_be_is_refused(
    registry: RunningRegistry, fields: dict[str, Any], field: str
) -> None:
    await registry.create()

    with pytest.raises(InvalidArgument) as refused:
        await registry.upload(**fields)
    assert refused.value.field == field


async def test_versions_are_listed_newest_first_in_pages(registry: RunningRegistry) -> None:
    await registry.create()
    for code in "123":
        await registry.upload(code=code)

    async def page(token: str = "") -> pb.ListVersionsResponse:
        request = pb.ListVersionsRequest(**WHERE, page_size=2, page_token=token)
        return await registry.user().ListVersions(request)

    first = await page()
    rest = await page(first.next_page_token)
    assert [[each.version for each in p.versions] for p in (first, rest)] == [[3, 2], [1]]
    assert [each.state for each in (*first.versions, *rest.versions)] == [
        pb.VERSION_STATE_PENDING,
        pb.VERSION_STATE_CANCELLED,
        pb.VERSION_STATE_CANCELLED,
    ]
    assert rest.next_page_token == ""
    assert (await version(registry)).version == 3
    with pytest.raises(InvalidArgument):
        await page("AAAA")


async def test_a_version_that_is_not_there_is_not_found(registry: RunningRegistry) -> None:
    await registry.create()

    with pytest.raises(NotFound, match="has no version yet") as refused:
        await version(registry)
    assert refused.value.reason == "VERSION_NOT_FOUND"
    with pytest.raises(NotFound, match="has no version 7") as refused:
        await activate(registry, 7)
    assert refused.value.reason == "VERSION_NOT_FOUND"


async def test_an_older_version_is_activated_with_its_entrypoint(registry: RunningRegistry) -> None:
    function = await registry.deployed()
    await update(registry, "entrypoint", entrypoint="other.handle")
    second = await version(registry)
    assert (second.version, second.entrypoint, second.code_sha256) == (2, "other.handle", a_code("1"))
    with pytest.raises(FailedPrecondition, match="version 2 is Pending: only a built version") as refused:
        await activate(registry, 2)
    assert refused.value.reason == "VERSION_NOT_BUILT"
    await registry.built(second)
    assert await registry.report(function)
    assert (await registry.get()).active_version == 2

    answer = await activate(registry, 1)

    assert (answer.function.entrypoint, answer.function.desired_version) == ("handler.handle", 1)
    assert answer.version.version == 1
    assert not answer.version.active
    assert await registry.report(function)
    assert (await version(registry, 1)).active
    assert not (await version(registry, 2)).active


def config(*paths: str, **fields: Any) -> dict[str, Any]:
    """Configuration that comes with an upload."""
    return {"config": pb.Function(**fields), "config_mask": FieldMask(paths=paths)}


async def test_an_upload_brings_configuration_in_the_same_generation(registry: RunningRegistry) -> None:
    before = await registry.deployed(env_vars={"A": "1"}, description="kept")

    new = config("entrypoint", "memory_mb", "secret_env", entrypoint="other.handle", memory_mb=256)
    new["config"].secret_env["S"].value = "s"
    uploaded = await registry.upload(code="2", **new)

    function = uploaded.function
    assert (uploaded.created, uploaded.version.entrypoint) == (True, "other.handle")
    assert (function.generation, function.phase) == (before.generation + 1, pb.PHASE_PENDING)
    assert (function.entrypoint, function.memory_mb, function.description) == ("other.handle", 256, "kept")
    assert (dict(function.env_vars), list(function.secret_env)) == ({"A": "1"}, ["S"])
    await registry.built(uploaded.version)
    assert (await workload(registry, function)).environment == {"A": "1", "S": "s"}


async def test_an_unchanged_upload_with_changed_configuration_builds_nothing(registry: RunningRegistry) -> None:
    before = await registry.deployed()

    changed = await registry.upload(**config("memory_mb", memory_mb=256))
    again = await registry.upload(**config("memory_mb", memory_mb=256))

    assert (changed.created, changed.version.version, again.created) == (False, 1, False)
    assert (changed.function.memory_mb, changed.function.generation) == (256, before.generation + 1)
    assert again.function == changed.function
    assert await registry.report(changed.function)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (config("memory_mb", memory_mb=5), "memory_mb"),
        (config("runtime", runtime="cobol"), "runtime"),
        (config("entrypoint"), "entrypoint"),
        (config("phase"), "update_mask"),
        ({"build_only": True, **config("runtime", "timeout", runtime="python3.11")}, "timeout_sec"),
        ({"build_only": True, **config()}, "config_mask"),
    ],
)
async def test_configuration_that_is_refused_leaves_everything_as_it_is(
    registry: RunningRegistry, given: dict[str, Any], field: str
) -> None:
    before = await registry.deployed()

    with pytest.raises(InvalidArgument) as refused:
        await registry.upload(code="2", **given)

    assert refused.value.field == field
    assert await registry.get() == before
    assert (await version(registry)).version == 1


async def test_what_is_only_built_has_an_entrypoint_of_its_own(registry: RunningRegistry) -> None:
    before = await registry.deployed()

    uploaded = await registry.upload(code="2", build_only=True, **config("entrypoint", entrypoint="other.handle"))

    function = uploaded.function
    assert uploaded.version.entrypoint == "other.handle"
    assert (function.entrypoint, function.generation, function.phase) == (
        *(before.entrypoint, before.generation, before.phase),
    )
    await registry.built(uploaded.version)
    assert (await activate(registry, 2)).function.entrypoint == "other.handle"


async def test_an_upload_that_switches_off_is_answered_once_nothing_routes_there(registry: RunningRegistry) -> None:
    await registry.deployed()

    off = await registry.upload(**config("replicas", replicas=pb.Replicas(min=0, max=0, concurrency=1)))

    assert (off.function.phase, off.function.message) == (pb.PHASE_READY, "switched off: replicas is 0")
    assert off.function == await registry.get()


@pytest.mark.fault(11)
async def test_the_same_code_is_built_again_unless_it_failed_by_what_is_in_it(registry: RunningRegistry) -> None:
    await registry.deployed()
    for reason, again in (("PLATFORM", True), ("SYNTAX_ERROR", False)):
        failing = (await registry.upload(code="2")).version
        error = pb.BuildError(reason=reason, message="no")
        await registry.built(failing, state=pb.VERSION_STATE_FAILED, message="no", error=error, layers=[])

        assert (await registry.upload(code="2")).created == again
    assert (await registry.get()).phase == pb.PHASE_FAILED


async def test_only_so_many_versions_are_kept() -> None:
    async with (
        running_registry(policy=Policy(functions_per_namespace=9, versions_kept=3)) as registry,
        registry.invoker(),
    ):
        await registry.deployed()
        for code in "2345":
            await registry.built((await registry.upload(code=code, build_only=True)).version)

        listed = await registry.user().ListVersions(pb.ListVersionsRequest(**WHERE))

        assert [each.version for each in listed.versions] == [5, 4, 1]


async def test_what_is_only_built_serves_when_it_is_activated(registry: RunningRegistry) -> None:
    before = await registry.deployed()
    second = await registry.upload(code="2", build_only=True)
    assert (second.version.activate, second.function.generation) == (False, before.generation)
    await registry.built(second.version)
    assert (await registry.get()).desired_version == 1

    assert (await activate(registry, 2)).function.desired_version == 2


@pytest.mark.fault(4)
async def test_every_part_of_a_workload_shows_in_its_template(registry: RunningRegistry) -> None:
    function = await registry.deployed(env_vars={"A": "1", "B": "2"})
    templates = [(await workload(registry, function)).template]
    changes: list[dict[str, Any]] = [
        {"memory_mb": 256},
        {"env_vars": {"A": "2"}},
        {"secret_env": {"S": pb.SecretValue(value="1")}},
        {"secret_env": {"S": pb.SecretValue(value="2")}},
        {"replicas": pb.Replicas(min=0, max=10, concurrency=1)},
    ]
    for change in changes:
        changed = await update(registry, *change, **change)
        assert changed.phase == pb.PHASE_DEPLOYING
        templates.append((await workload(registry, function)).template)
    await registry.built((await registry.upload(code="2")).version)
    templates.append((await workload(registry, function)).template)

    assert len(set(templates)) == len(templates) == 7


async def test_a_workload_tells_what_served_last_when_it_is_something_else(registry: RunningRegistry) -> None:
    function = await registry.deployed(env_vars={"A": "1"}, secret_env={"S": pb.SecretValue(value="old")})
    served = await workload(registry, function)
    assert not served.HasField("serving")
    await update(registry, "memory_mb", "secret_env", memory_mb=256, secret_env={"S": pb.SecretValue(value="new")})
    await registry.built((await registry.upload(code="2")).version)

    newest = await workload(registry, function)

    assert (newest.version, newest.memory_mb, dict(newest.environment)) == (2, 256, {"A": "1", "S": "new"})
    serving = newest.serving
    assert (serving.version, serving.memory_mb, dict(serving.environment)) == (1, 128, {"A": "1", "S": "old"})
    assert (serving.template, serving.generation) == (served.template, served.generation)
    assert list(serving.layers) == list(served.layers)
    assert await registry.report(function, pb.PHASE_FAILED)
    assert (await workload(registry, function)).serving.template == served.template
    await update(registry, "memory_mb", memory_mb=512)
    assert await registry.report(function)
    assert not (await workload(registry, function)).HasField("serving")


@pytest.mark.fault(6)
async def test_the_template_stays_when_no_instance_must_be_replaced(registry: RunningRegistry) -> None:
    function = await registry.deployed(env_vars={name: name for name in "ABCDEFGH"})
    before = await workload(registry, function)

    for change in (
        {"description": "new"},
        {"env_vars": {name: name for name in "HGFEDCBA"}},
        {"replicas": pb.Replicas(min=1, max=2, concurrency=16)},
        {"access": pb.ACCESS_AUTHENTICATED},
    ):
        await update(registry, *change, **change)

    after = await workload(registry, function)
    assert after.template == before.template
    assert after.generation == before.generation + 3


async def test_a_workload_says_whose_it_is(registry: RunningRegistry) -> None:
    function = await registry.create(kind=pb.FUNCTION_KIND_SERVICE)
    namespace = (await registry.user().GetNamespace(pb.GetNamespaceRequest(namespace=NAMESPACE))).namespace

    found = await workload(registry, function)

    assert (found.namespace, found.namespace_number, found.name) == (NAMESPACE, namespace.number, "hello")
    assert (found.kind, found.version, found.deploying) == (pb.FUNCTION_KIND_SERVICE, 0, False)
    assert (found.runtime, found.entrypoint, list(found.layers)) == ("python3.11", "handler.handle", [])
    assert found.revision == await registry.store.revision()
    with pytest.raises(NotFound):
        await workload(registry, pb.Function(uid="nope"))


async def test_outdated_status_reports_are_dropped(registry: RunningRegistry) -> None:
    function = await registry.deployed()
    await update(registry, "memory_mb", memory_mb=256)

    assert not await registry.report(function, generation=function.generation)
    assert not await registry.report(function, version=9)
    assert not await registry.report(pb.Function(uid=function.uid), generation=0)
    assert (await registry.get()).phase == pb.PHASE_DEPLOYING
    assert await registry.report(function, pb.PHASE_DEPLOYING, message="starting 1 of 1")
    assert (await registry.get()).message == "starting 1 of 1"
    assert await registry.report(function, pb.PHASE_FAILED, message="exit code 1")
    failed = await registry.get()
    assert (failed.phase, failed.message, failed.observed_generation) == (pb.PHASE_FAILED, "exit code 1", 3)
    assert failed.active_version == 1
    with pytest.raises(InvalidArgument, match="phase must be Deploying, Ready or Failed, not Pending"):
        await registry.report(function, pb.PHASE_PENDING)


async def test_a_status_report_about_nothing_is_dropped(registry: RunningRegistry) -> None:
    for phase in (pb.PHASE_READY, pb.PHASE_FAILED):
        request = pb.ReportStatusRequest(function_uid="nope", generation=1, version=1, phase=phase)
        assert not (await registry.service("runtime-manager").ReportStatus(request)).accepted


@pytest.mark.fault(14)
async def test_uploads_at_once_are_numbered_and_only_the_last_is_built(registry: RunningRegistry) -> None:
    await registry.create()

    answers = await asyncio.gather(*(registry.upload(code=str(n)) for n in range(8)))

    assert sorted(answer.version.version for answer in answers) == list(range(1, 9))
    listed = (await registry.user().ListVersions(pb.ListVersionsRequest(**WHERE))).versions
    states = [each.state for each in listed]
    assert states == [pb.VERSION_STATE_PENDING] + [pb.VERSION_STATE_CANCELLED] * 7


def trace(name: str) -> Trace:
    """A trace that differs with `name`."""
    return Trace(f"00-{name.encode().hex():0>32}-00f067aa0ba902b7-01")


async def test_a_generation_and_a_version_keep_the_trace_of_the_request_that_made_them(
    registry: RunningRegistry,
) -> None:
    with tracing.within(trace("create")):
        function = await registry.create()
    assert function.traceparent == trace("create").traceparent

    with tracing.within(trace("upload")):
        uploaded = await registry.upload()
    assert uploaded.version.traceparent == uploaded.function.traceparent == trace("upload").traceparent
    with tracing.within(trace("build")):
        built = await registry.built(uploaded.version)
    assert built.traceparent == trace("upload").traceparent
    assert (await workload(registry, function)).traceparent == trace("upload").traceparent
    with tracing.within(trace("deployment")):
        assert await registry.report(function)
    assert (await registry.get()).traceparent == trace("upload").traceparent

    with tracing.within(trace("update")):
        assert (await update(registry, "memory_mb", memory_mb=256)).traceparent == trace("update").traceparent
    assert (await version(registry)).traceparent == trace("upload").traceparent
    assert (await workload(registry, function)).traceparent == trace("update").traceparent


async def test_what_makes_no_generation_keeps_the_trace_of_the_newest(registry: RunningRegistry) -> None:
    with tracing.within(trace("first")):
        await registry.create()
        await registry.upload()

    with tracing.within(trace("again")):
        again = await registry.upload()
        await update(registry, "memory_mb", memory_mb=128)

    assert not again.created
    assert again.version.traceparent == (await registry.get()).traceparent == trace("first").traceparent


async def test_a_request_without_a_trace_leaves_none(registry: RunningRegistry) -> None:
    with tracing.within(trace("first")):
        await registry.deployed()

    assert (await update(registry, "memory_mb", memory_mb=256)).traceparent == ""
    assert (await registry.upload(code="2")).version.traceparent == ""


async def test_going_back_to_a_version_is_the_trace_of_who_goes_back(registry: RunningRegistry) -> None:
    await registry.deployed()
    await registry.built((await registry.upload(code="2")).version)

    with tracing.within(trace("back")):
        answer = await activate(registry, 1)

    assert answer.function.traceparent == trace("back").traceparent
    assert answer.version.traceparent == ""
