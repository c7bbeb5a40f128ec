"""Uploads, and activating a version."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sless_platform.identity import Principal, authorise

from sless_registry.application.configuring import Change, changed_configuration, confirmed, needs_fence
from sless_registry.application.means import Means
from sless_registry.application.mutation import Mutation, Request, mutation
from sless_registry.application.names import locked
from sless_registry.application.switching import Switching
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.lifecycle import Upload
from sless_registry.domain.record import Record, changes, traced
from sless_registry.domain.resources import Function, Kind, Version
from sless_registry.errors import InvalidField
from sless_registry.ports import Answer

_CAPTURED: Final = frozenset({"runtime", "entrypoint"})
_REST_NAMES: Final = {"timeout": "timeout_sec"}


class Versions:
    """Every method first checks that the principal may act in the namespace (PermissionDenied)."""

    def __init__(self, means: Means, switching: Switching) -> None:
        self._means = means
        self._switching = switching

    async def create(
        self,
        *,
        principal: Principal,
        namespace: str,
        name: str,
        kind: Kind | None,
        upload: Upload,
        change: Change | None,
        etag: str,
        request: Request,
        within: timedelta,
    ) -> tuple[Version, bool, Function]:
        """Record an upload: the version, whether it is new, and the function. The principal has authorised `upload.created_by`.

        `change`: configuration that changes in the same generation; one that takes access away is answered once it holds everywhere.
        Raises InvalidField, FunctionNotFound, EtagMismatch, FencePending.
        """
        authorise(principal, namespace)
        _check(upload, change)
        # The builder vouches for the user, whose request ids must not meet another user's.
        async with mutation(
            self._means, subject=upload.created_by, method="CreateVersion", request=request
        ) as under_way:
            answer = under_way.earlier
            if answer is None:
                before = await locked(under_way.transaction, namespace=namespace, name=name, kind=kind)
                lifecycle.check_etag(before.function, etag)
                after, number, created = self._uploaded(before, upload, change, under_way)
                fenced = change is not None and not upload.build_only and needs_fence(before.function, after.function)
                answered = Answer(after.function, after.version(number), created, fenced)
                answer = await under_way.write(changes(before, after), answered)
        version, created, function = self._told(answer)
        if answer.fenced:
            function = await confirmed(self._means, self._switching, function, within)
        return version, created, function

    async def activate(
        self,
        *,
        principal: Principal,
        namespace: str,
        name: str,
        kind: Kind | None,
        number: int,
        etag: str,
        request: Request,
    ) -> tuple[Function, Version]:
        """Make a built version the one that should serve, with its runtime and entrypoint.

        Raises FunctionNotFound, EtagMismatch, VersionNotFound, VersionNotBuilt.
        """
        authorise(principal, namespace)
        async with mutation(
            self._means, subject=principal.subject, method="ActivateVersion", request=request
        ) as under_way:
            answer = under_way.earlier
            if answer is None:
                before = await locked(under_way.transaction, namespace=namespace, name=name, kind=kind)
                lifecycle.check_etag(before.function, etag)
                after = traced(before, lifecycle.activated(before, number, under_way.now), under_way.traceparent)
                answer = await under_way.write(changes(before, after), Answer(after.function, after.version(number)))
        version, _, function = self._told(answer)
        return function, version

    def _uploaded(
        self, before: Record, upload: Upload, change: Change | None, under_way: Mutation
    ) -> tuple[Record, int, bool]:
        """The function with the upload, the version's number, and whether that is new."""
        configuration = None if change is None else changed_configuration(self._means, before.function, change)
        new = self._means.new_version(under_way.now)
        after, version, created = lifecycle.uploaded(before, upload, new, configuration)
        return traced(before, after, under_way.traceparent), version.number, created

    def _told(self, answer: Answer) -> tuple[Version, bool, Function]:
        assert answer.version is not None  # noqa: S101 - every answer here is about a version
        assert answer.function is not None  # noqa: S101
        self._switching.notice(answer.function)
        return answer.version, answer.created, answer.function


def _check(upload: Upload, change: Change | None) -> None:
    validation.code_digest(upload.code_sha256)
    if upload.size_bytes <= 0:
        raise InvalidField(f"size_bytes must be at least 1, not {upload.size_bytes}", field="size_bytes")
    if not upload.created_by:
        raise InvalidField("created_by is required", field="created_by")
    if upload.build_only and change is not None:
        _check_captured(change.mask)


def _check_captured(mask: frozenset[str]) -> None:
    """A version has a runtime and an entrypoint of its own; all else belongs to the function, which serves on as it is."""
    others = sorted(mask - _CAPTURED)
    if others or not mask:
        field = _REST_NAMES.get(others[0], others[0]) if others else "config_mask"
        raise InvalidField(
            f"{field} can't be changed by an upload that is only built: the version takes runtime and entrypoint alone",
            field=field,
        )
