"""Writing functions and services: create, change, delete."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from sless_platform.identity import Principal, authorise

from sless_registry.application.configuring import (
    Change,
    changed_configuration,
    confirmed,
    needs_fence,
    new_configuration,
)
from sless_registry.application.means import Means
from sless_registry.application.mutation import Mutation, Request, mutation
from sless_registry.application.names import found, locked
from sless_registry.application.switching import Switching
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.drafts import Draft
from sless_registry.domain.record import Changes, Record, changes, traced
from sless_registry.domain.resources import Function, Kind
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
                made = traced(None, made, under_way.traceparent)
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
                configuration = changed_configuration(self._means, before.function, Change(draft, mask))
                new = self._means.new_version(under_way.now)
                after = lifecycle.configured(before, configuration, by=principal.subject, new=new)
                after = traced(before, after, under_way.traceparent)
                fenced = needs_fence(before.function, after.function)
                answer = await under_way.write(changes(before, after), Answer(after.function, fenced=fenced))
        function = _function(answer)
        self._switching.notice(function)
        return await confirmed(self._means, self._switching, function, within) if answer.fenced else function

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
            configuration=new_configuration(self._means, draft, kind, uid),
            now=self._means.now(),
        )

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


def _function(answer: Answer) -> Function:
    assert answer.function is not None  # noqa: S101 - every answer here is about a function
    return answer.function
