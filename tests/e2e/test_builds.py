"""Builds: what is refused, what fails with its reason, and that a failure costs nothing that works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import archives
from tests.support.embedded import Platform, User, until, zipped

GOOD = "def handle(event):\n    return 'good'\n"


@pytest.fixture(scope="module")
def author(platform: Platform) -> User:
    """Somebody with a service that waits for code."""
    user = platform.user()
    user.create("code")
    return user


def test_a_syntax_error_fails_the_build_with_its_line_and_the_old_version_serves_on(user: User) -> None:
    user.deploy("broken", GOOD)

    failed = user.upload("broken", {"handler.py": "def handle(event):\n    return (\n\n\nx = = 1\n"})

    assert failed.status_code == 422
    assert failed.json()["code"] == "BUILD_FAILED"
    service = user.get("broken")
    assert (service["phase"], service["active_version"]) == ("Failed", 1)
    assert "handler.py" in service["message"]
    version = user.request("GET", "/services/broken/versions/2").json()
    assert version["state"] == "Failed"
    assert (version["error"]["reason"], version["error"]["file"]) == ("SYNTAX_ERROR", "handler.py")
    assert version["error"]["line"] >= 2
    assert user.fn("broken").text == "good"
    log = user.request("GET", "/services/broken/versions/2/build-log")
    assert log.headers["content-type"].startswith("text/plain")
    assert "handler.py" in log.text


def test_requirements_of_comments_only_are_none(user: User) -> None:
    user.create("comments")

    assert user.upload("comments", {"handler.py": GOOD, "requirements.txt": "# nothing\n\n"}).status_code == 200


@pytest.mark.fault(17)
def test_a_wrong_entrypoint_fails_the_deployment_with_a_clear_message(user: User) -> None:
    user.create("entry", entrypoint="handler.absent")

    failed = user.upload("entry", {"handler.py": GOOD})

    assert failed.status_code == 422
    assert "absent" in user.get("entry")["message"]
    assert user.fn("entry").status_code == 503
    assert user.fn("entry").json()["code"] == "NOT_READY"
    assert user.fn("entry").headers["retry-after"]


def test_an_import_that_fails_is_told_with_its_traceback(user: User) -> None:
    user.create("imports")

    failed = user.upload("imports", {"handler.py": "import nothing_like_this\n\ndef handle(event):\n    return 1\n"})

    assert failed.status_code == 422
    assert "nothing_like_this" in failed.text


def test_an_entrypoint_with_a_hyphen_works(user: User) -> None:
    user.create("hyphen", entrypoint="handler-http.handle")

    assert user.upload("hyphen", {"handler-http.py": GOOD}).status_code == 200
    assert user.fn("hyphen").text == "good"


@pytest.mark.fault(12)
def test_a_failed_first_build_does_not_block_the_name(user: User) -> None:
    user.create("first")
    assert user.upload("first", {"handler.py": "x = = 1"}).status_code == 422

    assert user.create("first", description="again").status_code == 201
    assert user.upload("first", {"handler.py": GOOD}).status_code == 200
    assert user.fn("first").text == "good"
    assert user.create("first").status_code == 409


@pytest.mark.fault(14)
def test_the_same_content_is_the_same_version(user: User) -> None:
    user.create("same")
    archive = zipped({"handler.py": GOOD})
    first = user.upload("same", archive).json()

    again = user.upload("same", archive)

    assert again.status_code == 200
    assert (first["version"], again.json()["version"]) == (1, 1)
    assert len(user.request("GET", "/services/same/versions").json()) == 1


REFUSED: dict[str, Callable[[], bytes]] = {
    "empty body": lambda: b"",
    "no archive": lambda: b"this is not a zip",
    "empty archive": lambda: zipped({}),
    "cut archive": lambda: zipped({"handler.py": GOOD})[:-30],
    "bomb": archives.bomb,
    "traversal": archives.traversal,
    "absolute path": archives.absolute,
    "symlink": archives.symlink,
    "duplicate": archives.duplicate,
    "case collision": archives.case_collision,
    "encrypted": archives.encrypted,
    "no entrypoint": lambda: zipped({"other.py": GOOD}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_archive_that_cannot_be_is_refused_with_the_reason(author: User, case: str) -> None:
    answer = author.upload("code", REFUSED[case]())

    assert answer.status_code == 400, answer.text
    error = answer.json()
    assert (error["code"], error["field"]) == ("INVALID_ARGUMENT", "code")
    assert error["error"]
    assert author.request("GET", "/services/code/versions").json() == []


def test_an_archive_that_is_too_large_is_refused(author: User) -> None:
    answer = author.upload("code", b"PK\x03\x04" + b"x" * (32 * 1024 * 1024))

    assert (answer.status_code, answer.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")


def test_a_multipart_upload_is_taken(user: User) -> None:
    user.create("form")

    files = {"code": ("code.zip", zipped({"handler.py": GOOD}), "application/zip")}
    answer = user.request("POST", "/services/form/upload?wait=60", files=files)

    assert answer.status_code == 200, answer.text
    assert user.fn("form").text == "good"


def test_an_upload_for_nothing_is_404(user: User) -> None:
    assert user.upload("nothing", {"handler.py": GOOD}).status_code == 404
    user.create("kind", "functions")
    assert user.upload("kind", {"handler.py": GOOD}, "services").status_code == 404


@pytest.mark.fault(13)
def test_deleting_a_function_leaves_nothing_of_its_builds(user: User, platform: Platform) -> None:
    marker = f"MARKER = {user.namespace!r}"
    user.create("temporary")
    user.upload("temporary", {"handler.py": f"{marker}\n{GOOD}"}, wait=None)

    assert user.request("DELETE", "/services/temporary").status_code == 204

    def traces() -> list[str]:
        return [str(path) for path in platform.layout.layers.rglob("handler.py") if marker in path.read_text()]

    until(lambda: not traces() or None, "its layers to go")


def test_what_went_wrong_is_told_to_the_owner_alone(user: User) -> None:
    user.create("secretive")
    user.upload("secretive", {"handler.py": "PASSWORD = = 'line of the code'\n"})

    public = user.fn("secretive")
    owners = user.request("POST", "/services/secretive/invoke")

    assert (public.status_code, public.json()["code"]) == (503, "NOT_READY")
    assert "handler.py" not in public.text
    assert "line of the code" not in public.text
    assert "handler.py" in owners.json()["error"]


@pytest.mark.parametrize("signature", ["event, context, more", "event, *, more"])
def test_a_handler_that_cannot_be_called_never_becomes_ready(user: User, signature: str) -> None:
    user.create("wants")

    failed = user.upload("wants", {"handler.py": f"def handle({signature}):\n    return 1\n"})

    assert failed.status_code == 422
    assert "parameters" in user.get("wants")["message"]
