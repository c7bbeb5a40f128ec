"""Rules of who may call, and the current principal."""

from __future__ import annotations

import asyncio

import pytest
from sless_platform.errors import PermissionDenied, Unauthenticated
from sless_platform.identity import ANONYMOUS, Principal
from sless_platform.rpc.access import Access, acting_as, admit, current_principal

USER = Principal("alice", "space-1")
STORE = Principal("store", service="store")
MAIL = Principal("mail", service="mail")


@pytest.mark.parametrize(
    ("access", "allowed"),
    [
        (Access.anyone(), {ANONYMOUS, USER, STORE, MAIL}),
        (Access.user(), {USER}),
        (Access.services("store"), {STORE}),
        (Access.services("store", "mail"), {STORE, MAIL}),
        (Access.user_or_services("mail"), {USER, MAIL}),
        (Access(), set()),
    ],
    ids=["anyone", "user", "one service", "two services", "user or service", "nobody"],
)
def test_each_rule_admits_its_own(access: Access, allowed: set[Principal]) -> None:
    for principal in (ANONYMOUS, USER, STORE, MAIL):
        if principal in allowed:
            access.check(principal)
        else:
            expected = Unauthenticated if principal is ANONYMOUS else PermissionDenied
            with pytest.raises(expected):
                access.check(principal)


def test_there_is_no_principal_outside_of_a_call() -> None:
    with pytest.raises(Unauthenticated):
        current_principal()


def test_acting_as_somebody_ends_with_the_block() -> None:
    with acting_as(USER):
        with acting_as(STORE):
            assert current_principal() == STORE
        assert current_principal() == USER
    with pytest.raises(Unauthenticated):
        current_principal()


async def test_who_was_admitted_is_known_in_that_task_and_its_children() -> None:
    async def child() -> Principal:
        return current_principal()

    async def served(principal: Principal) -> Principal:
        admit(Access.user(), principal)
        await asyncio.sleep(0)
        return await asyncio.create_task(child())

    other = Principal("bob", "space-2")
    known = await asyncio.gather(*map(served, (USER, other)))
    assert known == [USER, other]
    with pytest.raises(Unauthenticated):
        current_principal()


async def test_who_was_refused_is_not_known() -> None:
    with pytest.raises(PermissionDenied):
        admit(Access.services("store"), USER)
    with pytest.raises(Unauthenticated):
        current_principal()
