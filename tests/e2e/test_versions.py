"""Versions through the public doors: configuration with code, sources, going back, and logs that are followed."""

from __future__ import annotations

import subprocess
from typing import Any

import httpx
import pytest

from tests.support.embedded import User, zipped

KINDS = ("functions", "services")


def handler(answer: str, name: str = "handle") -> dict[str, str]:
    return {"handler.py": f"import os\n\ndef {name}(event):\n    return [{answer!r}, os.environ.get('A')]\n"}


def send(
    user: User, name: str, code: bytes | dict[str, str], config: str | None = None, query: str = "?wait=60"
) -> httpx.Response:
    """An upload as a form, the configuration behind the code."""
    files: dict[str, Any] = {"code": ("code.zip", code if isinstance(code, bytes) else zipped(code), "application/zip")}
    if config is not None:
        files["config"] = (None, config, "application/json")
    return user.request("POST", f"/services/{name}/upload{query}", files=files)


def test_code_and_configuration_change_together(user: User) -> None:
    before = user.deploy("both", handler("one")["handler.py"], memory_mb=256)

    answer = send(user, "both", handler("two", "other"), '{"entrypoint": "handler.other", "env_vars": {"A": "a"}}')

    assert answer.status_code == 200, answer.text
    assert user.fn("both").json() == ["two", "a"]
    after = user.get("both")
    assert (after["entrypoint"], after["memory_mb"], after["active_version"]) == ("handler.other", 256, 2)
    assert after["generation"] == before["generation"] + 1


@pytest.mark.parametrize(
    ("code", "config", "said"),
    [
        ({"other.py": ""}, '{"env_vars": {"A": "b"}}', "no handler.py"),
        (handler("two"), '{"env_vars": {"A": "b"}, "memory_mb": 5}', "memory_mb must be"),
        (handler("two"), '{"env_vars": {"A": "b"}, "nonsense": 1}', "unknown field"),
        (handler("two"), '{"entrypoint": "no entrypoint"}', "entrypoint must be module.function"),
    ],
)
def test_what_is_refused_changes_neither(user: User, code: dict[str, str], config: str, said: str) -> None:
    before = user.deploy("neither", handler("one")["handler.py"], env_vars={"A": "a"})

    answer = send(user, "neither", code, config)

    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert user.get("neither") == before
    assert user.fn("neither").json() == ["one", "a"]
    assert len(user.request("GET", "/services/neither/versions").json()) == 1


def test_changed_configuration_with_the_same_code_is_deployed_and_nothing_built(user: User) -> None:
    code = zipped(handler("one"))
    user.create("same")
    user.upload("same", code)

    answer = send(user, "same", code, '{"env_vars": {"A": "a"}}')

    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] == 1
    assert user.fn("same").json() == ["one", "a"]


def test_a_version_that_is_only_built_takes_its_entrypoint_along(user: User) -> None:
    user.deploy("apart", handler("one")["handler.py"])

    refused = send(user, "apart", handler("two", "other"), '{"memory_mb": 256}', "?activate=false")
    built = send(user, "apart", handler("two", "other"), '{"entrypoint": "handler.other"}', "?activate=false&wait=60")

    assert (refused.status_code, refused.json()["field"]) == (400, "memory_mb")
    assert built.status_code == 200, built.text
    assert (user.get("apart")["entrypoint"], user.fn("apart").json()[0]) == ("handler.handle", "one")
    activated = user.request("POST", "/services/apart/versions/2/activate?wait=60")
    assert (activated.status_code, activated.json()["entrypoint"]) == (200, "handler.other")
    assert user.fn("apart").json()[0] == "two"


def test_going_back_is_activating_and_the_same_code_again_goes_forward(user: User) -> None:
    second = zipped(handler("two"))
    user.deploy("back", handler("one")["handler.py"])
    user.upload("back", second)
    etag = user.request("GET", "/services/back").headers["etag"]

    back = user.request("POST", "/services/back/versions/1/activate?wait=60", headers={"If-Match": etag})
    late = user.request("POST", "/services/back/versions/2/activate", headers={"If-Match": etag})

    assert (back.status_code, back.json()["active_version"], late.status_code) == (200, 1, 412)
    assert user.fn("back").json()[0] == "one"
    forward = user.upload("back", second)
    assert (forward.status_code, forward.json()["version"]) == (200, 2)
    assert user.fn("back").json()[0] == "two"
    assert [version["active"] for version in user.request("GET", "/services/back/versions").json()] == [True, False]


@pytest.mark.fault(27)
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_is_what_was_uploaded(user: User, kind: str) -> None:
    files: dict[str, str | bytes] = {**handler("one"), "data/blob.bin": b"\xff\x00", "__pycache__/x.pyc": b"junk"}
    archive = zipped(files)
    user.create("source", kind)
    assert user.request("GET", f"/{kind}/source/source").status_code == 404
    assert user.upload("source", archive, kind).status_code == 200

    newest, first = (user.request("GET", f"/{kind}/source/{path}source").json() for path in ("", "versions/1/"))
    zipped_again = user.request("GET", f"/{kind}/source/source", headers={"Accept": "application/zip"})

    assert newest == first
    assert newest["files"] == [
        {"path": "data/blob.bin", "size": 2, "encoding": "base64", "content": "/wA="},
        {"path": "handler.py", "size": len(files["handler.py"]), "encoding": "utf-8", "content": files["handler.py"]},
    ]
    assert (newest["version"], newest["entrypoint"], newest["truncated"]) == (1, "handler.handle", False)
    assert zipped_again.content == archive


def test_a_source_is_nobody_elses(user: User) -> None:
    user.deploy("mine", handler("one")["handler.py"])
    other = user.platform.user()

    answer = other.request("GET", f"/../{user.namespace}/services/mine/source")

    assert answer.status_code == 403


@pytest.mark.fault(10)
def test_code_that_failed_by_what_is_in_it_fails_again_at_once_and_says_so(user: User) -> None:
    user.deploy("fails", handler("one")["handler.py"])
    broken = zipped({"handler.py": "def handle(event)\n    return 1\n"})

    first, again = (user.upload("fails", broken) for _ in range(2))
    queued = user.upload("fails", broken, wait=None)

    assert (first.status_code, again.status_code) == (422, 422)
    assert first.json()["error"] == again.json()["error"]
    assert "handler.py line 1: expected ':'" in again.json()["error"]
    assert queued.json()["message"] == "unchanged: version 2 has the same content, and its build failed"
    assert len(user.request("GET", "/services/fails/versions").json()) == 2
    assert user.fn("fails").json()[0] == "one"


@pytest.mark.fault(10)
def test_curl_follows_a_build_log_to_its_end(user: User) -> None:
    user.create("log")
    user.upload("log", {"handler.py": "x = 1\ndef handle(event)\n    return 1\n"}, wait=None)
    url = f"{user.base}/services/log/versions/1/build-log?follow=1"

    followed = subprocess.run(
        ["curl", "-sN", "--max-time", "60", "-H", f"Authorization: Bearer {user.token}", url],
        check=True,
        capture_output=True,
        text=True,
    )

    lines = followed.stdout.splitlines()
    assert lines[0] == "version 1 of log: python3.11, handler.handle"
    assert lines[-3:] == ["error: handler.py line 2: expected ':'", "    def handle(event)", " " * 21 + "^"]
    assert user.settled("log")["message"].splitlines()[-3:] == lines[-3:]


@pytest.mark.fault(16)
def test_code_that_comes_back_after_a_delete_is_not_built_again(user: User) -> None:
    code = zipped(handler("again"))
    for cached in (False, True):
        assert user.create("again").status_code == 201
        assert user.upload("again", code).status_code == 200
        assert user.request("GET", "/services/again/versions/1").json()["build"]["cached"] == cached
        assert user.fn("again").json()[0] == "again"
        assert user.request("DELETE", "/services/again").status_code == 204
