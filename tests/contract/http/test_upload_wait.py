"""Uploads that are waited for."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from sless.registry.v1 import registry_pb2 as pb

from tests.support.gateway import NAMESPACE, Gateway, until
from tests.support.raw_http import Answer

ZIP = b"PK\x03\x04" + bytes(range(256)) * 40


async def send(gateway: Gateway, query: str) -> Answer:
    target = f"/v1/namespaces/{NAMESPACE}/services/hello/upload{query}"
    return await gateway.ask("POST", target, ("Content-Type", "application/zip"), body=ZIP)


def becomes(phase: int, message: str = "", *, settled: bool = True, active: int = 1) -> Any:
    """What WaitFunction makes of the function."""

    def wait(function: pb.Function) -> None:
        function.phase, function.message = pb.Phase.ValueType(phase), message
        function.active_version = active
        function.observed_generation = function.generation if settled else function.generation - 1

    return wait


@pytest.mark.parametrize(
    ("waits", "status", "phase", "message"),
    [
        (becomes(pb.PHASE_READY), 200, "Ready", "ready"),
        (becomes(pb.PHASE_BUILDING, settled=False), 202, "Building", "build queued"),
        (becomes(pb.PHASE_READY, settled=False), 202, "Ready", "build queued"),
    ],
)
async def test_an_upload_that_is_waited_for_says_what_became_of_it(
    gateway: Gateway, waits: Any, status: int, phase: str, message: str
) -> None:
    await gateway.create()
    gateway.services.registry.waits = waits

    answer = await send(gateway, "?wait=60")

    assert answer.status == status
    assert answer.json() == {
        "message": message,
        "phase": phase,
        "version": 1,
        "code_sha256": hashlib.sha256(ZIP).hexdigest(),
    }
    (asked,) = [one for one in gateway.services.registry.requests if isinstance(one, pb.WaitFunctionRequest)]
    assert asked.wait.seconds == 60


async def test_an_upload_that_failed_is_422_with_the_logs_end(gateway: Gateway) -> None:
    await gateway.create()
    gateway.services.registry.waits = becomes(pb.PHASE_FAILED, "handler.py:3: invalid syntax")

    answer = await send(gateway, "?wait=60")

    assert (answer.status, answer.code) == (422, "BUILD_FAILED")
    assert answer.json()["error"] == "handler.py:3: invalid syntax"


CHANGES = {"PUT": "", "POST": "/versions/1/activate"}


async def change(gateway: Gateway, method: str, query: str) -> Answer:
    """A change of configuration, or an activation, of a function with a built version."""
    await gateway.create()
    await send(gateway, "")
    gateway.services.registry.versions[NAMESPACE, "hello"][0].state = pb.VERSION_STATE_BUILT
    body = {"runtime": "python3.11", "entrypoint": "handler.handle"} if method == "PUT" else None
    target = f"/v1/namespaces/{NAMESPACE}/services/hello{CHANGES[method]}{query}"
    return await gateway.ask(method, target, **({} if body is None else {"json_body": body}))


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    ("waits", "status", "phase"),
    [(becomes(pb.PHASE_READY), 200, "Ready"), (becomes(pb.PHASE_DEPLOYING, settled=False), 202, "Deploying")],
)
async def test_a_change_that_is_waited_for_says_what_became_of_it(
    gateway: Gateway, method: str, waits: Any, status: int, phase: str
) -> None:
    gateway.services.registry.waits = waits

    answer = await change(gateway, method, "?wait=60")

    assert (answer.status, answer.json()["phase"], answer.json()["name"]) == (status, phase, "hello")
    assert answer.header("etag") is not None


@pytest.mark.parametrize("method", CHANGES)
async def test_a_change_that_could_not_be_started_is_422(gateway: Gateway, method: str) -> None:
    gateway.services.registry.waits = becomes(pb.PHASE_FAILED, "the handler ended with exit code 1")

    answer = await change(gateway, method, "?wait=60")

    assert (answer.status, answer.code) == (422, "BUILD_FAILED")
    assert answer.json()["error"] == "the handler ended with exit code 1"


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("query", ["?wait=601", "?wait=-1", "?wait=x", "?wait="])
async def test_a_wait_that_cannot_be_is_400_and_changes_nothing(gateway: Gateway, method: str, query: str) -> None:
    answer = await change(gateway, method, query)

    assert (answer.status, answer.json()["field"]) == (400, "wait")
    asked = [type(each) for each in gateway.services.registry.requests]
    assert pb.UpdateFunctionRequest not in asked
    assert pb.ActivateVersionRequest not in asked


async def test_the_same_code_that_failed_before_says_so_at_once(gateway: Gateway) -> None:
    await gateway.create()
    await send(gateway, "")
    (version,) = gateway.services.registry.versions[NAMESPACE, "hello"]
    version.state, version.message = pb.VERSION_STATE_FAILED, "handler.py:3: invalid syntax"
    gateway.services.builder.again = version

    queued = await send(gateway, "")
    gateway.services.registry.waits = becomes(pb.PHASE_READY, active=7)
    waited = await send(gateway, "?wait=60")

    assert queued.status == 200
    assert queued.json()["message"] == "unchanged: version 1 has the same content, and its build failed"
    assert (waited.status, waited.json()["error"]) == (422, "handler.py:3: invalid syntax")


async def test_an_upload_that_was_replaced_while_it_was_waited_for_is_409(gateway: Gateway) -> None:
    await gateway.create()

    def replaced(function: pb.Function) -> None:
        gateway.services.registry.versions[NAMESPACE, "hello"][0].state = pb.VERSION_STATE_CANCELLED
        becomes(pb.PHASE_READY, active=2)(function)

    gateway.services.registry.waits = replaced

    answer = await send(gateway, "?wait=60")

    assert (answer.status, answer.code) == (409, "CONFLICT")


async def test_not_waiting_at_all_may_be_said(gateway: Gateway) -> None:
    await gateway.create()

    assert (await send(gateway, "?wait=0")).json()["message"] == "build queued"


@pytest.mark.parametrize(
    ("state", "status"),
    [(pb.VERSION_STATE_BUILT, 200), (pb.VERSION_STATE_FAILED, 422), (pb.VERSION_STATE_CANCELLED, 409)],
)
async def test_what_is_only_built_is_waited_for_by_its_version(gateway: Gateway, state: int, status: int) -> None:
    await gateway.create()
    uploading = asyncio.create_task(send(gateway, "?wait=60&activate=false"))
    await until(lambda: (NAMESPACE, "hello") in gateway.services.registry.versions)
    (version,) = gateway.services.registry.versions[NAMESPACE, "hello"]
    version.state, version.message = pb.VersionState.ValueType(state), "log's end"

    assert (await uploading).status == status


async def test_what_is_only_built_and_still_building_is_202(gateway: Gateway) -> None:
    await gateway.create()

    assert (await send(gateway, "?wait=1&activate=false")).status == 202
