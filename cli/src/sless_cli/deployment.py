"""`sless deploy`: makes or changes a function or service, uploads its code, follows the build, waits until it serves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sless_contracts.catalog import DEFAULTS, NAME_PATTERN

from sless_cli.api import Api, ApiError, resource_path
from sless_cli.detection import detect_entrypoint, detect_runtime
from sless_cli.errors import CliError, UsageFault
from sless_cli.manifest import WRITABLE, parse_manifest
from sless_cli.resources import Found, address_of, find, settled
from sless_cli.source import Source

CONFLICT_TRIES = 5
_QUIET_LOG_SEC = 330.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says: None (or nothing) leaves a field as it is, or to sless.toml, or to its default.

    `replicas` has any of min, max, concurrency; `env_vars` are added to those that are there.
    """

    name: str | None = None
    private: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be deployed: `fields` as sless.toml and the flags set them, `kind` None for whatever is there already."""

    name: str
    kind: str | None
    fields: Mapping[str, Any]
    wishes: Wishes
    source: Source


@dataclass(frozen=True, slots=True)
class Deployment:
    """A resource as it is now, and the version that was uploaded."""

    resource: Mapping[str, Any]
    version: int

    @property
    def address(self) -> str:
        """What people call: the URL, or for a private function the address of its authenticated call."""
        return address_of(self.resource)


@dataclass(frozen=True, slots=True)
class Teller:
    """How progress is told: `step` a few words for a person who watches, `note` a line that stays, `log` a line of the build log."""

    step: Callable[[str], None] = lambda _text: None
    note: Callable[[str], None] = lambda _text: None
    log: Callable[[str], None] = lambda _line: None


def plan(source: Source, wishes: Wishes) -> Plan:
    """Put flags, sless.toml and names together. Raises UsageFault."""
    written = parse_manifest(source.manifest) if source.manifest is not None else {}
    name = wishes.name or str(written.pop("name", "")) or _name_from(source.name)
    written.pop("name", None)
    if not NAME_PATTERN.fullmatch(name):
        raise UsageFault(f"{name!r} is no name: give one with --name, of at most 63 of a-z, 0-9 and inner hyphens")
    kind = "function" if wishes.private else written.pop("kind", None)
    written.pop("kind", None)
    return Plan(name=name, kind=kind, fields={**written, **wishes.fields}, wishes=wishes, source=source)


def deploy(api: Api, planned: Plan, *, wait: bool, tell: Teller) -> Deployment:
    """Carry the plan out. Raises UsageFault, ApiError, Unreachable, and DeployFailed with the end of the build log."""
    namespace = api.namespace()
    if planned.name != planned.source.name and not planned.wishes.name:
        tell.note(f"name: {planned.name} (from {planned.source.name!r})")
    if ".env" in planned.source.files:
        tell.note(".env is uploaded with the code: to keep it here, name it in .gitignore")
    tell.step(f"configuring {planned.name}")
    existing = find(api, namespace, planned.name)
    resource = (
        _create(api, namespace, planned) if existing is None else _update(api, namespace, planned, existing, tell)
    )
    path = resource_path(namespace, str(resource["kind"]), planned.name)
    tell.step(f"uploading {len(planned.source.archive) / 1024:.0f} KiB")
    uploaded = api.call(
        # Sent twice it makes one version: the same content and configuration are that version again.
        "POST", f"{path}/upload", content=planned.source.archive, headers={"Content-Type": "application/zip"},
        repeatable=True, timeout=300,
    ).json()  # fmt: skip
    version = int(uploaded["version"])
    if not wait:
        return Deployment(api.call("GET", path).json(), version)
    shown: list[str] = []
    if version == resource.get("active_version"):
        tell.note(f"the code is that of version {version}, which is built")
    else:
        tell.step(f"building version {version}")
        _follow_build(api, path, version, tell, shown)
    tell.step(f"starting version {version}")
    return Deployment(settled(api, path, version, shown), version)


def _create(api: Api, namespace: str, planned: Plan) -> Mapping[str, Any]:
    kind = planned.kind or "service"
    runtime = planned.fields.get("runtime") or detect_runtime(planned.source.files)
    entrypoint = planned.fields.get("entrypoint") or detect_entrypoint(planned.source.files, runtime)
    body = {"name": planned.name, **_changed({}, planned, kind), "runtime": runtime, "entrypoint": entrypoint}
    try:
        # Sent twice it is refused the second time, as if somebody had made it meanwhile.
        collection = resource_path(namespace, kind)
        created: Mapping[str, Any] = api.call("POST", collection, body=body, repeatable=True).json()
    except ApiError as error:
        if error.status != 409:
            raise
        # Somebody made it meanwhile, or an earlier try did whose answer was lost.
        existing = find(api, namespace, planned.name)
        if existing is None:
            raise
        return _update(api, namespace, planned, existing, Teller())
    return created


def _update(api: Api, namespace: str, planned: Plan, existing: Found, tell: Teller) -> Mapping[str, Any]:
    """Change what was given, keep the rest; when somebody else changed it meanwhile, look again."""
    for _ in range(CONFLICT_TRIES):
        now: dict[str, Any] = existing.resource
        kind = str(now["kind"])
        if planned.wishes.private and kind != "function":
            raise UsageFault(
                f"{planned.name} is a service, and stays one: leave --private out, give another --name, or delete it "
                f"first (sless service delete {planned.name})"
            )
        if planned.kind not in {None, kind}:
            tell.note(f"{planned.name} is a {kind} and stays one; delete it first to make it a {planned.kind}")
        kept = {name: now[name] for name in WRITABLE if now.get(name) is not None}
        body = _changed(kept, planned, kind)
        if body == kept:
            return now
        path = resource_path(namespace, kind, planned.name)
        try:
            changed: Mapping[str, Any] = api.call("PUT", path, body=body, headers=existing.if_match).json()
        except ApiError as error:
            if error.status != 412:
                raise
            existing = Found(path, api.call("GET", path))
        else:
            return changed
    raise CliError(f"{planned.name} is being changed by somebody else all the time: try again later")


def _changed(kept: Mapping[str, Any], planned: Plan, kind: str) -> dict[str, Any]:
    """The configuration with what was given in it."""
    body = {**kept, **planned.fields}
    wishes = planned.wishes
    if wishes.env_vars:
        body["env_vars"] = {**body.get("env_vars", {}), **wishes.env_vars}
    if wishes.replicas:
        body["replicas"] = _replicas(body.get("replicas"), wishes.replicas, kind)
    return body


def _replicas(current: object, wished: Mapping[str, int], kind: str) -> dict[str, int]:
    """The bounds with the wished ones in them; the other bound follows where it would contradict."""
    defaults = DEFAULTS[kind]
    bounds = {"min": defaults.min_replicas, "max": defaults.max_replicas, "concurrency": defaults.concurrency}
    if isinstance(current, int):
        bounds |= {"min": current, "max": current}
    elif isinstance(current, Mapping):
        bounds |= current
    bounds |= wished
    if bounds["min"] > bounds["max"] and "max" not in wished:
        bounds["max"] = bounds["min"]
    if bounds["min"] > bounds["max"] and "min" not in wished:
        bounds["min"] = bounds["max"]
    return bounds


def _name_from(name: str) -> str:
    """A folder's name as a function's: `My_Function` → `my-function`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")


def _follow_build(api: Api, path: str, version: int, tell: Teller, shown: list[str]) -> None:
    """Show the build log while it grows, and note its lines in `shown`.

    What breaks here is no failure: the outcome is asked for afterwards.
    """
    try:
        with api.stream(
            f"{path}/versions/{version}/build-log", params={"follow": "1"}, timeout=_QUIET_LOG_SEC
        ) as lines:
            for line in lines:
                shown.append(line)
                tell.log(line)
    except CliError as error:
        tell.note(f"the build log broke off: {error.message}")
