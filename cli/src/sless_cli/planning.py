"""What is to be deployed: the code, and what flags, sless.toml and the folder's name say about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sless_contracts.catalog import DEFAULTS, NAME_PATTERN

from sless_cli.errors import UsageFault
from sless_cli.manifest import WRITABLE, parse_manifest
from sless_cli.source import Source

FOLDER_LABEL = "sless/folder"
"""Names the folder that a function was first deployed from, where the folder's name is not the function's."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says: None (or nothing) leaves a field as it is, or to sless.toml, or to its default.

    `replicas` has any of min, max, concurrency; `env_vars` and `secret_env` are added to those that are there.
    """

    name: str | None = None
    private: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """name    of the function
    made    whether the name was made from the folder's
    kind    None for whatever is there already
    fields  as sless.toml and the flags set them
    """

    name: str
    made: bool
    kind: str | None
    fields: Mapping[str, Any]
    wishes: Wishes
    source: Source


def plan(source: Source, wishes: Wishes) -> Plan:
    """Put flags, sless.toml and names together. Raises UsageFault."""
    written = parse_manifest(source.manifest) if source.manifest is not None else {}
    given = wishes.name or str(written.pop("name", ""))
    written.pop("name", None)
    name = given or name_from(source.name)
    if not NAME_PATTERN.fullmatch(name):
        what = f"{name!r} is no name" if given else f"no name can be made of {source.name!r}"
        raise UsageFault(f"{what}: give one with --name, of at most 63 of a-z, 0-9 and inner hyphens")
    kind = "function" if wishes.private else written.pop("kind", None)
    written.pop("kind", None)
    fields = {**written, **wishes.fields}
    return Plan(name=name, made=not given, kind=kind, fields=fields, wishes=wishes, source=source)


def name_from(name: str) -> str:
    """A folder's name as a function's: `My_Function` → `my-function`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")


def first_configuration(planned: Plan, kind: str) -> dict[str, Any]:
    """The configuration of a function that is made; its runtime and entrypoint may be missing."""
    body = _changed({}, planned, kind)
    if planned.made and planned.name != planned.source.name:
        body["labels"] = {**body.get("labels", {}), FOLDER_LABEL: planned.source.name[:255]}
    return body


def changes(planned: Plan, resource: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an existing function that are to change, with their new values."""
    kept = {name: resource[name] for name in WRITABLE if resource.get(name) is not None}
    body = _changed(kept, planned, str(resource["kind"]))
    folder = resource.get("labels", {}).get(FOLDER_LABEL)
    if folder is not None:
        body["labels"] = {**body.get("labels", {}), FOLDER_LABEL: folder}
    return {name: value for name, value in body.items() if value != kept.get(name)}


def check_same_folder(planned: Plan, resource: Mapping[str, Any]) -> None:
    """Raises UsageFault for a name that was made of one folder's and is already used for another's."""
    folder = resource.get("labels", {}).get(FOLDER_LABEL, planned.name)
    if not planned.made or folder == planned.source.name[:255]:
        return
    raise UsageFault(
        f"the name {planned.name}, made from {planned.source.name!r}, belongs to what was deployed from {folder!r}: "
        f"to change that one give --name {planned.name}, else another --name"
    )


def _changed(kept: Mapping[str, Any], planned: Plan, kind: str) -> dict[str, Any]:
    """The configuration with what was given in it."""
    body = {**kept, **planned.fields}
    wishes = planned.wishes
    for name, added in (("env_vars", wishes.env_vars), ("secret_env", wishes.secret_env)):
        if added:
            body[name] = {**body.get(name, {}), **added}
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
