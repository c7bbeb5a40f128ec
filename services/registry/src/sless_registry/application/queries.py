"""Reading namespaces, functions and versions, and waiting for a function's outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sless_contracts import limits
from sless_platform.identity import Principal, authorise

from sless_registry.application.means import Means
from sless_registry.application.names import found
from sless_registry.application.paging import (
    fitting,
    function_weight,
    page_size,
    page_start,
    page_token,
    version_weight,
)
from sless_registry.domain.resources import Function, Kind, Namespace, Version
from sless_registry.errors import FunctionNotFound, InvalidField, NamespaceNotFound, VersionNotFound
from sless_registry.ports import FunctionAt


class Queries:
    """Every method first checks that the principal may act in the namespace (PermissionDenied)."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def namespace(self, *, principal: Principal, namespace: str) -> Namespace:
        """The namespace. Raises NamespaceNotFound."""
        authorise(principal, namespace)
        known = await self._means.store.namespace(namespace)
        if known is None:
            raise NamespaceNotFound(f"there is no namespace {namespace!r}")
        return known

    async def function(self, *, principal: Principal, namespace: str, name: str, kind: Kind | None) -> FunctionAt:
        """The live function of this name. Raises FunctionNotFound."""
        authorise(principal, namespace)
        at = await self._means.store.function(namespace, name)
        found(at.function, namespace=namespace, name=name, kind=kind, revision=at.revision)
        return at

    async def function_by_uid(self, *, principal: Principal, uid: str) -> FunctionAt:
        """The live function of this identity; for services. Raises FunctionNotFound, PermissionDenied for users."""
        authorise(principal, "")
        at = await self._means.store.function_by_uid(uid)
        if at.function is None or at.function.deleted_at is not None:
            raise FunctionNotFound(
                f"there is no function with uid {uid[:64]!r}", metadata={"read_revision": str(at.revision)}
            )
        return at

    async def functions(
        self, *, principal: Principal, namespace: str, kind: Kind | None, size: int, token: str
    ) -> tuple[Sequence[Function], str]:
        """One page of the namespace's functions by name, and the next page's token ("": this was the last).

        Raises InvalidField, PageTokenInvalid.
        """
        authorise(principal, namespace)
        sealer, of = self._means.sealer, ("functions", namespace, kind or "")
        size, after = page_size(size), page_start(sealer, of, token)
        found = await self._means.store.functions(namespace, kind=kind, after=after, limit=size + 1)
        page = fitting(found, size, function_weight)
        return page, page_token(sealer, of, page[-1].name) if len(page) < len(found) else ""

    async def wait(
        self,
        *,
        principal: Principal,
        namespace: str,
        name: str,
        kind: Kind | None,
        wait: timedelta,
        within: timedelta | None,
    ) -> Function:
        """The function once its newest generation's outcome is known, or after `wait`, or after `within` (None: no such bound).

        One without code is given as it is: nothing of it is under way.

        Raises InvalidField, FunctionNotFound also when it is deleted meanwhile.
        """
        function = await self._function(principal, namespace, name, kind)
        longest = limits.WAIT_SEC.value
        if not timedelta(0) <= wait <= timedelta(seconds=longest):
            raise InvalidField(f"wait must be from 0 to {longest} seconds, not {wait.total_seconds():g}", field="wait")
        longest_now = wait if within is None else min(wait, within)
        deadline = asyncio.get_running_loop().time() + longest_now.total_seconds()
        with self._means.feed.following(function.uid) as changed:
            while True:
                function = await self._live(function)
                if (
                    function.settled
                    or not function.code_version
                    or not await self._means.feed.next_change(changed, deadline)
                ):
                    return function

    async def version(
        self, *, principal: Principal, namespace: str, name: str, kind: Kind | None, number: int
    ) -> Version:
        """A version of a function; number 0: the newest. Raises FunctionNotFound, VersionNotFound."""
        function = await self._function(principal, namespace, name, kind)
        version = await self._means.store.version(function.uid, number)
        if version is None:
            what = f"version {number}" if number else "version yet"
            raise VersionNotFound(f"{function.kind} {name!r} has no {what}")
        return version

    async def versions(
        self, *, principal: Principal, namespace: str, name: str, kind: Kind | None, size: int, token: str
    ) -> tuple[Sequence[Version], str]:
        """One page of a function's versions, newest first, and the next page's token ("": this was the last).

        Raises FunctionNotFound, InvalidField, PageTokenInvalid.
        """
        function = await self._function(principal, namespace, name, kind)
        sealer, of = self._means.sealer, ("versions", function.uid)
        size, before = page_size(size), int(page_start(sealer, of, token) or 0)
        found = await self._means.store.versions(function.uid, before=before, limit=size + 1)
        page = fitting(found, size, version_weight)
        return page, page_token(sealer, of, str(page[-1].number)) if len(page) < len(found) else ""

    async def _function(self, principal: Principal, namespace: str, name: str, kind: Kind | None) -> Function:
        at = await self.function(principal=principal, namespace=namespace, name=name, kind=kind)
        return found(at.function, namespace=namespace, name=name, kind=kind, revision=at.revision)

    async def _live(self, function: Function) -> Function:
        """The function as it is now. Raises FunctionNotFound when it was deleted, whatever has its name since."""
        at = await self._means.store.function_by_uid(function.uid)
        live = at.function if at.function is not None and at.function.deleted_at is None else None
        return found(live, namespace=function.namespace, name=function.name, kind=None, revision=at.revision)
