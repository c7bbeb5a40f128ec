"""Uploads, and activating a version."""

from __future__ import annotations

from sless_platform.identity import Principal, authorise

from sless_registry.application.means import Means
from sless_registry.application.mutation import Request, mutation
from sless_registry.application.names import locked
from sless_registry.application.switching import Switching
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.lifecycle import Upload
from sless_registry.domain.record import changes
from sless_registry.domain.resources import Function, Kind, Version
from sless_registry.errors import InvalidField
from sless_registry.ports import Answer


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
        etag: str,
        request: Request,
    ) -> tuple[Version, bool, Function]:
        """Record an upload: the version, whether it is new, and the function. The principal has authorised `upload.created_by`.

        Raises InvalidField, FunctionNotFound, EtagMismatch.
        """
        authorise(principal, namespace)
        _check(upload)
        # The builder vouches for the user, whose request ids must not meet another user's.
        async with mutation(
            self._means, subject=upload.created_by, method="CreateVersion", request=request
        ) as under_way:
            answer = under_way.earlier
            if answer is None:
                before = await locked(under_way.transaction, namespace=namespace, name=name, kind=kind)
                lifecycle.check_etag(before.function, etag)
                new = self._means.new_version(under_way.now)
                after, version, created = lifecycle.uploaded(before, upload, new)
                answer = await under_way.write(changes(before, after), Answer(after.function, version, created))
        return self._told(answer)

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
                after = lifecycle.activated(before, number, under_way.now)
                answer = await under_way.write(changes(before, after), Answer(after.function, after.version(number)))
        version, _, function = self._told(answer)
        return function, version

    def _told(self, answer: Answer) -> tuple[Version, bool, Function]:
        assert answer.version is not None  # noqa: S101 - every answer here is about a version
        assert answer.function is not None  # noqa: S101
        self._switching.notice(answer.function)
        return answer.version, answer.created, answer.function


def _check(upload: Upload) -> None:
    validation.code_digest(upload.code_sha256)
    if upload.size_bytes <= 0:
        raise InvalidField(f"size_bytes must be at least 1, not {upload.size_bytes}", field="size_bytes")
    if not upload.created_by:
        raise InvalidField("created_by is required", field="created_by")
