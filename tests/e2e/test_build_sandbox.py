"""Builds that are stopped, lost or flooded, through the whole platform: each ends right, and nothing is left of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.clean import assert_builds_left_nothing, builder_rows
from tests.support.embedded import Platform, User, running_platform, until
from tests.support.package_index import package_index

PLAIN = "def handle(event):\n    return 'plain'\n"
FLOODS = "while True: print('x' * 100)"
LIMIT_SEC = 20
_EXPIRED = "SELECT version_uid FROM builds WHERE state = 'building' AND lease_until < clock_timestamp()"


@dataclass(frozen=True)
class Here:
    """A platform of its own, and whose its builds are."""

    platform: Platform
    build_uid: int | None

    def lease_over(self) -> None:
        """Wait until a build's lease has run out."""
        until(lambda: asyncio.run(builder_rows(self.platform, _EXPIRED)), "a lease to run out")

    def clean(self) -> None:
        """Check that nothing of a build is left."""
        assert_builds_left_nothing(self.platform, self.build_uid)


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    """One whose builder may be killed."""
    uid = random.randrange(150_000, 190_000) if os.geteuid() == 0 else None
    settings = {} if uid is None else {"SLESS_BUILD_UID": str(uid)}
    with package_index() as index:
        index.add_source("sleeps", "1.0", "time.sleep(600)")
        index.add_source("floods", "1.0", FLOODS)
        settings |= {"UV_DEFAULT_INDEX": index.url, "SLESS_MAX_BUILD_SEC": str(LIMIT_SEC)}
        settings |= {"SLESS_MAX_BUILD_MEMORY_BYTES": str(256 << 20)}
        with running_platform(**settings) as platform:
            yield Here(platform, uid)


def installing(user: User, name: str, version: int = 1) -> None:
    """Wait until a version's endless package is being built."""

    def seen() -> bool:
        return "Building sleeps" in user.request("GET", f"/services/{name}/versions/{version}/build-log").text

    until(seen, "the endless build to begin")


def ended(user: User, name: str, version: int = 1) -> dict[str, Any]:
    """A version once its build is over."""

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = user.request("GET", f"/services/{name}/versions/{version}").json()
        return found if found["state"] not in ("Pending", "Building") else None

    return until(over, f"version {version} of {name} to end", 120)


@pytest.mark.fault(14)
def test_a_newer_upload_ends_the_older_ones_endless_build(here: Here) -> None:
    user = here.platform.user()
    user.create("newer")
    user.upload("newer", {"handler.py": PLAIN, "requirements.txt": "sleeps\n"}, wait=None)
    installing(user, "newer")
    assert user.upload("newer", {"handler.py": PLAIN}).status_code == 200
    assert ended(user, "newer")["state"] == "Cancelled"
    assert user.fn("newer").text == "plain"
    here.clean()


@pytest.mark.fault(11)
def test_a_build_whose_builder_is_killed_is_taken_over_and_its_sandbox_ends(here: Here) -> None:
    user = here.platform.user()
    user.create("killed")
    user.upload("killed", {"handler.py": PLAIN, "requirements.txt": "sleeps\n"}, wait=None)
    installing(user, "killed")
    os.kill(here.platform.pid("builder"), signal.SIGKILL)
    version = ended(user, "killed")
    assert (version["state"], version["error"]["reason"]) == ("Failed", "BUILD_TIMEOUT")
    log = user.request("GET", "/services/killed/versions/1/build-log").text
    assert "the build was interrupted by the platform; attempt 2" in log
    here.clean()


@pytest.mark.fault(11)
def test_a_build_whose_builder_is_stuck_is_taken_over(here: Here) -> None:
    user = here.platform.user()
    user.create("stuck")
    user.upload("stuck", {"handler.py": PLAIN, "requirements.txt": "sleeps\n"}, wait=None)
    installing(user, "stuck")
    builder = here.platform.pid("builder")
    os.kill(builder, signal.SIGSTOP)
    try:
        here.lease_over()
    finally:
        os.kill(builder, signal.SIGCONT)
    assert ended(user, "stuck")["state"] == "Failed"
    here.clean()


def test_a_build_that_prints_without_end_is_ended_and_says_so(here: Here) -> None:
    user = here.platform.user()
    user.deploy("floods", PLAIN)
    answer = user.upload("floods", {"handler.py": PLAIN, "requirements.txt": "floods\n"}, wait=90)
    assert answer.status_code == 422
    error = user.request("GET", "/services/floods/versions/2").json()["error"]
    # The installer holds what a package prints until it ends: that is memory.
    assert (error["reason"], error["package"]) == ("MEMORY_LIMIT", "floods")
    assert user.fn("floods").text == "plain"
    here.clean()
