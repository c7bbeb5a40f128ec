"""API keys through the public doors of the whole platform, and a platform whose issuer is a cloud."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sless_contracts.catalog import namespace_of

from tests.support.cloud import Cloud, running_cloud
from tests.support.embedded import Platform, User, running_platform, until

HANDLER = """
    def handle(event):
        return {"ok": True}
"""


def test_a_program_does_with_a_key_what_its_owner_does(platform: Platform, user: User) -> None:
    program = User(platform, user.sub, user.api_key()["secret"])

    deployed = program.deploy("by-key", HANDLER, access="authenticated")

    assert deployed["phase"] == "Ready"
    assert program.fn("by-key").status_code == 401
    answer = program.fn("by-key", headers={"Authorization": f"Bearer {program.token}"})
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    version = program.request("GET", "/services/by-key/versions/1").json()
    assert version["created_by"] == user.sub
    assert program.request("DELETE", "/services/by-key").status_code == 204


def test_a_revoked_key_is_refused_everywhere_within_five_seconds(platform: Platform, user: User) -> None:
    user.deploy("guarded", HANDLER, access="authenticated")
    key = user.api_key()
    authorization = {"Authorization": f"Bearer {key['secret']}"}

    def statuses() -> set[int]:
        return {
            platform.request("GET", "/v1/whoami", key["secret"]).status_code,
            user.fn("guarded", headers=authorization).status_code,
        }

    assert statuses() == {200}
    assert user.request("DELETE", f"/api-keys/{key['id']}").status_code == 204
    revoked = time.monotonic()
    until(lambda: statuses() == {401}, "the key to be refused")

    assert time.monotonic() - revoked < 5
    assert user.request("DELETE", f"/api-keys/{key['id']}").status_code == 404
    user.request("DELETE", "/services/guarded")


def test_a_namespaces_keys_end_with_it(platform: Platform, user: User) -> None:
    user.request("POST", "/ensure")
    key = user.api_key()

    assert user.request("DELETE", f"?confirm={user.namespace}").status_code == 204

    until(lambda: platform.request("GET", "/v1/whoami", key["secret"]).status_code == 401, "the key to end", 5)
    user.request("POST", "/ensure")
    assert user.request("GET", "/api-keys").json() == []
    assert platform.request("GET", "/v1/whoami", key["secret"]).status_code == 401


def test_the_command_line_takes_a_key_and_no_log_holds_its_secret(platform: Platform, user: User) -> None:
    key = user.api_key("ci")

    listed = json.loads(platform.sless("api-key", "list", "-o", "json", environ=_as(user, user.token)).stdout)
    assert [entry["id"] for entry in listed] == [key["id"]]
    used = json.loads(platform.sless("service", "list", "-o", "json", environ=_as(user, key["secret"])).stdout)
    assert used == []

    secret = key["secret"].rpartition("_")[2]
    assert secret not in platform.log()


def _as(user: User, token: str) -> dict[str, str]:
    return {"SLESS_ENDPOINT": user.platform.endpoint, "SLESS_API_TOKEN": token}


@contextmanager
def cloud() -> Iterator[Cloud]:
    """A cloud that runs beside the test."""
    ready, done = threading.Event(), threading.Event()
    made: list[Cloud] = []

    async def run() -> None:
        async with running_cloud() as one:
            made.append(one)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(20)
    try:
        yield made[0]
    finally:
        done.set()
        thread.join()


def cloud_token(sub: str) -> str:
    """A token that only the cloud can judge."""
    parts: list[Any] = [{"alg": "HS256"}, {"sub": sub}, "x"]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


@pytest.mark.fault(38)
def test_a_platform_may_have_a_cloud_for_its_issuer() -> None:
    with cloud() as issuer, running_platform(SLESS_ISSUER_KIND="remote", SLESS_REMOTE_URL=issuer.url) as platform:
        alice, refused = cloud_token("alice"), cloud_token("mallory")
        issuer.refused.add(refused)

        assert platform.request("GET", "/v1/whoami", alice).json() == {
            "sub": "alice", "namespace": namespace_of("alice"), "roles": [],
        }  # fmt: skip
        assert platform.request("GET", "/v1/whoami", refused).status_code == 401
        assert platform.request("GET", "/v1/whoami", platform.token("eve")).status_code == 200  # the cloud takes it
        key = User(platform, "alice", alice).api_key()
        assert platform.request("GET", "/v1/whoami", key["secret"]).json()["sub"] == "alice"

        issuer.status, issuer.body = 200, "<html>"
        answer = platform.request("GET", "/v1/whoami", cloud_token("bob"))
        assert answer.status_code == 503
        assert issuer.url in answer.json()["error"]
