"""Functions and namespaces through the API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, ResourceExhausted
from sless_registry.application.means import Policy

from tests.support.registry import (
    NAMESPACE,
    OTHER_NAMESPACE,
    OTHER_SUB,
    RunningRegistry,
    a_function,
    running_registry,
)

pytestmark = pytest.mark.usefixtures("fences_pass")


async def update(
    registry: RunningRegistry, *paths: str, name: str = "hello", etag: str = "", **fields: Any
) -> pb.Function:
    """The function after an update of these paths."""
    request = pb.UpdateFunctionRequest(
        function=a_function(name, **fields), update_mask=FieldMask(paths=paths), etag=etag
    )
    return (await registry.user().UpdateFunction(request)).function


async def outcome(registry: RunningRegistry) -> pb.Function:
    """The function once its outcome is known."""
    request = pb.WaitFunctionRequest(namespace=NAMESPACE, name="hello", wait=Duration(seconds=600))
    return (await registry.user().WaitFunction(request, timeout=60)).function


def delete(name: str = "hello", **fields: Any) -> pb.DeleteFunctionRequest:
    return pb.DeleteFunctionRequest(namespace=NAMESPACE, name=name, **fields)


async def test_a_created_function_has_its_kinds_defaults_and_its_namespace(registry: RunningRegistry) -> None:
    made = await registry.create(display_name="Hello", env_vars={"A": "1"}, labels={"team": "x"})

    assert (made.kind, made.memory_mb, made.timeout.seconds) == (pb.FUNCTION_KIND_FUNCTION, 128, 30)
    assert (made.replicas.min, made.replicas.max, made.replicas.concurrency) == (0, 10, 16)
    assert (made.access, made.phase, made.generation) == (pb.ACCESS_PUBLIC, pb.PHASE_PENDING, 1)
    assert made.message == "waiting for code: upload a zip"
    assert made.etag == f"{made.uid[:8]}-1"
    assert await registry.get() == made
    namespace = await registry.user().GetNamespace(pb.GetNamespaceRequest(namespace=NAMESPACE))
    assert namespace.namespace.number > 0


async def test_a_service_has_no_time_limit_unless_it_names_one(registry: RunningRegistry) -> None:
    made = await registry.create(kind=pb.FUNCTION_KIND_SERVICE)
    assert not made.HasField("timeout")
    assert (made.replicas.min, made.replicas.max, made.replicas.concurrency) == (1, 1, 64)

    changed = await update(registry, "timeout", kind=pb.FUNCTION_KIND_SERVICE, timeout=Duration(seconds=5))

    assert changed.timeout.seconds == 5


@pytest.mark.fault(9)
@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"runtime": "cobol"}, "runtime", "runtime must be one of python3.11, not 'cobol'"),
        ({"memory_mb": 5}, "memory_mb", "memory_mb must be from 64 to 8192, not 5"),
        ({"timeout": Duration(seconds=10**12)}, "timeout_sec", "timeout_sec must be from 1 to 900, not 10000"),
        ({"timeout": Duration(seconds=10**18)}, "timeout_sec", "timeout_sec is out of range"),
        ({"access": 7}, "access", "access must be one of public, authenticated, not 7"),
        ({"env_vars": {"SLESS_X": "1"}}, "env_vars.SLESS_X", "env_vars names must not begin with SLESS_"),
    ],
)
async def test_what_is_not_allowed_is_refused_on_create_and_on_update_alike(
    registry: RunningRegistry, fields: dict[str, Any], field: str, message: str
) -> None:
    await registry.create()
    for attempt in (
        registry.create("other", **fields),
        update(registry, **fields),
        update(registry, *fields, **fields),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await attempt
        assert (refused.value.reason, refused.value.field) == ("INVALID_FIELD", field)
        assert refused.value.message.startswith(message)

    assert (await registry.get()).generation == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"name": "No"}, "name"), ({"name": ""}, "name"), ({"kind": 0}, "kind"), ({"kind": 9}, "kind")],
)
async def test_a_function_needs_a_name_and_a_kind(
    registry: RunningRegistry, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await registry.user().CreateFunction(pb.CreateFunctionRequest(function=a_function(**{"name": "x", **fields})))
    assert refused.value.field == field


async def test_a_taken_name_is_refused_naming_the_kind_that_has_it(registry: RunningRegistry) -> None:
    await registry.create(kind=pb.FUNCTION_KIND_SERVICE)

    with pytest.raises(AlreadyExists, match="a service named 'hello' exists") as refused:
        await registry.create()
    assert (refused.value.reason, refused.value.metadata["kind"]) == ("FUNCTION_EXISTS", "service")


@pytest.mark.fault(12)
async def test_a_function_that_failed_and_never_served_gives_way(registry: RunningRegistry) -> None:
    old = await registry.create()
    version = (await registry.upload()).version
    await registry.built(version, state=pb.VERSION_STATE_FAILED, message="line 1: oops", layers=[])
    assert (await registry.get()).phase == pb.PHASE_FAILED

    new = await registry.create(kind=pb.FUNCTION_KIND_SERVICE)

    assert new.uid != old.uid
    assert (await registry.get()).kind == pb.FUNCTION_KIND_SERVICE
    for service in ("builder", "runtime-manager"):
        await registry.service(service).ReportFinalized(pb.ReportFinalizedRequest(function_uid=old.uid))
    assert (await registry.get()).uid == new.uid


@pytest.mark.fault(12)
async def test_a_function_that_failed_but_served_keeps_its_name(registry: RunningRegistry) -> None:
    await registry.deployed()
    version = (await registry.upload(code="2")).version
    await registry.built(version, state=pb.VERSION_STATE_FAILED, message="oops", layers=[])

    with pytest.raises(AlreadyExists):
        await registry.create()


async def test_the_kind_of_the_collection_decides_what_is_found(registry: RunningRegistry) -> None:
    await registry.create()
    request = pb.GetFunctionRequest(namespace=NAMESPACE, name="hello", kind=pb.FUNCTION_KIND_SERVICE)

    with pytest.raises(NotFound, match=r"there is no service 'hello' .* \('hello' is a function\)") as refused:
        await registry.user().GetFunction(request)
    assert refused.value.reason == "FUNCTION_NOT_FOUND"
    assert int(refused.value.metadata["read_revision"]) == 1


@pytest.mark.fault(8)
async def test_what_is_not_there_is_not_found(registry: RunningRegistry) -> None:
    user = registry.user()
    where: dict[str, Any] = {"namespace": NAMESPACE, "name": "nope"}
    for attempt in (
        user.DeleteFunction(pb.DeleteFunctionRequest(**where)),
        user.GetFunction(pb.GetFunctionRequest(**where)),
        user.UpdateFunction(pb.UpdateFunctionRequest(function=a_function("nope"))),
        user.WaitFunction(pb.WaitFunctionRequest(**where)),
        user.ListVersions(pb.ListVersionsRequest(**where)),
        user.GetVersion(pb.GetVersionRequest(**where, version=1)),
        user.ActivateVersion(pb.ActivateVersionRequest(**where, version=1)),
        registry.upload("nope"),
    ):
        with pytest.raises(NotFound) as refused:
            await attempt
        assert refused.value.reason == "FUNCTION_NOT_FOUND"
    with pytest.raises(NotFound) as refused:
        await user.GetNamespace(pb.GetNamespaceRequest(namespace=NAMESPACE))
    assert refused.value.reason == "NAMESPACE_NOT_FOUND"


@pytest.mark.fault(2)
async def test_a_create_right_after_a_delete_works(registry: RunningRegistry) -> None:
    old = await registry.deployed()

    await registry.user().DeleteFunction(delete())
    with pytest.raises(NotFound):
        await registry.get()
    new = await registry.create()

    assert new.uid != old.uid
    with pytest.raises(NotFound):
        await registry.service("invoker").GetFunction(pb.GetFunctionRequest(uid=old.uid))


async def test_a_mask_changes_only_what_it_names(registry: RunningRegistry) -> None:
    before = await registry.create(memory_mb=256, description="old")

    after = await update(registry, "description", description="new")

    assert (after.memory_mb, after.description, after.generation) == (256, "new", 2)
    assert after.etag != before.etag
    replaced = await update(registry)
    assert (replaced.memory_mb, replaced.description, replaced.generation) == (128, "", 3)


async def test_a_mask_that_names_what_cannot_change_is_refused(registry: RunningRegistry) -> None:
    await registry.create()

    with pytest.raises(InvalidArgument, match="update_mask names 'phase'") as refused:
        await update(registry, "phase")
    assert refused.value.field == "update_mask"


@pytest.mark.fault(6)
async def test_an_update_that_changes_nothing_writes_nothing(registry: RunningRegistry) -> None:
    before = await registry.create(env_vars={str(n): "" for n in "ABCDEF"})
    revision = await registry.store.revision()

    after = await update(registry, env_vars={str(n): "" for n in "FEDCBA"})

    assert after == before
    assert await registry.store.revision() == revision


@pytest.mark.fault(29)
async def test_an_outdated_etag_is_refused_everywhere(registry: RunningRegistry) -> None:
    before = await registry.deployed()
    after = await update(registry, "memory_mb", memory_mb=256, etag=before.etag)
    where: dict[str, Any] = {"namespace": NAMESPACE, "name": "hello", "etag": before.etag}

    for attempt in (
        update(registry, "memory_mb", memory_mb=512, etag=before.etag),
        registry.user().DeleteFunction(pb.DeleteFunctionRequest(**where)),
        registry.user().ActivateVersion(pb.ActivateVersionRequest(**where, version=1)),
        registry.upload(code="2", etag=before.etag),
    ):
        with pytest.raises(Aborted, match="has changed") as refused:
            await attempt
        assert (refused.value.reason, refused.value.metadata["etag"]) == ("ETAG_MISMATCH", after.etag)
    assert await registry.get() == after


async def test_functions_are_listed_in_pages(registry: RunningRegistry) -> None:
    for name in ("c", "a", "b"):
        await registry.create(name)
    await registry.create("s", kind=pb.FUNCTION_KIND_SERVICE)

    async def page(**fields: Any) -> pb.ListFunctionsResponse:
        return await registry.user().ListFunctions(pb.ListFunctionsRequest(namespace=NAMESPACE, **fields))

    first = await page(page_size=2)
    rest = await page(page_size=2, page_token=first.next_page_token)
    assert [[f.name for f in each.functions] for each in (first, rest)] == [["a", "b"], ["c", "s"]]
    assert rest.next_page_token == ""
    assert [f.name for f in (await page(kind=pb.FUNCTION_KIND_SERVICE)).functions] == ["s"]
    for token in ("x", "AAAA", first.next_page_token[:-4] + "AAA="):
        with pytest.raises(InvalidArgument) as refused:
            await page(page_token=token)
        assert (refused.value.reason, refused.value.field) == ("PAGE_TOKEN_INVALID", "page_token")
    with pytest.raises(InvalidArgument):
        await page(page_token=first.next_page_token, kind=pb.FUNCTION_KIND_SERVICE)
    with pytest.raises(InvalidArgument, match="page_size must be from 1 to 1000"):
        await page(page_size=1001)


async def test_a_page_fits_into_a_message(registry: RunningRegistry) -> None:
    names = [f"f-{n:03}" for n in range(80)]
    await asyncio.gather(
        *(registry.create(name, env_vars={"X": "é" * 16_000}, description="é" * 4_000) for name in names)
    )

    found, token = [], ""
    while True:
        request = pb.ListFunctionsRequest(namespace=NAMESPACE, page_size=1_000, page_token=token)
        page = await registry.user().ListFunctions(request)
        found += [function.name for function in page.functions]
        token = page.next_page_token
        if not token:
            break

    assert found == names


async def test_a_namespace_has_at_most_so_many_functions() -> None:
    async with running_registry(policy=Policy(functions_per_namespace=2, versions_kept=50)) as registry:
        await registry.create("a")
        await registry.create("b")

        with pytest.raises(ResourceExhausted, match="has 2 functions and services, which is the most") as refused:
            await registry.create("c")
        assert refused.value.reason == "LIMIT_REACHED"


async def test_secrets_are_never_shown_and_can_be_kept(registry: RunningRegistry) -> None:
    made = await registry.create(secret_env={"S": pb.SecretValue(value="hunter2"), "T": pb.SecretValue(value="t")})
    shown = made.secret_env["S"]
    assert shown.WhichOneof("content") == "sha256"
    assert len(shown.sha256) == 64
    assert b"hunter2" not in made.SerializeToString()

    kept = await update(registry, "secret_env", secret_env={"S": shown})
    assert dict(kept.secret_env) == {"S": shown}
    same = await update(registry, "secret_env", secret_env={"S": pb.SecretValue(value="hunter2")})
    assert same == kept
    changed = await update(registry, "secret_env", secret_env={"S": pb.SecretValue(value="hunter3")})
    assert changed.secret_env["S"].sha256 != shown.sha256
    for wrong in (pb.SecretValue(sha256="0" * 64), pb.SecretValue(), pb.SecretValue(sha256=shown.sha256)):
        with pytest.raises(InvalidArgument) as refused:
            await update(registry, "secret_env", secret_env={"S": wrong})
        assert refused.value.field == "secret_env.S"
    workload = await registry.service("runtime-manager").GetWorkload(pb.GetWorkloadRequest(function_uid=made.uid))
    assert dict(workload.workload.environment) == {"S": "hunter3"}


async def test_one_value_looks_different_in_two_functions(registry: RunningRegistry) -> None:
    secret = {"S": pb.SecretValue(value="1234")}

    shown = {(await registry.create(name, secret_env=secret)).secret_env["S"].sha256 for name in "ab"}

    assert len(shown) == 2


async def test_a_namespace_is_ensured_once(registry: RunningRegistry) -> None:
    request = pb.EnsureNamespaceRequest(namespace=NAMESPACE)

    first = await registry.user().EnsureNamespace(request)
    again = await registry.user().EnsureNamespace(request)

    assert first == again
    admin = registry.user(OTHER_SUB, "admin")
    assert (await admin.EnsureNamespace(pb.EnsureNamespaceRequest(namespace="sless-0123456789abcdef"))).namespace.number
    with pytest.raises(InvalidArgument, match="namespace must be"):
        await admin.EnsureNamespace(pb.EnsureNamespaceRequest(namespace="kube-system"))


async def test_a_namespace_goes_with_all_that_is_in_it(registry: RunningRegistry) -> None:
    functions = [await registry.create(name) for name in "abc"]
    version = (await registry.upload("a")).version
    other = registry.user(OTHER_SUB)
    await other.CreateFunction(pb.CreateFunctionRequest(function=a_function(namespace=OTHER_NAMESPACE)))
    before = (await registry.user().EnsureNamespace(pb.EnsureNamespaceRequest(namespace=NAMESPACE))).namespace
    revision = await registry.store.revision()
    with pytest.raises(InvalidArgument, match="confirm must be"):
        await registry.user().DeleteNamespace(pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm="x"))

    await registry.user().DeleteNamespace(pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE))

    assert await registry.store.revision() == revision + 1
    listed = await registry.user().ListFunctions(pb.ListFunctionsRequest(namespace=NAMESPACE))
    assert list(listed.functions) == []
    assert (await registry.built(version)).state == pb.VERSION_STATE_CANCELLED
    for function in functions:
        with pytest.raises(NotFound):
            await registry.service("invoker").GetFunction(pb.GetFunctionRequest(uid=function.uid))
    with pytest.raises(NotFound) as refused:
        await registry.user().DeleteNamespace(pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE))
    assert refused.value.reason == "NAMESPACE_NOT_FOUND"
    again = (await registry.user().EnsureNamespace(pb.EnsureNamespaceRequest(namespace=NAMESPACE))).namespace
    assert again.number > before.number
    assert (await other.GetFunction(pb.GetFunctionRequest(namespace=OTHER_NAMESPACE, name="hello"))).function.uid


async def test_an_empty_namespace_is_deleted_without_a_fence() -> None:
    async with running_registry() as registry:
        await registry.user().EnsureNamespace(pb.EnsureNamespaceRequest(namespace=NAMESPACE))

        await registry.user().DeleteNamespace(pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE))


async def test_waiting_ends_with_the_outcome(registry: RunningRegistry) -> None:
    function = await registry.create()
    await registry.built((await registry.upload()).version)
    waiting = asyncio.create_task(outcome(registry))

    assert await registry.report(function)

    assert await waiting == await registry.get()
    assert (await outcome(registry)).phase == pb.PHASE_READY


async def test_waiting_ends_when_its_time_is_over(registry: RunningRegistry) -> None:
    made = await registry.create()

    def request(**wait: int) -> pb.WaitFunctionRequest:
        return pb.WaitFunctionRequest(namespace=NAMESPACE, name="hello", wait=Duration(**wait))

    assert (await registry.user().WaitFunction(request(nanos=10_000_000))).function == made
    assert (await registry.user().WaitFunction(request(seconds=600), timeout=0.5)).function == made
    for wrong in (request(seconds=601), request(seconds=-1)):
        with pytest.raises(InvalidArgument, match="wait must be from 0 to 600 seconds"):
            await registry.user().WaitFunction(wrong)


async def test_waiting_ends_when_the_function_is_deleted(registry: RunningRegistry) -> None:
    await registry.create()
    waiting = asyncio.create_task(outcome(registry))

    await registry.user().DeleteFunction(delete())

    with pytest.raises(NotFound):
        await waiting
