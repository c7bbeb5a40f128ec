"""Many uploads at once, one that never ends, and a builder that is killed in the middle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.clean import assert_builds_left_nothing, builder_rows
from tests.support.embedded import Platform, User, running_platform, until
from tests.support.package_index import package_index

USERS, FUNCTIONS, UPLOADS = 3, 10, 3
LIMIT_SEC = 15
ENDLESS = FUNCTIONS - 1
"""The function whose last upload asks for a package whose build never ends."""
BUILDS = """
SELECT function_uid, number, state, attempt, takeovers, failures, runs, problem->>'reason' AS reason, code_sha256,
       cardinality(layers) AS layers
FROM builds ORDER BY function_uid, number
"""
MADE = "SELECT key, digest, made FROM layers"


@dataclass(frozen=True)
class Here:
    """A platform of its own, and whose its builds are."""

    platform: Platform
    build_uid: int | None


@pytest.fixture
def here() -> Iterator[Here]:
    """One that can be killed, with an index that has a package whose build never ends."""
    uid = random.randrange(150_000, 190_000) if os.geteuid() == 0 else None
    settings = {} if uid is None else {"SLESS_BUILD_UID": str(uid)}
    with package_index() as index:
        index.add_wheel("alpha", "1.0")
        index.add_source("endless", "1.0", "time.sleep(600)")
        settings |= {"UV_DEFAULT_INDEX": index.url, "SLESS_MAX_BUILD_SEC": str(LIMIT_SEC)}
        with running_platform(**settings) as platform:
            yield Here(platform, uid)


def files(function: int, upload: int) -> dict[str, str]:
    """Code that says whose it is; each second function has a dependency that all of them share."""
    handler = f"def handle(event):\n    return '{function}-{upload}'\n"
    if (function, upload) == (ENDLESS, UPLOADS):
        return {"handler.py": handler, "requirements.txt": "endless\n"}
    return {"handler.py": handler, **({"requirements.txt": "alpha\n"} if function % 2 else {})}


def uploaded(user: User, function: int) -> None:
    """All uploads of one function, one after the other, each as often as it takes: its builder is killed meanwhile."""
    for upload in range(1, UPLOADS + 1):

        def accepted(upload: int = upload) -> bool:
            try:
                answer = user.upload(f"fn-{function}", files(function, upload), wait=None)
            except httpx.TransportError:
                return False
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            if answer.status_code == 202:
                assert answer.json()["version"] == upload
            return answer.status_code in (200, 202)

        until(accepted, f"upload {upload} of function {function} to be taken", 120)


@pytest.mark.fault(11)
@pytest.mark.fault(14)
@pytest.mark.timeout(600)
def test_a_storm_of_builds_ends_with_each_version_in_its_right_state_and_one_build_each(here: Here) -> None:
    platform = here.platform
    users = [platform.user() for _ in range(USERS)]
    owner = [users[function % USERS] for function in range(FUNCTIONS)]
    for function in range(FUNCTIONS):
        assert owner[function].create(f"fn-{function}").status_code == 201
    with ThreadPoolExecutor(FUNCTIONS) as pool:
        uploads = [pool.submit(uploaded, owner[function], function) for function in range(FUNCTIONS)]

        def in_the_middle() -> bool:
            states = [build["state"] for build in asyncio.run(builder_rows(platform, BUILDS))]
            return states.count("built") >= 3

        until(in_the_middle, "some builds to have ended", 120)
        os.kill(platform.pid("builder"), signal.SIGKILL)
        for upload in uploads:
            upload.result()

    for function in range(FUNCTIONS):
        check_function(owner[function], function)
    check_builds(asyncio.run(builder_rows(platform, BUILDS)), asyncio.run(builder_rows(platform, MADE)))
    assert_builds_left_nothing(platform, here.build_uid)


def check_function(user: User, function: int) -> None:
    """Its newest version serves; older ones were built, or cancelled by what came after. The endless one failed alone."""
    name = f"fn-{function}"

    def final() -> list[dict[str, Any]]:
        versions: list[dict[str, Any]] = user.request("GET", f"/services/{name}/versions").json()
        return versions if all(version["state"] not in ("Pending", "Building") for version in versions) else []

    versions = {version["version"]: version for version in until(final, f"the versions of {name} to end", 240)}
    assert sorted(versions) == list(range(1, UPLOADS + 1))
    assert {versions[number]["state"] for number in range(1, UPLOADS)} <= {"Built", "Cancelled"}
    service = user.settled(name)
    if function == ENDLESS:
        assert (versions[UPLOADS]["state"], versions[UPLOADS]["error"]["reason"]) == ("Failed", "BUILD_TIMEOUT")
        assert service["phase"] == "Failed"
        return
    assert versions[UPLOADS]["state"] == "Built", versions[UPLOADS]
    assert (service["phase"], service["active_version"]) == ("Ready", UPLOADS)
    assert user.fn(name).text == f"{function}-{UPLOADS}"


def check_builds(builds: list[dict[str, Any]], layers: list[dict[str, Any]]) -> None:
    """One build a version; what the kill interrupted was taken over, once; nothing was made twice."""
    assert len(builds) == FUNCTIONS * UPLOADS
    assert {build["state"] for build in builds} <= {"built", "cancelled", "failed"}
    assert [build["reason"] for build in builds if build["state"] == "failed"] == ["BUILD_TIMEOUT"]
    lost = [build for build in builds if build["takeovers"]]
    assert len(lost) <= 2, "as many as run at once"
    for build in builds:
        assert build["failures"] == 0, build
        assert build["takeovers"] <= 1, build
        assert build["attempt"] <= 1 + build["takeovers"], build
        assert build["layers"] in (None, 2, 3)
    made = [layer["digest"] for layer in layers if layer["made"]]
    assert len(made) == len(set(made))
    assert len({layer["key"] for layer in layers}) == len(layers)
