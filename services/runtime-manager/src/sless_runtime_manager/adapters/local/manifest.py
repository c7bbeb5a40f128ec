"""What is known of an instance beyond its process: the launcher keeps it, so that the next process of this service can adopt it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sless_runtime_manager.ports import InstanceHandle, InstanceSpec


def address_of(socket: str) -> str:
    """How an instance at this unix socket is reached."""
    return f"unix:{socket}"


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

    @classmethod
    def from_note(cls, note: object) -> Manifest | None:
        """The manifest that was noted; None for anything else."""
        try:
            return cls(**note) if isinstance(note, dict) else None
        except TypeError:
            return None

    def note(self) -> dict[str, object]:
        """What the launcher keeps."""
        return asdict(self)

    def handle(self, socket: str, started_at: datetime) -> InstanceHandle:
        """The instance, reached at the unix socket `socket`."""
        return InstanceHandle(address=address_of(socket), started_at=started_at, **asdict(self))
