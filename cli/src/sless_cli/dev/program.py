"""What a folder says of itself: which handler is run, with which variables and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from sless_contracts.catalog import DEFAULT_MEMORY_MB, DEFAULTS

from sless_cli.detection import PYTHON, detect_entrypoint, detect_runtime
from sless_cli.errors import UsageFault
from sless_cli.planning import Wishes, first_configuration, plan
from sless_cli.source import MANIFEST, Source


@dataclass(frozen=True, slots=True)
class Program:
    """name         of the function
    entrypoint   module.function
    variables    of the handler, secret ones included
    timeout      of a call; None: no limit
    concurrency  calls at once
    memory_mb    what the handler is told; nothing enforces it here
    """

    name: str
    entrypoint: str
    variables: Mapping[str, str] = field(repr=False)
    timeout: timedelta | None
    concurrency: int
    memory_mb: int


def program_of(folder: Path, wishes: Wishes) -> Program:
    """As `sless deploy` would have it. Raises UsageFault."""
    source = _top_of(folder)
    planned = plan(source, wishes)
    kind = planned.kind or "service"
    configuration = first_configuration(planned, kind)
    runtime = configuration.get("runtime") or detect_runtime(source.files)
    if runtime != PYTHON:
        raise UsageFault(f"{folder} is {runtime} code, and `sless dev` runs {PYTHON} alone so far")
    return Program(
        name=planned.name,
        entrypoint=configuration.get("entrypoint") or detect_entrypoint(source.files, runtime),
        variables=_texts(configuration, "env_vars") | _texts(configuration, "secret_env"),
        timeout=_timeout(configuration.get("timeout_sec"), kind),
        concurrency=_concurrency(configuration.get("replicas"), kind),
        memory_mb=configuration.get("memory_mb") or DEFAULT_MEMORY_MB,
    )


def _top_of(folder: Path) -> Source:
    """The files of the top folder, with the content of what detection reads."""
    if not folder.is_dir():
        raise UsageFault(f"{folder} is no folder: give the one with the code")
    try:
        found = [entry for entry in folder.iterdir() if entry.is_file()]
        files = {entry.name: entry.read_bytes() if entry.suffix == ".py" else b"" for entry in found}
        manifest = folder / MANIFEST
        text = manifest.read_text() if MANIFEST in files else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"cannot read {folder}: {error}") from error
    return Source(name=folder.resolve().name, archive=b"", files=files, manifest=text)


def _texts(configuration: Mapping[str, Any], name: str) -> dict[str, str]:
    values = configuration.get(name, {})
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise UsageFault(f"{name} in sless.toml must be a table of strings")
    return dict(values)


def _timeout(seconds: object, kind: str) -> timedelta | None:
    given = seconds if isinstance(seconds, int) and seconds else DEFAULTS[kind].timeout_sec
    return timedelta(seconds=given) if given else None


def _concurrency(replicas: object, kind: str) -> int:
    given = replicas.get("concurrency") if isinstance(replicas, Mapping) else None
    return given if isinstance(given, int) and given > 0 else DEFAULTS[kind].concurrency
