"""What is known of an instance beyond its process, kept in its folder so that the next process of this service can adopt it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from sless_runtime_manager.ports import InstanceHandle, InstanceSpec

_NAME = "instance.json"


@dataclass(frozen=True)
class Manifest:
    """A spec without its variables, which may be secret."""

    instance_id: str
    function_uid: str
    namespace: str
    name: str
    version: int
    generation: int
    template: str
    max_concurrency: int

    @classmethod
    def of(cls, spec: InstanceSpec) -> Manifest:
        """The part of the spec that outlives the start."""
        return cls(
            instance_id=spec.instance_id,
            function_uid=spec.function_uid,
            namespace=spec.namespace,
            name=spec.name,
            version=spec.version,
            generation=spec.generation,
            template=spec.template,
            max_concurrency=spec.max_concurrency,
        )

    def handle(self, socket: str, started_at: datetime) -> InstanceHandle:
        """The instance, reached at the unix socket `socket`."""
        return InstanceHandle(address=f"unix:{socket}", started_at=started_at, **asdict(self))


def write(folder: Path, manifest: Manifest) -> None:
    """Make the instance's folder and put the manifest there, whole or not at all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = folder / f".{_NAME}"
    partial.write_text(json.dumps(asdict(manifest)))
    os.replace(partial, folder / _NAME)


def read(folder: Path) -> Manifest | None:
    """The folder's manifest; None when there is none that can be read."""
    try:
        return Manifest(**json.loads((folder / _NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remove(folder: Path) -> None:
    """Remove a folder in which nothing was ever started."""
    (folder / _NAME).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return  # The launcher has put something there, or has removed it: either way it is the launcher's.
