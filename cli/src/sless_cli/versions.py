"""The versions of a function or service: which there are, and which of them serves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sless_cli.api import Api, ApiError
from sless_cli.errors import CliError, DeployFailed
from sless_cli.resources import POLL_SEC, WAIT_SEC, Found, settled

BUILT = "Built"
_UNDER_WAY = frozenset({"Pending", "Building"})


def versions_of(api: Api, found: Found) -> list[dict[str, Any]]:
    """All versions, newest first, in the API's shape."""
    listed: list[dict[str, Any]] = api.call("GET", f"{found.path}/versions").json()
    return listed


def ended(api: Api, found: Found, version: int) -> Mapping[str, Any]:
    """A version whose build is over. Raises DeployFailed when that takes too long."""
    until = time.monotonic() + WAIT_SEC
    while True:
        made: Mapping[str, Any] = api.call("GET", f"{found.path}/versions/{version}").json()
        if made["state"] not in _UNDER_WAY:
            return made
        if time.monotonic() > until:
            raise DeployFailed(f"version {version} of {found.resource['name']} is still not built: {made['message']}")
        api.sleep(POLL_SEC)


def version_before(versions: Sequence[Mapping[str, Any]], name: str) -> tuple[int, int]:
    """The version that serves, and the newest built one before it. Raises CliError when either is missing."""
    serving = next((version["version"] for version in versions if version["active"]), None)
    if serving is None:
        raise CliError(f"no version of {name} serves, so there is none to go back from: `sless versions {name}`")
    earlier = [each["version"] for each in versions if each["state"] == BUILT and each["version"] < serving]
    if not earlier:
        raise CliError(f"version {serving} of {name} has no built version before it: `sless versions {name}`")
    return serving, max(earlier)


def activate(api: Api, found: Found, version: int, *, wait: bool) -> Mapping[str, Any]:
    """Let a built version serve; the resource, once it does when `wait` is set.

    Raises ApiError, DeployFailed, and CliError when somebody else changed the resource meanwhile.
    """
    path = f"{found.path}/versions/{version}/activate"
    # Of two tries the second finds another ETag if the first took effect: nothing is done twice.
    answer = api.send("POST", path, headers=found.if_match, repeatable=True)
    lost = answer.status == 412 and answer.retried
    if answer.status == 412 and not lost:
        raise CliError(f"{found.resource['name']} was changed by somebody else just now: look, and try again")
    if not lost:
        api.checked(answer)
    resource: Mapping[str, Any] = settled(api, found.path, version) if wait or lost else answer.json()
    if lost and resource["active_version"] != version:
        raise CliError(f"version {resource['active_version']} of {resource['name']} serves: somebody else chose it")
    return resource


def missing(error: ApiError, name: str, version: int) -> CliError:
    """The sentence for a version that is not there; any other error as it is."""
    if error.status != 404:
        return error
    return type(error)(
        f"there is no version {version} of {name}: `sless versions {name}` shows those there are",
        status=error.status,
        code=error.code,
    )
