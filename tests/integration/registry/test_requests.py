"""The same request twice is answered the same and done once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2 as pb
from sless_platform import faults
from sless_platform.errors import AlreadyExists, FailedPrecondition, InvalidArgument, PlatformError
from sless_registry.application.means import Policy

from tests.support.registry import (
    NAMESPACE,
    OTHER_NAMESPACE,
    OTHER_SUB,
    RunningRegistry,
    a_function,
    running_registry,
)

ID = "0199e325-1cdf-7cda-9319-e5302a85e291"
OTHER_ID = "0199e325-1cdf-7cda-9319-e5302a85e292"

pytestmark = pytest.mark.usefixtures("fences_pass")


def create(name: str = "hello", request_id: str = ID, **fields: Any) -> pb.CreateFunctionRequest:
    return pb.CreateFunctionRequest(function=a_function(name, **fields), request_id=request_id)


async def test_a_repeated_create_gets_the_first_answer(registry: RunningRegistry) -> None:
    request = create(env_vars={name: name for name in "ABCDEFGH"}, secret_env={"S": pb.SecretValue(value="s")})
    first = await registry.user().CreateFunction(request)
    await registry.upload()
    revision = await registry.store.revision()

    again = await registry.user().CreateFunction(request)

    assert again == first
    assert await registry.store.revision() == revision
    with pytest.raises(AlreadyExists):
        await registry.user().CreateFunction(create(request_id=OTHER_ID))


async def test_a_request_that_is_repeated_at_once_is_done_once(registry: RunningRegistry) -> None:
    answers = await asyncio.gather(*(registry.user().CreateFunction(create()) for _ in range(8)))

    assert len({answer.function.uid for answer in answers}) == 1
    assert await registry.store.revision() == 1


async def test_every_mutation_can_be_repeated(registry: RunningRegistry) -> None:
    where: dict[str, Any] = {"namespace": NAMESPACE, "name": "hello", "request_id": ID}
    user = registry.user()
    await user.CreateFunction(create())
    uploads = [await registry.upload(request_id=ID) for _ in range(2)]
    assert uploads[0] == uploads[1]
    assert uploads[1].created
    await registry.built(uploads[0].version)
    update = pb.UpdateFunctionRequest(
        function=a_function(memory_mb=256), update_mask=FieldMask(paths=["memory_mb"]), request_id=ID
    )
    assert await user.UpdateFunction(update) == await user.UpdateFunction(update)
    activate = pb.ActivateVersionRequest(**where, version=1)
    assert await user.ActivateVersion(activate) == await user.ActivateVersion(activate)
    for _ in range(2):
        await user.DeleteFunction(pb.DeleteFunctionRequest(**where))
    for _ in range(2):
        await user.DeleteNamespace(pb.DeleteNamespaceRequest(namespace=NAMESPACE, confirm=NAMESPACE, request_id=ID))


async def test_a_request_id_is_good_for_one_request(registry: RunningRegistry) -> None:
    await registry.user().CreateFunction(create())

    for other in (create("other"), create(memory_mb=256)):
        with pytest.raises(FailedPrecondition, match=f"request_id {ID} was used for another CreateFunction") as refused:
            await registry.user().CreateFunction(other)
        assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_a_request_id_is_its_users_own(registry: RunningRegistry) -> None:
    await registry.user().CreateFunction(create())
    await registry.upload(request_id=ID)

    other = await registry.user(OTHER_SUB).CreateFunction(create(namespace=OTHER_NAMESPACE))
    uploaded = await registry.upload(namespace=OTHER_NAMESPACE, created_by=OTHER_SUB, request_id=ID)

    assert other.function.namespace == uploaded.version.namespace == OTHER_NAMESPACE


async def test_an_error_is_not_an_answer(registry: RunningRegistry) -> None:
    with pytest.raises(InvalidArgument):
        await registry.user().CreateFunction(create(memory_mb=5))

    assert (await registry.user().CreateFunction(create())).function.memory_mb == 128


async def test_a_request_id_must_be_a_uuid(registry: RunningRegistry) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await registry.user().CreateFunction(create(request_id="1"))
    assert refused.value.field == "request_id"


async def test_what_was_committed_before_the_answer_was_lost_is_answered_again(registry: RunningRegistry) -> None:
    faults.configure("registry.after_commit_before_answer=raise@1")
    try:
        with pytest.raises(PlatformError, match="internal error; request id"):
            await registry.user().CreateFunction(create())
        again = await registry.user().CreateFunction(create())
    finally:
        faults.configure("")

    assert again.function.uid == (await registry.get()).uid
    assert await registry.store.revision() == 1


async def test_an_answer_is_given_again_for_a_day_only() -> None:
    policy = Policy(functions_per_namespace=9, versions_kept=9, answers_kept=timedelta(0))
    async with running_registry(policy=policy) as registry:
        await registry.user().CreateFunction(create())

        with pytest.raises(AlreadyExists):
            await registry.user().CreateFunction(create())
