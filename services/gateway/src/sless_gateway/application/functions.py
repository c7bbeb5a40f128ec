"""Namespaces, functions and services, versions: check the namespace, then ask their owner."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sless_contracts import limits
from sless_platform.identity import authorise

from sless_gateway.application.conditions import ANY_STATE, Condition
from sless_gateway.domain import (
    Caller,
    Function,
    FunctionConfig,
    FunctionKey,
    Kind,
    Namespace,
    Phase,
    SourceFile,
    SourceHead,
    Version,
)
from sless_gateway.errors import BuildFailed
from sless_gateway.ports import Builder, Registry


@dataclass(frozen=True, slots=True)
class Changed:
    """A function after a change. Not `known`: its outcome was waited for in vain."""

    function: Function
    known: bool


class Resources:
    """What clients do with resources. Every method raises PermissionDenied first when the namespace isn't the caller's.

    `new_request_id` gives each write an id of its own, so that repeating it after a fault of transport changes nothing.
    """

    def __init__(self, registry: Registry, builder: Builder, *, new_request_id: Callable[[], str]) -> None:
        self._registry = registry
        self._builder = builder
        self._new_request_id = new_request_id

    async def ensure_namespace(self, *, caller: Caller, namespace: str, condition: Condition = ANY_STATE) -> Namespace:
        """Make the namespace when it isn't there."""
        authorise(caller.principal, namespace)
        if not condition.always:
            condition.check(namespace_etag(await self._registry.get_namespace(caller, namespace)))
        return await self._registry.ensure_namespace(caller, namespace)

    async def delete_namespace(
        self, *, caller: Caller, namespace: str, confirm: str, condition: Condition = ANY_STATE
    ) -> None:
        """Delete the namespace with all that is in it."""
        authorise(caller.principal, namespace)
        if not condition.always:
            condition.check(namespace_etag(await self._registry.get_namespace(caller, namespace)))
        request_id = self._new_request_id()
        await self._registry.delete_namespace(caller, namespace, confirm=confirm, request_id=request_id)

    async def functions(self, *, caller: Caller, namespace: str, kind: Kind) -> Sequence[Function]:
        """All functions, or all services, of a namespace, by name."""
        authorise(caller.principal, namespace)
        return await self._registry.functions(caller, namespace, kind)

    async def create(
        self, *, caller: Caller, key: FunctionKey, config: FunctionConfig, condition: Condition
    ) -> Function:
        """Make a function. There is no state of it yet that a condition could name."""
        authorise(caller.principal, key.namespace)
        condition.check_absent()
        return await self._registry.create(caller, key, config, request_id=self._new_request_id())

    async def function(self, *, caller: Caller, key: FunctionKey) -> Function:
        """One function."""
        authorise(caller.principal, key.namespace)
        return await self._registry.get(caller, key)

    async def replace(
        self,
        *,
        caller: Caller,
        key: FunctionKey,
        config: FunctionConfig,
        condition: Condition,
        wait: timedelta | None = None,
    ) -> Changed:
        """Give a function another configuration, whole. Raises BuildFailed when it was waited for and failed."""
        authorise(caller.principal, key.namespace)
        etag = await self.etag_for(caller, key, condition)
        function = await self._registry.update(caller, key, config, etag=etag, request_id=self._new_request_id())
        return await self._outcome(caller, function, wait)

    async def delete(self, *, caller: Caller, key: FunctionKey, condition: Condition) -> None:
        """Delete a function; nothing reaches it once this has returned."""
        authorise(caller.principal, key.namespace)
        etag = await self.etag_for(caller, key, condition)
        await self._registry.delete(caller, key, etag=etag, request_id=self._new_request_id())

    async def versions(self, *, caller: Caller, key: FunctionKey) -> Sequence[Version]:
        """A function's versions, newest first."""
        authorise(caller.principal, key.namespace)
        return await self._registry.versions(caller, key)

    async def version(self, *, caller: Caller, key: FunctionKey, number: int) -> Version:
        """One version."""
        authorise(caller.principal, key.namespace)
        return await self._registry.version(caller, key, number)

    async def activate(
        self, *, caller: Caller, key: FunctionKey, number: int, condition: Condition, wait: timedelta | None = None
    ) -> Changed:
        """Let a built version serve. Raises BuildFailed when it was waited for and failed."""
        authorise(caller.principal, key.namespace)
        etag = await self.etag_for(caller, key, condition)
        function = await self._registry.activate(caller, key, number, etag=etag, request_id=self._new_request_id())
        return await self._outcome(caller, function, wait)

    def build_log(self, *, caller: Caller, key: FunctionKey, number: int, follow: bool) -> AsyncIterator[str]:
        """A version's build log."""
        authorise(caller.principal, key.namespace)
        return self._builder.build_log(caller, key, number, follow=follow)

    def source(
        self, *, caller: Caller, key: FunctionKey, number: int | None
    ) -> AsyncGenerator[SourceHead | SourceFile, None]:
        """A version's source, or that of what serves: its files, as far as they fit into the bound."""
        authorise(caller.principal, key.namespace)
        return self._builder.source(caller, key, number, max_bytes=limits.SOURCE_BYTES.value)

    def archive(
        self, *, caller: Caller, key: FunctionKey, number: int | None
    ) -> AsyncGenerator[SourceHead | bytes, None]:
        """The same as the archive that was uploaded, whole."""
        authorise(caller.principal, key.namespace)
        return self._builder.archive(caller, key, number)

    async def etag_for(self, caller: Caller, key: FunctionKey, condition: Condition) -> str:
        """The etag that a write is to be made under; "" for any. Reads the function when several would do."""
        if condition.always or condition.any_existing:
            return ""
        if condition.single is not None:
            return condition.single
        current = (await self._registry.get(caller, key)).etag
        condition.check(current)
        return current

    async def _outcome(self, caller: Caller, function: Function, wait: timedelta | None) -> Changed:
        """What became of a change once it is known, or when the wait is over."""
        if wait is None:
            return Changed(function, known=True)
        function = await self._registry.wait(caller, function.key, wait)
        if function.settled and function.phase is Phase.FAILED:
            raise BuildFailed(function.message or "the version could not be started")
        return Changed(function, known=function.settled)


def namespace_etag(namespace: Namespace) -> str:
    """Changes when a namespace of the same name is made anew."""
    return f"{namespace.name}-{namespace.number}"
