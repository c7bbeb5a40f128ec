"""Writing functions and services: create, change, delete."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from sless_platform.identity import Principal, authorise

from sless_registry.application.means import Means
from sless_registry.application.mutation import Mutation, Request, mutation
from sless_registry.application.names import found, locked
from sless_registry.application.secrets import SecretWriter
from sless_registry.application.switching import Switching
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.drafts import Draft, merged
from sless_registry.domain.record import Changes, Record, changes
from sless_registry.domain.resources import Configuration, Function, Kind
from sless_registry.errors import FunctionExists, LimitReached
from sless_registry.ports import Answer


class Functions:
    """Every method first checks that the principal may act in the namespace (PermissionDenied)."""

    def __init__(self, means: Means, switching: Switching) -> None:
        self._means = means
        self._switching = switching

    async def create(
        self, *, principal: Principal, namespace: str, name: str, kind: Kind, draft: Draft, request: Request
    ) -> Function:
        """Make a function, and its namespace when it is not there. A failed function that never served gives way.

        Raises InvalidField, FunctionExists, LimitReached.
        """
        authorise(principal, namespace)
        made = self._new(namespace, name, kind, draft)
        async with self._mutation(principal, "CreateFunction", request) as under_way:
            answer = under_way.earlier
            if answer is None:
                room = await self._make_room(under_way, made.function)
                answer = await under_way.write(room + changes(None, made), Answer(made.function))
        return _function(answer)

    async def update(
        self,
        *,
        principal: Principal,
        namespace: str,
        name: str,
        kind: Kind | None,
        draft: Draft,
        mask: frozenset[str],
        etag: str,
        request: Request,
        within: timedelta,
    ) -> Function:
        """Change the masked fields. A change that takes access away is answered once it holds everywhere.

        Raises FunctionNotFound, EtagMismatch, InvalidField, FencePending.
        """
        authorise(principal, namespace)
        async with self._mutation(principal, "UpdateFunction", request) as under_way:
            answer = under_way.earlier
            if answer is None:
                before = await locked(under_way.transaction, namespace=namespace, name=name, kind=kind)
                lifecycle.check_etag(before.function, etag)
                after = self._configured(before, draft, mask, under_way, by=principal.subject)
                fenced = _needs_fence(before.function, after.function)
                answer = await under_way.write(changes(before, after), Answer(after.function, fenced=fenced))
        function = _function(answer)
        self._switching.notice(function)
        return await self._confirmed(function, within) if answer.fenced else function

    async def delete(
        self,
        *,
        principal: Principal,
        namespace: str,
        name: str,
        kind: Kind | None,
        etag: str,
        request: Request,
        within: timedelta,
    ) -> None:
        """Delete; answered once nothing routes to the function any more.

        Repeated while an earlier delete is not confirmed, it waits on and succeeds. Raises FunctionNotFound, EtagMismatch,
        FencePending.
        """
        authorise(principal, namespace)
        async with self._mutation(principal, "DeleteFunction", request) as under_way:
            if under_way.earlier is not None:
                revision = _function(under_way.earlier).revision
            else:
                revision = await self._deleted(under_way, namespace, name, kind, etag)
        await self._means.fence(revision, within, done=f"{name!r} is deleted")

    def _mutation(self, principal: Principal, method: str, request: Request) -> AbstractAsyncContextManager[Mutation]:
        return mutation(self._means, subject=principal.subject, method=method, request=request)

    def _new(self, namespace: str, name: str, kind: Kind, draft: Draft) -> Record:
        uid = self._means.new_uid()
        return lifecycle.created(
            uid=uid,
            namespace=validation.namespace_name(namespace),
            name=validation.function_name(name),
            kind=kind,
            configuration=self._validated(draft, kind, uid, None),
            now=self._means.now(),
        )

    def _validated(self, draft: Draft, kind: Kind, uid: str, current: Configuration | None) -> Configuration:
        stored = {} if current is None else current.secret_env
        writer = SecretWriter(self._means.sealer, uid, stored)
        return validation.configuration(draft, kind, stored=stored, store_secret=writer)

    async def _make_room(self, under_way: Mutation, made: Function) -> Changes:
        """What must be written besides for the name to be free. Raises FunctionExists, LimitReached."""
        await under_way.transaction.ensure_namespace(made.namespace, under_way.now)
        existing = await under_way.transaction.lock(made.namespace, made.name)
        if existing is not None:
            return _replaced(existing, under_way)
        limit = self._means.policy.functions_per_namespace
        if await under_way.transaction.count_functions(made.namespace) >= limit:
            raise LimitReached(
                f"namespace {made.namespace!r} has {limit} functions and services, which is the most it may have"
            )
        return Changes()

    def _configured(
        self, before: Record, draft: Draft, mask: frozenset[str], under_way: Mutation, *, by: str
    ) -> Record:
        function = before.function
        wanted = merged(function.configuration, draft, mask)
        configuration = self._validated(wanted, function.kind, function.uid, function.configuration)
        return lifecycle.configured(before, configuration, by=by, new=self._means.new_version(under_way.now))

    async def _confirmed(self, function: Function, within: timedelta) -> Function:
        """The function once its stored change holds everywhere, settled when it is switched off."""
        await self._means.fence(function.revision, within, done=f"{function.name!r} is changed")
        if not function.switching_off:
            return function
        settled = await self._switching.settle(function.uid, up_to=function.revision)
        return settled if settled is not None and settled.etag == function.etag else function

    async def _deleted(self, under_way: Mutation, namespace: str, name: str, kind: Kind | None, etag: str) -> int:
        """The revision in which the function is, or was, deleted. Raises FunctionNotFound, EtagMismatch."""
        record = await under_way.transaction.lock(namespace, name)
        if record is None:
            earlier = await under_way.transaction.deletion(namespace, name, kind=kind)
            if earlier and not self._means.acknowledgements.holds(earlier):
                return earlier
        function = None if record is None else record.function
        found(function, namespace=namespace, name=name, kind=kind, revision=0)
        assert record is not None  # noqa: S101 - found() has raised
        lifecycle.check_etag(record.function, etag)
        after = lifecycle.deleted(record, under_way.now)
        answer = await under_way.write(changes(record, after), Answer(after.function, fenced=True))
        return _function(answer).revision


def _replaced(existing: Record, under_way: Mutation) -> Changes:
    """A function gives way to one of its name if it failed and never served."""
    function = existing.function
    if not function.replaceable:
        raise FunctionExists(
            f"a {function.kind} named {function.name!r} exists in namespace {function.namespace!r}",
            metadata={"kind": function.kind},
        )
    return changes(existing, lifecycle.deleted(existing, under_way.now))


def _needs_fence(before: Function, after: Function) -> bool:
    """Whether an update waits until it holds everywhere: it takes access away, or repeats one that may have done so."""
    return lifecycle.is_tight(after) if before == after else lifecycle.tightens(before, after)


def _function(answer: Answer) -> Function:
    assert answer.function is not None  # noqa: S101 - every answer here is about a function
    return answer.function
