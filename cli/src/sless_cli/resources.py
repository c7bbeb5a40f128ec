"""Functions and services by their name alone, and waiting until one of them serves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sless_cli.api import Api, ApiNotFound, resource_path
from sless_cli.errors import DeployFailed, NotFound
from sless_cli.transport import Answer

WAIT_SEC = 900.0
POLL_SEC = 0.2
_ERROR = "error: "


@dataclass(frozen=True, slots=True)
class Found:
    """A function or service: its path in the API, and what was answered for it."""

    path: str
    answer: Answer

    @property
    def resource(self) -> dict[str, Any]:
        """The resource itself."""
        resource: dict[str, Any] = self.answer.json()
        return resource

    @property
    def if_match(self) -> dict[str, str]:
        """The header that lets a write through only while the resource is as it was found."""
        etag = self.answer.headers.get("etag")
        return {"If-Match": etag} if etag else {}


def find(api: Api, namespace: str, name: str) -> Found | None:
    """The service or function of this name; None when there is neither."""
    for kind in ("service", "function"):
        path = resource_path(namespace, kind, name)
        try:
            return Found(path, api.call("GET", path))
        except ApiNotFound:
            continue
    return None


def existing(api: Api, name: str) -> Found:
    """The caller's service or function of this name. Raises NotFound."""
    found = find(api, api.namespace(), name)
    if found is None:
        raise NotFound(f"there is neither a service nor a function {name}: `sless deploy PATH --name {name}` makes one")
    return found


def address_of(resource: Mapping[str, Any]) -> str:
    """What people call: the URL, or for a private function the address of its authenticated call."""
    return str(resource.get("url") or resource.get("invoke_url") or "")


def settled(api: Api, path: str, version: int, shown: Sequence[str] = ()) -> Mapping[str, Any]:
    """The resource once its newest generation serves. `shown`: lines that were shown already.

    Raises DeployFailed when it does not come to serve `version`.
    """
    until = time.monotonic() + WAIT_SEC
    while True:
        resource: Mapping[str, Any] = api.call("GET", path).json()
        if resource.get("observed_generation") == resource.get("generation"):
            if resource["phase"] == "Ready":
                return resource
            if resource["phase"] == "Failed":
                raise DeployFailed(_failure(resource, version, shown))
        if time.monotonic() > until:
            raise DeployFailed(
                f"{resource['name']} is still {resource['phase']} after {WAIT_SEC:g} s: {resource['message']}"
            )
        api.sleep(POLL_SEC)


def _failure(resource: Mapping[str, Any], version: int, shown: Sequence[str]) -> str:
    active = resource.get("active_version")
    serves = f"\nVersion {active} serves on." if active and active != version else ""
    return f"version {version} of {resource['name']} failed: {news(str(resource['message']), shown)}{serves}"


def news(message: str, shown: Sequence[str]) -> str:
    """The message; of one that repeats the end of the log that was just shown, the line that says what is wrong."""
    lines = message.splitlines()
    if not lines or not shown or not set(lines) <= set(shown):
        return message
    wrong = [line for line in lines if line.startswith(_ERROR)]
    return wrong[-1].removeprefix(_ERROR) if wrong else lines[-1]
