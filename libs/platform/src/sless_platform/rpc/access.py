"""Who may call an RPC, said by each servicer for each of its methods, and who is calling this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sless_platform.errors import PermissionDenied, Unauthenticated
from sless_platform.identity import ANONYMOUS, Principal, authorise

__all__ = ["Access", "acting_as", "authorise", "current_principal"]

_PRINCIPAL: ContextVar[Principal] = ContextVar("principal")


@dataclass(frozen=True)
class Access:
    """Who may call one RPC. Namespaces are not judged here: the application does that with `authorise`."""

    everyone: bool = False
    users: bool = False
    callers: frozenset[str] = frozenset()

    @classmethod
    def anyone(cls) -> Access:
        """No identity needed; one that is sent must hold nevertheless."""
        return cls(everyone=True)

    @classmethod
    def user(cls) -> Access:
        """Any user who is known; no service that speaks for itself."""
        return cls(users=True)

    @classmethod
    def services(cls, *names: str) -> Access:
        """These services, speaking for themselves."""
        return cls(callers=frozenset(names))

    @classmethod
    def user_or_services(cls, *names: str) -> Access:
        """Any user who is known, and these services speaking for themselves."""
        return cls(users=True, callers=frozenset(names))

    def check(self, principal: Principal) -> None:
        """Raise Unauthenticated for nobody, PermissionDenied for somebody who may not call."""
        if self.everyone:
            return
        if principal.is_anonymous:
            raise Unauthenticated("nobody is known to be calling: send an identity")
        allowed = self.users if principal.service is None else principal.service in self.callers
        if not allowed:
            who = "users" if principal.service is None else f"the service {principal.service}"
            raise PermissionDenied(f"this operation is not for {who}")


def current_principal() -> Principal:
    """Who calls the RPC that is being served; ANONYMOUS only where Access.anyone() lets nobody in.

    Raises Unauthenticated outside of an RPC.
    """
    principal = _PRINCIPAL.get(None)
    if principal is None:
        raise Unauthenticated("nobody is known to be calling here")
    return principal


def admit(access: Access, principal: Principal | None) -> None:
    """Check the caller and make it the current principal of this task."""
    known = principal or ANONYMOUS
    access.check(known)
    _PRINCIPAL.set(known)


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Make `principal` the current one for a block: for work that a service does on its own account, and for tests."""
    token = _PRINCIPAL.set(principal)
    try:
        yield
    finally:
        _PRINCIPAL.reset(token)
