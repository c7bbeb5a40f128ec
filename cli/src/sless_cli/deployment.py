"""`sless deploy`: makes or changes a function or service by one upload, follows the build, waits until it serves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from sless_cli.api import Api, ApiError, resource_path
from sless_cli.build_log import follow_build
from sless_cli.detection import detect_entrypoint, detect_runtime
from sless_cli.errors import CliError, DeployFailed, UsageFault
from sless_cli.planning import Plan, changes, check_same_folder, first_configuration
from sless_cli.resources import Found, address_of, find, news, settled
from sless_cli.versions import BUILT, ended

CONFLICT_TRIES = 5
_UPLOAD_SEC = 300.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """A resource as it is now, and the version that was uploaded."""

    resource: Mapping[str, Any]
    version: int

    @property
    def address(self) -> str:
        """What people call."""
        return address_of(self.resource)


@dataclass(frozen=True, slots=True)
class Teller:
    """How progress is told: `step` a few words for a person who watches, `note` a line that stays, `log` a line of the build log."""

    step: Callable[[str], None] = lambda _text: None
    note: Callable[[str], None] = lambda _text: None
    log: Callable[[str], None] = lambda _line: None


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a deployment goes.

    activate  whether the version is to serve once it is built
    wait      whether to wait until it does, or for the build alone when it is not to
    """

    activate: bool = True
    wait: bool = True


def deploy(api: Api, planned: Plan, *, extent: Extent, tell: Teller) -> Deployment:
    """Carry the plan out. Raises UsageFault, ApiError, Unreachable, and DeployFailed with the end of the build log."""
    namespace = api.namespace()
    _announce(api, planned, tell)
    tell.step(f"configuring {planned.name}")
    found = find(api, namespace, planned.name) or _create(api, namespace, planned)
    tell.step(f"uploading {len(planned.source.archive) / 1024:.0f} KiB")
    uploaded, before = _upload(api, planned, found, tell, activate=extent.activate)
    version = int(uploaded["version"])
    if not extent.wait:
        return Deployment(api.call("GET", found.path).json(), version)
    shown: list[str] = []
    if version == before.get("active_version"):
        tell.note(f"the code is that of version {version}, which is built")
    else:
        tell.step(f"building version {version}")
        shown = follow_build(api, found.path, version, log=tell.log, note=tell.note)
    if not extent.activate:
        return _built(api, found, version, shown, tell)
    tell.step(f"starting version {version}")
    return Deployment(settled(api, found.path, version, shown), version)


def _announce(api: Api, planned: Plan, tell: Teller) -> None:
    if not api.context.data_dir:
        tell.note(f"deploying {planned.name} to {api.context.endpoint}")
    if planned.made and planned.name != planned.source.name:
        tell.note(f"name: {planned.name} (from {planned.source.name!r})")
    if ".env" in planned.source.files:
        tell.note(".env is uploaded with the code: to keep it here, name it in .gitignore")


def _create(api: Api, namespace: str, planned: Plan) -> Found:
    """A function without code. One that somebody made meanwhile, or an earlier try whose answer was lost, is as good."""
    kind = planned.kind or "service"
    runtime = planned.fields.get("runtime") or detect_runtime(planned.source.files)
    entrypoint = planned.fields.get("entrypoint") or detect_entrypoint(planned.source.files, runtime)
    body = {
        "name": planned.name,
        **first_configuration(planned, kind),
        "runtime": runtime,
        "entrypoint": entrypoint,
    }
    try:
        created = api.call("POST", resource_path(namespace, kind), body=body, repeatable=True)
    except ApiError as error:
        existing = find(api, namespace, planned.name) if error.status == 409 else None
        if existing is None:
            raise
        return existing
    return Found(resource_path(namespace, kind, planned.name), created)


def _upload(
    api: Api, planned: Plan, found: Found, tell: Teller, *, activate: bool
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the upload was answered, and the resource before it: code and changed configuration are one change.

    When somebody else changed the resource meanwhile, look again at what is left to change. An upload whose answer
    was lost finds nothing left, and gets the version that it made.
    """
    _check_kind(planned, found.resource, tell)
    for _ in range(CONFLICT_TRIES):
        check_same_folder(planned, found.resource)
        content, content_type = _form(changes(planned, found.resource), planned.source.archive)
        answer = api.send(
            "POST", f"{found.path}/upload", content=content, headers={"Content-Type": content_type, **found.if_match},
            params={} if activate else {"activate": "false"}, repeatable=True, timeout=_UPLOAD_SEC,
        )  # fmt: skip
        if answer.status != 412:
            return api.checked(answer).json(), found.resource
        found = Found(found.path, api.call("GET", found.path))
    raise CliError(f"{planned.name} is being changed by somebody else all the time: try again later")


def _check_kind(planned: Plan, resource: Mapping[str, Any], tell: Teller) -> None:
    kind = resource["kind"]
    if planned.wishes.private and kind != "function":
        raise UsageFault(
            f"{planned.name} is a service, and stays one: leave --private out, give another --name, or delete it "
            f"first (sless service delete {planned.name})"
        )
    if planned.kind not in {None, kind}:
        tell.note(f"{planned.name} is a {kind} and stays one; delete it first to make it a {planned.kind}")


def _form(config: Mapping[str, Any], archive: bytes) -> tuple[bytes, str]:
    """The body of an upload and its type: the zip alone, or a form with configuration before it."""
    if not config:
        return archive, "application/zip"
    fields: dict[str, tuple[str | None, bytes | str, str | None]] = {
        "config": (None, json.dumps(config), "application/json"),
        "code": ("code.zip", archive, "application/zip"),
    }
    request = httpx.Request("POST", "http://form", files=fields)
    return request.read(), request.headers["Content-Type"]


def _built(api: Api, found: Found, version: int, shown: list[str], tell: Teller) -> Deployment:
    """A version that is not to serve, once it is built. Raises DeployFailed when it cannot be."""
    name = found.resource["name"]
    made = ended(api, found, version)
    if made["state"] != BUILT:
        why = news(str(made["message"]), shown) or f"it is {made['state']}"
        raise DeployFailed(f"version {version} of {name} was not built: {why}")
    tell.note(f"version {version} is built: `sless activate {name} {version}` lets it serve")
    return Deployment(api.call("GET", found.path).json(), version)
