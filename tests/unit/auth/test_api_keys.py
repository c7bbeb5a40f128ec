"""API keys: their form, what they prove, and how fast they end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sless_auth.adapters.memory_keys import MemoryKeys
from sless_auth.application.api_keys import ApiKeys
from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain import api_keys
from sless_auth.domain.api_keys import ApiKey, StoredKey
from sless_auth.errors import (
    ApiKeyNotFound,
    ApiKeysUnavailable,
    InvalidField,
    LimitReached,
    PageTokenInvalid,
    TokenInvalid,
)
from sless_contracts.catalog import namespace_of
from sless_platform.errors import PermissionDenied
from sless_platform.identity import ADMIN_ROLE, Principal

from tests.support.api_keys import random_letters

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NAMESPACE = namespace_of("alice")
ALICE = Principal("alice", NAMESPACE)
BOB = Principal("bob", namespace_of("bob"))
ADMIN = Principal("root", namespace_of("root"), frozenset({ADMIN_ROLE}))


class CountedKeys(MemoryKeys):
    """Counts how often keys are read; `away` makes it answer nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.away = False

    async def find(self, key_id: str) -> StoredKey | None:
        self.read += 1
        if self.away:
            raise ApiKeysUnavailable("away")
        return await super().find(key_id)

    async def note_uses(self, uses: Any) -> None:
        if self.away:
            raise ApiKeysUnavailable("away")
        await super().note_uses(uses)


@dataclass
class Place:
    """Keys, and a clock that stands where it is put."""

    now: datetime = NOW
    limit: int = 100
    store: CountedKeys = field(default_factory=CountedKeys)

    def __post_init__(self) -> None:
        self.tokens = self.another()
        self.keys = ApiKeys(self.store, self.tokens, limit=self.limit, letters=random_letters, now=lambda: self.now)

    def another(self) -> KeyTokens:
        """What another replica knows of the same keys."""
        return KeyTokens(self.store, now=lambda: self.now)

    async def make(self, principal: Principal = ALICE, namespace: str = NAMESPACE, **fields: Any) -> tuple[ApiKey, str]:
        """A key and its token."""
        given: dict[str, Any] = {"name": "ci", "expires_at": None, "request_id": "", **fields}
        return await self.keys.create(principal=principal, namespace=namespace, **given)


async def test_a_key_acts_for_its_maker_in_its_namespace_alone() -> None:
    place = Place()
    key, token = await place.make()

    caller = await place.tokens.verify(token=token)

    assert caller.principal == Principal("alice", NAMESPACE, credential=key.id)
    assert caller.expires_at is None


async def test_a_key_that_an_admin_makes_for_another_has_that_namespace_and_no_role() -> None:
    place = Place()
    key, token = await place.make(ADMIN)

    caller = await place.tokens.verify(token=token)

    assert caller.principal == Principal("root", NAMESPACE, credential=key.id)
    assert not caller.principal.is_admin


async def test_a_token_has_the_form_that_scanners_know() -> None:
    key, token = await Place().make()

    assert re.fullmatch(r"sless_[0-9a-z]{16}_[0-9A-Za-z]{36}", token)
    assert api_keys.id_of(token) == key.id
    assert token.startswith(key.hint)
    assert key.id not in key.hint


async def test_no_two_keys_are_alike_and_no_secret_is_kept() -> None:
    place = Place()
    made = [await place.make() for _ in range(20)]

    assert len({token for _, token in made} | {key.id for key, _ in made}) == 40
    for key, token in made:
        kept = await place.store.find(key.id)
        assert token.rpartition("_")[2] not in repr(kept)
        assert kept == StoredKey(key, api_keys.digest_of(token))


def _with_other_secret(token: str) -> str:
    return api_keys.new_token(api_keys.id_of(token) or "", random_letters)


WRONG: dict[str, Callable[[str], str]] = {
    "cut": lambda token: token[:-1],
    "with a letter more": lambda token: token + "A",
    "with a letter changed": lambda token: token[:30] + ("a" if token[30] != "a" else "b") + token[31:],
    "with the checksum of another": lambda token: token[:-6] + "000000",
    "with the id alone": lambda token: token[:22],
    "of no key": lambda _token: api_keys.new_token(api_keys.new_id(random_letters), random_letters),
    "with another secret": _with_other_secret,
    "the prefix": lambda _token: "sless_",
}


@pytest.mark.fault(21)
@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_key_proves_nothing(case: str) -> None:
    place = Place()
    _, token = await place.make()
    await place.tokens.verify(token=token)
    wrong = WRONG[case](token)

    with pytest.raises(TokenInvalid) as refusal:
        await place.tokens.verify(token=wrong)

    assert wrong not in refusal.value.message


async def test_a_mistyped_key_is_not_even_looked_up() -> None:
    place = Place()
    _, token = await place.make()

    with pytest.raises(TokenInvalid, match="not a whole one"):
        await place.tokens.verify(token=WRONG["with a letter changed"](token))

    assert place.store.read == 0


async def test_a_revoked_key_ends_at_once_where_it_was_revoked() -> None:
    place = Place()
    key, token = await place.make()
    await place.tokens.verify(token=token)

    await place.keys.delete(principal=ALICE, namespace=NAMESPACE, key_id=key.id)

    with pytest.raises(TokenInvalid, match="revoked"):
        await place.tokens.verify(token=token)


async def test_a_revoked_key_ends_everywhere_within_five_seconds() -> None:
    place = Place()
    key, token = await place.make()
    elsewhere = place.another()
    await elsewhere.verify(token=token)
    await place.keys.delete(principal=ALICE, namespace=NAMESPACE, key_id=key.id)

    last = place.now
    for _ in range(100):
        place.now += timedelta(milliseconds=100)
        try:
            caller = await elsewhere.verify(token=token)
        except TokenInvalid:
            break
        assert caller.remember_until is not None
        last = caller.remember_until
    else:
        raise AssertionError("it works on")

    assert last - NOW < timedelta(seconds=5)


async def test_a_key_that_is_used_all_the_time_is_read_once_in_two_seconds() -> None:
    place = Place()
    _, token = await place.make()

    for _ in range(100):
        await place.tokens.verify(token=token)
        place.now += timedelta(milliseconds=100)

    assert place.store.read == 5


async def test_while_keys_cannot_be_read_those_of_the_last_seconds_go_on() -> None:
    place = Place()
    _, token = await place.make()
    await place.tokens.verify(token=token)
    place.store.away = True

    place.now += timedelta(seconds=1.9)
    await place.tokens.verify(token=token)
    place.now += timedelta(seconds=0.1)
    with pytest.raises(ApiKeysUnavailable):
        await place.tokens.verify(token=token)

    place.store.away = False
    await place.tokens.verify(token=token)


async def test_a_key_ends_when_it_says() -> None:
    place = Place()
    _, token = await place.make(expires_at=NOW + timedelta(seconds=1))
    caller = await place.tokens.verify(token=token)
    assert caller.expires_at == NOW + timedelta(seconds=1)

    place.now += timedelta(seconds=1)

    with pytest.raises(TokenInvalid, match="expired"):
        await place.tokens.verify(token=token)


async def test_when_a_key_was_last_used_is_written_now_and_then() -> None:
    place = Place()
    key, token = await place.make()
    for _ in range(3):
        place.now += timedelta(seconds=1)
        await place.tokens.verify(token=token)

    await place.tokens.write_uses()

    kept = await place.store.find(key.id)
    assert kept is not None
    assert kept.key.last_used_at == NOW + timedelta(seconds=3)


async def test_a_use_that_could_not_be_written_is_written_later() -> None:
    place = Place()
    key, token = await place.make()
    await place.tokens.verify(token=token)
    place.store.away = True
    with pytest.raises(ApiKeysUnavailable):
        await place.tokens.write_uses()

    place.store.away = False
    await place.tokens.write_uses()

    kept = await place.store.find(key.id)
    assert kept is not None
    assert kept.key.last_used_at == NOW


async def test_with_a_key_none_is_made_or_revoked() -> None:
    place = Place()
    key, token = await place.make()
    principal = (await place.tokens.verify(token=token)).principal

    with pytest.raises(PermissionDenied, match="with an API key"):
        await place.make(principal)
    with pytest.raises(PermissionDenied, match="with an API key"):
        await place.keys.delete(principal=principal, namespace=NAMESPACE, key_id=key.id)
    page = await place.keys.page(principal=principal, namespace=NAMESPACE, size=0, token="")
    assert page.keys == [key]


async def test_nobody_but_the_namespaces_owner_and_admins_may_touch_its_keys() -> None:
    place = Place()
    key, _ = await place.make()

    for attempt in (
        place.make(BOB),
        place.keys.page(principal=BOB, namespace=NAMESPACE, size=0, token=""),
        place.keys.delete(principal=BOB, namespace=NAMESPACE, key_id=key.id),
        place.keys.delete_all(principal=BOB, namespace=NAMESPACE),
    ):
        with pytest.raises(PermissionDenied):
            await attempt
    await place.keys.delete(principal=ADMIN, namespace=NAMESPACE, key_id=key.id)


async def test_the_keys_of_a_namespace_end_with_it() -> None:
    place = Place()
    _, token = await place.make()
    _, other = await place.make(BOB, BOB.namespace)
    await place.tokens.verify(token=token)

    await place.keys.delete_all(principal=Principal("registry", service="registry"), namespace=NAMESPACE)

    with pytest.raises(TokenInvalid):
        await place.tokens.verify(token=token)
    await place.tokens.verify(token=other)


@pytest.mark.parametrize("key_id", ["", "x", "a" * 16, "A" * 16, "é" * 16, "0" * 1000])
async def test_an_unknown_key_is_not_found(key_id: str) -> None:
    with pytest.raises(ApiKeyNotFound):
        await Place().keys.delete(principal=ALICE, namespace=NAMESPACE, key_id=key_id)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""), ("name", "x" * 64), ("name", "a\nb"), ("name", " a"), ("name", "\x00"),
        ("expires_at", NOW), ("expires_at", NOW - timedelta(days=1)), ("request_id", "again"),
    ],
)  # fmt: skip
async def test_a_value_that_is_not_allowed_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refusal:
        await Place().make(**{field: value})

    assert refusal.value.field == field


@pytest.mark.parametrize("namespace", ["", "default", "sless-\x00", "sless-0123456789ABCDEF"])
async def test_what_is_no_namespace_has_no_keys(namespace: str) -> None:
    place = Place()
    principal = Principal("root", namespace, frozenset({ADMIN_ROLE}))

    for attempt in (
        place.make(principal, namespace),
        place.keys.page(principal=principal, namespace=namespace, size=0, token=""),
        place.keys.delete(principal=principal, namespace=namespace, key_id="a" * 16),
    ):
        with pytest.raises(InvalidField, match="namespace must be"):
            await attempt


async def test_a_namespace_has_so_many_keys_and_no_more() -> None:
    place = Place(limit=1)
    await place.make()

    with pytest.raises(LimitReached, match="revoke one first"):
        await place.make()


async def test_pages_go_on_where_they_ended() -> None:
    place = Place()
    made = []
    for _ in range(5):
        made.append((await place.make())[0])
        place.now += timedelta(microseconds=1)

    found: list[ApiKey] = []
    token = ""
    while True:
        page = await place.keys.page(principal=ALICE, namespace=NAMESPACE, size=2, token=token)
        found += page.keys
        token = page.next_token
        if not token:
            break

    assert found == made[::-1]


@pytest.mark.parametrize("token", ["x", "é", "AAAA", "c2xlc3MtMDEyMyAxIGE=", "=" * 9])
async def test_a_page_token_of_ones_own_making_is_refused(token: str) -> None:
    with pytest.raises(PageTokenInvalid):
        await Place().keys.page(principal=ALICE, namespace=NAMESPACE, size=0, token=token)


async def test_a_page_token_is_good_for_its_list_alone() -> None:
    place = Place()
    for _ in range(2):
        await place.make()
    page = await place.keys.page(principal=ALICE, namespace=NAMESPACE, size=1, token="")

    with pytest.raises(PageTokenInvalid):
        await place.keys.page(principal=ADMIN, namespace=BOB.namespace, size=1, token=page.next_token)


@pytest.mark.parametrize("size", [-1, 1001])
async def test_a_page_has_a_size(size: int) -> None:
    with pytest.raises(InvalidField, match="page_size"):
        await Place().keys.page(principal=ALICE, namespace=NAMESPACE, size=size, token="")
