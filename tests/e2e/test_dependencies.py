"""Dependencies through the whole platform: what works, what fails and how it is told, and that nothing is left of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.clean import assert_builds_left_nothing
from tests.support.embedded import Platform, User, running_platform, until
from tests.support.package_index import Index, package_index

HANDLER = "import alpha\n\ndef handle(event):\n    return alpha.VERSION\n"
PLAIN = "def handle(event):\n    return 'plain'\n"
FORKS = "while True:\n    subprocess.Popen(['/bin/sleep', '600'])"
EATS = "held = []\nwhile True: held.append(bytearray(b'x') * (16 << 20))"
FILLS = "for n in range(999): open(str(n), 'wb').write(bytes(1 << 22))"
LINGERS = "subprocess.Popen(['/bin/sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)\nraise SystemExit('went on without me')"


@dataclass(frozen=True)
class Here:
    """A platform, and the index that it installs from."""

    platform: Platform
    index: Index
    build_uid: int | None


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    """One with limits that a test can reach."""
    uid = random.randrange(150_000, 190_000) if os.geteuid() == 0 else None
    user = {} if uid is None else {"SLESS_BUILD_UID": str(uid)}
    with (
        package_index() as index,
        running_platform(
            UV_DEFAULT_INDEX=index.url,
            UV_HTTP_RETRIES="0",
            SLESS_MAX_BUILD_SEC="20",
            SLESS_MAX_BUILD_DISK_BYTES=str(64 << 20),
            SLESS_MAX_BUILD_MEMORY_BYTES=str(256 << 20),
            **user,
        ) as platform,
    ):
        index.add_wheel("alpha", "1.0")
        index.add_wheel("alpha", "2.0")
        index.add_wheel("beta", "1.0", requires=("alpha<2",))
        for name, body in {"raises": "raise RuntimeError('no compiler')", "sleeps": "time.sleep(600)", "fills": FILLS,
                           "eats": EATS, "forks": FORKS, "lingers": LINGERS}.items():  # fmt: skip
            index.add_source(name, "1.0", body)
        yield Here(platform, index, uid)


@pytest.fixture
def author(here: Here) -> User:
    """Somebody new."""
    return here.platform.user()


def test_a_function_with_dependencies_answers_and_its_next_version_installs_nothing(here: Here, author: User) -> None:
    author.create("needs")
    assert author.upload("needs", {"handler.py": HANDLER, "requirements.txt": "alpha<2\n"}).status_code == 200
    assert author.fn("needs").text == "1.0"
    asked = len(here.index.asked)
    changed = HANDLER.replace("alpha.VERSION", "alpha.VERSION + '!'")
    assert author.upload("needs", {"handler.py": changed, "requirements.txt": "alpha < 2\n"}).status_code == 200
    assert author.fn("needs").text == "1.0!"
    assert len(here.index.asked) == asked
    assert_builds_left_nothing(here.platform, here.build_uid)


@pytest.mark.fault(16)
def test_destroyed_and_made_anew_it_installs_nothing(here: Here, author: User) -> None:
    for _ in range(2):
        author.create("again")
        assert author.upload("again", {"handler.py": HANDLER, "requirements.txt": "alpha\n"}).status_code == 200
        assert author.fn("again").text == "2.0"
        log = author.request("GET", "/services/again/versions/1/build-log").text
        assert author.request("DELETE", "/services/again").status_code == 204
    assert "there already: nothing to install" in log


def test_users_share_what_comes_from_the_index_and_nothing_else(here: Here) -> None:
    address = f"alpha @ {here.index.files_url}/alpha-2.0-py3-none-any.whl\n"
    logs: dict[str, list[str]] = {}
    for requirements in ("alpha>1.5\n", address):
        for user in (here.platform.user(), here.platform.user()):
            user.create("shared")
            assert user.upload("shared", {"handler.py": HANDLER, "requirements.txt": requirements}).status_code == 200
            assert user.fn("shared").text == "2.0"
            log = user.request("GET", "/services/shared/versions/1/build-log").text
            logs.setdefault(requirements, []).append(log)
    assert ["installing" in log for log in logs["alpha>1.5\n"]] == [True, False]
    assert ["installing" in log for log in logs[address]] == [True, True]


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    ("requirements", "reason", "package", "told"),
    [
        (
            "# tools\n\nno-such-thing==1\n",
            "PACKAGE_NOT_FOUND",
            "no-such-thing",
            "was not found in the package registry",
        ),
        ("# tools\n\nalpha==9\n", "PACKAGE_NOT_FOUND", "alpha", "no version of alpha==9"),
        ("beta\n\nalpha==2.0\n", "VERSION_CONFLICT", "alpha", "depend on alpha<2"),
        ("# tools\n\nraises\n", "BUILD_BACKEND_FAILED", "raises", "RuntimeError: no compiler"),
        ("# tools\n\nlingers\n", "BUILD_BACKEND_FAILED", "lingers", "went on without me"),
        ("# tools\n\nsleeps\n", "BUILD_TIMEOUT", "sleeps", "took longer than 20 s"),
        ("# tools\n\nfills\n", "DISK_LIMIT", "fills", "MiB of disk"),
        ("# tools\n\neats\n", "MEMORY_LIMIT", "eats", "256 MiB of memory"),
        ("# tools\n\nforks\n", "PROCESS_LIMIT", "forks", "256 processes"),
        ("# tools\n\nalpha = 1\n", "REQUIREMENTS_INVALID", "", "alpha = 1"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
def test_what_fails_is_told_with_its_line_and_leaves_nothing(
    here: Here, author: User, requirements: str, reason: str, package: str, told: str
) -> None:
    author.deploy("fails", PLAIN)
    answer = author.upload("fails", {"handler.py": PLAIN, "requirements.txt": requirements}, wait=90)
    assert answer.status_code == 422, answer.text
    version = author.request("GET", "/services/fails/versions/2").json()
    error = version["error"]
    assert (error["reason"], error["package"] or "", error["file"], error["line"]) == (
        reason,
        package,
        "requirements.txt",
        3,
    )
    assert told in version["message"]
    assert author.get("fails")["message"] == version["message"]
    assert author.request("GET", "/services/fails/versions/2/build-log").text.rstrip().endswith(version["message"])
    assert author.fn("fails").text == "plain"
    assert_builds_left_nothing(here.platform, here.build_uid)


@pytest.mark.fault(13)
def test_a_function_that_is_deleted_while_it_installs_leaves_nothing(here: Here, author: User) -> None:
    author.create("gone")
    author.upload("gone", {"handler.py": PLAIN, "requirements.txt": "sleeps\n# for a while\n"}, wait=None)

    def installing() -> bool:
        return "Building sleeps" in author.request("GET", "/services/gone/versions/1/build-log").text

    until(installing, "the build to sleep")
    assert author.request("DELETE", "/services/gone").status_code == 204
    assert_builds_left_nothing(here.platform, here.build_uid)
