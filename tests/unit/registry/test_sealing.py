"""Secrets at rest, and page tokens signed with the same key."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest
from sless_platform.errors import Internal
from sless_registry.adapters.sealing import AesGcmSealer
from sless_registry.application.paging import page_start, page_token
from sless_registry.errors import PageTokenInvalid

KEY, OTHER = bytes(32), bytes([1]) * 32
CONTEXT = "uid/NAME"


def test_what_is_sealed_opens_and_shows_nothing() -> None:
    sealer = AesGcmSealer([KEY])

    sealed, again = (sealer.seal("hunter2 ☃", context=CONTEXT) for _ in range(2))

    assert sealer.open(sealed, context=CONTEXT) == "hunter2 ☃"
    assert sealed.size == len("hunter2 ☃".encode())
    assert b"hunter2" not in sealed.sealed
    assert sealed.digest != hashlib.sha256("hunter2 ☃".encode()).hexdigest()
    assert sealed.digest == again.digest
    assert sealed.sealed != again.sealed


def test_an_empty_secret_is_a_secret() -> None:
    sealer = AesGcmSealer([KEY])

    sealed = sealer.seal("", context=CONTEXT)

    assert (sealer.open(sealed, context=CONTEXT), sealed.size) == ("", 0)


def test_a_secret_opens_only_where_it_belongs_and_unchanged() -> None:
    sealer = AesGcmSealer([KEY])
    sealed = sealer.seal("hunter2", context=CONTEXT)
    for secret, context in (
        (sealed, "uid/OTHER"),
        (replace(sealed, sealed=sealed.sealed[:-1] + b"x"), CONTEXT),
    ):
        with pytest.raises(Internal, match="was changed outside of the registry"):
            sealer.open(secret, context=context)


def test_a_former_key_opens_what_it_sealed_and_seals_nothing_new() -> None:
    old = AesGcmSealer([KEY]).seal("hunter2", context=CONTEXT)
    rotated = AesGcmSealer([OTHER, KEY])

    new = rotated.seal("hunter2", context=CONTEXT)

    assert rotated.open(old, context=CONTEXT) == rotated.open(new, context=CONTEXT) == "hunter2"
    assert rotated.matches(old, "hunter2", context=CONTEXT)
    assert not rotated.matches(old, "hunter3", context=CONTEXT)
    assert new.key_id != old.key_id
    with pytest.raises(Internal, match=f"sealed with key {old.key_id}, which is not among SLESS_SECRET_ENV_OLD_KEYS"):
        AesGcmSealer([OTHER]).open(old, context=CONTEXT)
    assert not AesGcmSealer([OTHER]).matches(old, "hunter2", context=CONTEXT)


def test_nobody_can_try_values_in_a_function_of_their_own() -> None:
    sealer = AesGcmSealer([KEY])

    assert sealer.seal("1234", context="a/X").digest != sealer.seal("1234", context="b/X").digest


def test_a_page_token_is_good_for_its_list_only() -> None:
    sealer, of = AesGcmSealer([KEY]), ("functions", "ns", "")
    token = page_token(sealer, of, "hello")

    assert page_start(sealer, of, token) == "hello"
    assert page_start(sealer, of, "") == ""
    changed = base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)[:-1] + b"x").decode()
    for wrong_of, wrong in (
        (("functions", "other", ""), token),
        (("versions", "ns", ""), token),
        (of, changed),
        (of, token + "!"),
        (of, "ä"),
        (of, "AAAA"),
    ):
        with pytest.raises(PageTokenInvalid):
            page_start(sealer, wrong_of, wrong)
    with pytest.raises(PageTokenInvalid):
        page_start(AesGcmSealer([OTHER]), of, token)
