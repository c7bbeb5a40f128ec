"""What the memory store holds, and reading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from sless_registry.domain.record import Record
from sless_registry.domain.resources import Function, Kind, Namespace, Version
from sless_registry.ports import ChangePage, Event, RequestKey, ResourceType, Span, StoredAnswer

T = TypeVar("T", Function, Version)


@dataclass
class Tables:
    """One state of everything. Resources are immutable, so that copying the maps copies the state."""

    revision: int = 0
    floor: int = 0
    namespaces_made: int = 0
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)
    finalized: dict[str, frozenset[str]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    answers: dict[RequestKey, StoredAnswer] = field(default_factory=dict)

    def copy(self) -> Tables:
        """A state that can be changed without changing this one."""
        return Tables(
            self.revision,
            self.floor,
            self.namespaces_made,
            dict(self.namespaces),
            dict(self.functions),
            dict(self.versions),
            dict(self.finalized),
            list(self.events),
            dict(self.answers),
        )

    def live(self, namespace: str) -> list[Function]:
        """The namespace's live functions by name."""
        there = (f for f in self.functions.values() if f.namespace == namespace and f.deleted_at is None)
        return sorted(there, key=lambda function: function.name)

    def named(self, namespace: str, name: str) -> Function | None:
        """The live function of this name."""
        return next((function for function in self.live(namespace) if function.name == name), None)

    def deleted(self, namespace: str, name: str, kind: Kind | None) -> Iterable[Function]:
        """Functions that are being deleted, by the names they had."""
        return (
            function
            for function in self.functions.values()
            if function.namespace == namespace
            and function.deleted_at is not None
            and name in ("", function.name)
            and kind in (None, function.kind)
        )

    def record(self, function: Function) -> Record:
        """The function with its versions."""
        return Record(function, tuple(self.versions_of(function.uid)))

    def versions_of(self, function_uid: str) -> list[Version]:
        """The function's versions by number."""
        there = (version for version in self.versions.values() if version.function_uid == function_uid)
        return sorted(there, key=lambda version: version.number)

    def span(self) -> Span:
        """Which events are there."""
        return Span(self.floor, self.revision)

    def events_after(self, revision: int, limit: int) -> list[Event]:
        """See ports.Store.events."""
        later = [event for event in self.events if event.revision > revision]
        if len(later) <= limit:
            return later
        last = later[limit - 1].revision
        return [event for event in later if event.revision <= last]

    def changes_after(self, types: frozenset[ResourceType], revision: int, limit: int) -> ChangePage:
        """See ports.Store.changes."""
        events = self.events_after(revision, limit)
        bound = events[-1].revision if len(events) >= limit else self.revision
        touched = [event for event in events if event.type in types]
        functions = {event.uid for event in touched if event.type is ResourceType.FUNCTION}
        versions = {event.uid for event in touched if event.type is ResourceType.VERSION}
        return ChangePage(
            span=self.span(),
            revision=bound,
            functions=_in_order((self.functions[uid] for uid in functions if uid in self.functions), bound),
            versions=_in_order((self.versions[uid] for uid in versions if uid in self.versions), bound),
            purged=tuple(event.uid for event in touched if event.type is ResourceType.PURGE),
            purged_versions=tuple(event.uid for event in touched if event.type is ResourceType.VERSION_PURGE),
        )


def _in_order(resources: Iterable[T], bound: int) -> tuple[T, ...]:
    known = [resource for resource in resources if resource.revision <= bound]
    return tuple(sorted(known, key=lambda resource: (resource.revision, resource.uid)))
