"""Making and deleting namespaces."""

from __future__ import annotations

from datetime import timedelta

from sless_platform.identity import Principal, authorise

from sless_registry.application.means import Means
from sless_registry.application.mutation import ONCE, Mutation, Request, mutation
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.record import Changes, changes
from sless_registry.domain.resources import Namespace
from sless_registry.errors import InvalidField, NamespaceNotFound
from sless_registry.ports import Answer, ApiKeys


class Namespaces:
    """Every method first checks that the principal may act in the namespace (PermissionDenied)."""

    def __init__(self, means: Means, api_keys: ApiKeys) -> None:
        self._means = means
        self._api_keys = api_keys

    async def ensure(self, *, principal: Principal, namespace: str) -> Namespace:
        """The namespace, made when it is not there. Raises InvalidField for what can be no namespace."""
        authorise(principal, namespace)
        validation.namespace_name(namespace)
        known = await self._means.store.namespace(namespace)
        if known is not None:
            return known
        async with mutation(self._means, subject="", method="EnsureNamespace", request=ONCE) as under_way:
            return await under_way.transaction.ensure_namespace(namespace, under_way.now)

    async def delete(
        self, *, principal: Principal, namespace: str, confirm: str, request: Request, within: timedelta
    ) -> None:
        """Delete the namespace with all that is in it, at once; answered once nothing of it can be called any more.

        Its API keys go first, so that none is left whatever happens then, and again at the end, for those that were made
        meanwhile. Repeated while an earlier delete is not confirmed, it waits on and succeeds. Raises NamespaceNotFound, InvalidField,
        FencePending, Unavailable.
        """
        authorise(principal, namespace)
        if confirm != namespace:
            raise InvalidField(f"confirm must be {namespace!r}, not {confirm[:64]!r}", field="confirm")
        await self._api_keys.delete_all(namespace)
        async with mutation(
            self._means, subject=principal.subject, method="DeleteNamespace", request=request
        ) as under_way:
            revision = await self._deleted(under_way, namespace)
        await self._api_keys.delete_all(namespace)
        if revision:
            await self._means.fence(revision, within, done=f"namespace {namespace!r} is deleted")

    async def _deleted(self, under_way: Mutation, namespace: str) -> int:
        """The revision in which the newest of its functions is, or was, deleted; 0 when it had none."""
        transaction = under_way.transaction
        if under_way.earlier is not None:
            return 0 if under_way.earlier.function is None else under_way.earlier.function.revision
        if await transaction.lock_namespace(namespace) is None:
            return await self._unconfirmed(under_way, namespace)
        gone = Changes()
        function = None
        for record in await transaction.lock_all(namespace):
            after = lifecycle.deleted(record, under_way.now)
            gone, function = gone + changes(record, after), after.function
        await transaction.remove_namespace(namespace)
        answer = await under_way.write(gone, Answer(function, fenced=True))
        return 0 if answer.function is None else answer.function.revision

    async def _unconfirmed(self, under_way: Mutation, namespace: str) -> int:
        earlier = await under_way.transaction.deletion(namespace, "", kind=None)
        if earlier and not self._means.acknowledgements.holds(earlier):
            return earlier
        raise NamespaceNotFound(f"there is no namespace {namespace!r}")
