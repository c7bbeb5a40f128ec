"""From an upload to an answered URL, and all that comes after."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.embedded import Platform, User, until, zipped

HELLO = "def handle(event):\n    return {'hello': event.get('name', 'world')}\n"
VERSION = """
import os

def handle(event):
    return {{'code': {code}, 'version': os.environ['SLESS_VERSION'], 'env': os.environ.get('COLOUR')}}
"""


def test_a_service_answers_at_its_url_once_it_is_ready(user: User) -> None:
    service = user.deploy("hello", HELLO)

    assert service["phase"] == service["status"] == "Ready"
    assert service["generation"] == service["observed_generation"]
    assert service["active_version"] == 1
    assert service["url"] == service["invoke_url"] == user.url("hello")
    assert "@sha256:" in service["image_ref"]
    answer = httpx.post(service["url"], json={"name": "you"})
    assert (answer.status_code, answer.json()) == (200, {"hello": "you"})
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-request-id"]
    assert len(answer.headers["x-sless-invocation-id"]) == 26


@pytest.mark.fault(3)
def test_ready_means_that_the_very_next_call_succeeds(user: User) -> None:
    for number in range(5):
        name = f"next-{number}"
        user.create(name)
        user.upload(name, {"handler.py": HELLO}, wait=None)
        assert user.settled(name)["phase"] == "Ready"
        assert user.fn(name).status_code == 200


def test_a_function_is_called_by_its_owner_only(user: User, platform: Platform) -> None:
    function = user.deploy("quiet", HELLO, "functions")

    assert function["url"] is None
    assert user.fn("quiet").status_code == 404
    assert user.fn("quiet").json()["code"] == "NOT_FOUND"
    invoked = user.request("POST", "/functions/quiet/invoke", json={"name": "me"})
    assert (invoked.status_code, invoked.json()) == (200, {"hello": "me"})
    assert httpx.post(function["invoke_url"]).status_code == 401
    stranger = platform.user()
    refused = httpx.post(function["invoke_url"], headers={"Authorization": f"Bearer {stranger.token}"})
    assert refused.status_code == 403


@pytest.mark.fault(4)
def test_a_change_of_configuration_reaches_what_runs_and_drops_no_call(user: User) -> None:
    user.deploy(
        "config", VERSION.format(code=1), env_vars={"COLOUR": "red"}, replicas={"min": 1, "max": 2, "concurrency": 8}
    )
    assert user.fn("config").json()["env"] == "red"

    def call(_: int) -> int:
        return user.fn("config").status_code

    with ThreadPoolExecutor(8) as pool:
        calls = pool.map(call, range(120))
        body = {
            "runtime": "python3.11",
            "entrypoint": "handler.handle",
            "env_vars": {"COLOUR": "blue"},
            "memory_mb": 256,
            "replicas": {"min": 1, "max": 2, "concurrency": 8},
        }
        changed = user.request("PUT", "/services/config", json=body)
        assert changed.status_code == 200, changed.text
        service = user.settled("config")
        statuses = set(calls)

    assert service["phase"] == "Ready"
    assert (service["memory_mb"], service["env_vars"]) == (256, {"COLOUR": "blue"})
    assert user.fn("config").json()["env"] == "blue"
    assert statuses == {200}


@pytest.mark.fault(6)
def test_an_update_that_changes_nothing_replaces_nothing(user: User) -> None:
    handler = "import uuid\nIDENTITY = uuid.uuid4().hex\n\ndef handle(event):\n    return IDENTITY\n"
    environment = {f"VARIABLE_{number}": str(number) for number in range(20)}
    service = user.deploy("steady", handler, env_vars=environment)
    before = user.fn("steady").text

    body = {"runtime": "python3.11", "entrypoint": "handler.handle", "env_vars": dict(reversed(environment.items()))}
    again = user.request("PUT", "/services/steady", json=body).json()
    relabelled = user.request("PUT", "/services/steady", json={**body, "display_name": "Steady"})

    assert again["generation"] == service["generation"]
    assert relabelled.json()["generation"] == service["generation"] + 1
    assert user.settled("steady")["phase"] == "Ready"
    assert user.fn("steady").text == before


def test_new_code_serves_and_the_old_version_can_be_activated_again(user: User) -> None:
    user.deploy("code", VERSION.format(code=1))

    second = user.upload("code", {"handler.py": VERSION.format(code=2)})
    assert (second.status_code, second.json()["version"]) == (200, 2)
    assert user.fn("code").json() == {"code": 2, "version": "2", "env": None}

    activated = user.request("POST", "/services/code/versions/1/activate")
    assert activated.status_code == 200, activated.text
    service = user.settled("code")
    assert (service["phase"], service["active_version"]) == ("Ready", 1)
    assert user.fn("code").json() == {"code": 1, "version": "1", "env": None}
    versions = user.request("GET", "/services/code/versions").json()
    assert [(version["version"], version["active"], version["state"]) for version in versions] == [
        (2, False, "Built"),
        (1, True, "Built"),
    ]
    archive = zipped({"handler.py": VERSION.format(code=2)})
    assert versions[0]["size_bytes"] == len(archive)
    assert len(versions[0]["code_sha256"]) == len(hashlib.sha256().hexdigest())


def test_activation_restores_runtime_and_entrypoint(user: User) -> None:
    files = {"handler.py": "def handle(event):\n    return 'one'\n\ndef other(event):\n    return 'two'\n"}
    user.create("entry")
    user.upload("entry", files)
    changed = user.request("PUT", "/services/entry", json={"runtime": "python3.11", "entrypoint": "handler.other"})
    assert changed.status_code == 200
    assert user.settled("entry")["phase"] == "Ready"
    assert user.fn("entry").text == "two"

    user.request("POST", "/services/entry/versions/1/activate")
    service = user.settled("entry")

    assert (service["entrypoint"], user.fn("entry").text) == ("handler.handle", "one")


@pytest.mark.fault(1)
@pytest.mark.fault(8)
def test_a_deleted_function_is_gone_the_moment_delete_has_answered(user: User) -> None:
    for number in range(10):
        name = f"gone-{number}"
        user.deploy(name, HELLO)
        assert user.fn(name).status_code == 200

        assert user.request("DELETE", f"/services/{name}").status_code == 204

        answers = [user.fn(name) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [404] * 5
        assert answers[0].json()["code"] == "NOT_FOUND"
        assert user.request("GET", f"/services/{name}").status_code == 404
        assert user.request("DELETE", f"/services/{name}").status_code == 404


@pytest.mark.fault(2)
def test_create_straight_after_delete_works_and_serves_the_new_code(user: User) -> None:
    for number in range(5):
        user.deploy("again", VERSION.format(code=number))
        assert user.fn("again").json() == {"code": number, "version": "1", "env": None}
        assert user.request("DELETE", "/services/again").status_code == 204


def test_replicas_0_takes_a_service_off_and_back(user: User) -> None:
    user.deploy("switch", HELLO)
    body: dict[str, Any] = {"runtime": "python3.11", "entrypoint": "handler.handle"}

    off = user.request("PUT", "/services/switch", json={**body, "replicas": 0})
    assert off.status_code == 200, off.text
    assert (user.fn("switch").status_code, user.fn("switch").json()["code"]) == (404, "DISABLED")
    invoked = user.request("POST", "/services/switch/invoke", json={})
    assert (invoked.status_code, invoked.json()["code"]) == (409, "DISABLED")

    user.request("PUT", "/services/switch", json={**body, "replicas": 1})
    assert user.settled("switch")["phase"] == "Ready"
    assert user.fn("switch").status_code == 200


def test_an_authenticated_service_answers_its_owner(user: User, platform: Platform) -> None:
    user.deploy("private", HELLO, access="authenticated")

    assert user.fn("private").status_code == 401
    assert user.fn("private", headers={"Authorization": "Bearer x"}).status_code == 401
    stranger = platform.user()
    assert user.fn("private", headers={"Authorization": f"Bearer {stranger.token}"}).status_code == 403
    mine = user.fn("private", method="POST", json={"name": "me"}, headers={"Authorization": f"Bearer {user.token}"})
    assert (mine.status_code, mine.json()) == (200, {"hello": "me"})


def test_a_public_service_gets_whatever_token_a_client_sends(user: User) -> None:
    user.deploy("public", "def handle(event):\n    return event['_headers']['authorization']\n")

    assert user.fn("public", headers={"Authorization": "Bearer whatever"}).text == "Bearer whatever"


def test_a_function_scales_to_zero_and_comes_back(user: User) -> None:
    handler = "import uuid\nIDENTITY = uuid.uuid4().hex\n\ndef handle(event):\n    return IDENTITY\n"
    user.deploy("lazy", handler, "functions")
    invoke = "/functions/lazy/invoke"
    first = user.request("POST", invoke).text
    logs = user.platform.layout.instances

    until(
        lambda: (
            not [name for name in logs.iterdir() if name.name.startswith("i-") and _is_of(name, "lazy", user)] or None
        ),
        "no instance",
    )
    second = user.request("POST", invoke)

    assert second.status_code == 200
    assert second.text != first
    assert user.get("lazy", "functions")["phase"] == "Ready"


def _is_of(folder: Any, name: str, user: User) -> bool:
    try:
        described = json.loads((folder / "instance.json").read_text())
    except OSError:
        return False
    return bool(described["name"] == name and described["namespace"] == user.namespace)


@pytest.mark.fault(29)
def test_of_two_writers_with_one_etag_one_wins_and_the_other_is_told(user: User) -> None:
    user.create("shared")
    etag = user.request("GET", "/services/shared").headers["etag"]

    def write(number: int) -> httpx.Response:
        body = {"runtime": "python3.11", "entrypoint": "handler.handle", "description": f"by {number}"}
        return user.request("PUT", "/services/shared", json=body, headers={"If-Match": etag})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7
    winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
    assert user.get("shared")["description"] == f"by {winner}"
    loser = next(answer for answer in answers if answer.status_code == 412)
    assert loser.json()["code"] == "PRECONDITION_FAILED"
    assert user.request("DELETE", "/services/shared", headers={"If-Match": etag}).status_code == 412


def test_a_namespace_is_deleted_with_all_that_is_in_it(user: User) -> None:
    for name in ("one", "two"):
        user.deploy(name, HELLO)
    address = f"{user.platform.endpoint}/v1/namespaces/{user.namespace}"
    headers = {"Authorization": f"Bearer {user.token}"}

    assert httpx.delete(address, headers=headers).status_code == 400
    assert httpx.delete(f"{address}?confirm={user.namespace}", headers=headers).status_code == 204

    assert {user.fn(name).status_code for name in ("one", "two")} == {404}
    assert httpx.post(f"{address}/ensure", headers=headers).status_code in {200, 201}
    assert user.request("GET", "/services").json() == []
    assert user.deploy("one", HELLO)["phase"] == "Ready"


def test_secret_variables_reach_the_handler_and_nobody_else(user: User, platform: Platform) -> None:
    handler = "import os\n\ndef handle(event):\n    return os.environ['SECRET_WORD']\n"
    service = user.deploy("secretive", handler, secret_env={"SECRET_WORD": "shibboleth-7341"})

    assert set(service["secret_env"]) == {"SECRET_WORD"}
    assert set(service["secret_env"]["SECRET_WORD"]) == {"sha256"}
    assert user.fn("secretive").text == "shibboleth-7341"
    assert "shibboleth-7341" not in json.dumps(service)
    assert "shibboleth-7341" not in platform.log()
    kept = {
        "runtime": "python3.11",
        "entrypoint": "handler.handle",
        "secret_env": service["secret_env"],
        "description": "x",
    }
    assert user.request("PUT", "/services/secretive", json=kept).status_code == 200
    assert user.settled("secretive")["phase"] == "Ready"
    assert user.fn("secretive").text == "shibboleth-7341"
