"""A function with its versions, and what differs between two states of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from sless_registry.domain.resources import Function, Version


@dataclass(frozen=True, slots=True)
class Record:
    """A function and those of its versions that are kept, by number. Changed as one, under the function's lock."""

    function: Function
    versions: tuple[Version, ...] = ()

    def version(self, number: int) -> Version | None:
        """The version of this number; None when there is none or it is kept no more."""
        return next((version for version in self.versions if version.number == number), None)

    def version_by_uid(self, uid: str) -> Version | None:
        """The version of this identity; None when it is kept no more."""
        return next((version for version in self.versions if version.uid == uid), None)

    def with_function(self, function: Function) -> Self:
        """The same with another state of the function."""
        return replace(self, function=function)

    def with_versions(self, changed: Iterable[Version]) -> Self:
        """The same with other states of some versions, and with new ones."""
        versions = {version.number: version for version in self.versions}
        versions.update({version.number: version for version in changed})
        return replace(self, versions=tuple(versions[number] for number in sorted(versions)))


@dataclass(frozen=True, slots=True)
class Changes:
    """What one transaction writes.

    functions, versions  new states, whole.
    dropped_versions     identities of versions that are kept no more.
    purged_functions     identities of functions that are gone for good, with their versions.
    """

    functions: tuple[Function, ...] = ()
    versions: tuple[Version, ...] = ()
    dropped_versions: tuple[str, ...] = ()
    purged_functions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.functions or self.versions or self.dropped_versions or self.purged_functions)

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            self.functions + other.functions,
            self.versions + other.versions,
            self.dropped_versions + other.dropped_versions,
            self.purged_functions + other.purged_functions,
        )


def traced(before: Record | None, after: Record, traceparent: str) -> Record:
    """`after`, which a request made of `before`, with the request's trace on what it began: a generation, and versions."""
    known = set() if before is None else {version.uid for version in before.versions}
    made = [replace(each, traceparent=traceparent) for each in after.versions if each.uid not in known]
    function = after.function
    if before is None or before.function.generation != function.generation:
        function = replace(function, traceparent=traceparent)
    return after.with_versions(made).with_function(function)


def changes(before: Record | None, after: Record) -> Changes:
    """What must be written so that `before` (None: nothing) becomes `after`; nothing when they are equal."""
    old = {} if before is None else {version.uid: version for version in before.versions}
    new = {version.uid: version for version in after.versions}
    return Changes(
        functions=() if before is not None and before.function == after.function else (after.function,),
        versions=tuple(version for uid, version in new.items() if old.get(uid) != version),
        dropped_versions=tuple(uid for uid in old if uid not in new),
    )
