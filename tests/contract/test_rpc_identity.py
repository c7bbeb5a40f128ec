"""Who is calling: the same answer for all four kinds of RPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from sless_platform.errors import InvalidArgument, PermissionDenied, Unauthenticated
from sless_platform.identity import ANONYMOUS, IdentitySigner, Principal
from sless_platform.rpc.access import Access, current_principal
from sless_platform.rpc.client import UserIdentity, with_identity
from sless_platform.rpc.server import RpcServer

from tests.support.identity import new_identity_keys
from tests.support.rpc import (
    ANYONE,
    AUDIENCE,
    KEYS,
    METHODS,
    SERVICE,
    Echo,
    EchoStub,
    add_echo,
    everywhere,
    outcome,
    running_echo,
    service_identity,
    verifier,
)

USER = Principal("alice", "space-1", frozenset({"member"}))


def user_token(principal: Principal = USER, audience: str = AUDIENCE, ttl: timedelta = timedelta(minutes=1)) -> str:
    return IdentitySigner(KEYS.private["auth"], "auth").sign(principal, audience, ttl, datetime.now(UTC))


def who() -> Echo:
    """Answers with who is calling, asked from within the servicer's code."""

    async def single(_request: Any, _context: Any) -> bytes:
        await asyncio.sleep(0)
        return repr(current_principal()).encode()

    async def stream(_request: Any, _context: Any) -> Any:
        yield b"first"
        await asyncio.sleep(0)
        yield repr(current_principal()).encode()

    return Echo(Unary=single, Requests=single, Answers=stream, Duplex=stream)


def everyone_is(access: Access) -> dict[str, Access]:
    return dict.fromkeys(METHODS, access)


@pytest.mark.parametrize("method", METHODS)
async def test_the_servicer_knows_a_service_that_speaks_for_itself(method: str, tmp_path: Path) -> None:
    access = everyone_is(Access.services("caller"))
    async with running_echo(who(), tmp_path, access=access) as running, running.channel() as channel:
        answer = await outcome(EchoStub(channel.channel), method)
    assert answer.decode() == repr(Principal("caller", service="caller"))


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_may_be_made_as_a_user_instead(method: str, tmp_path: Path) -> None:
    access = everyone_is(Access.user())
    async with running_echo(who(), tmp_path, access=access) as running, running.channel() as channel:
        answer = await outcome(EchoStub(channel.channel), method, metadata=with_identity(user_token()))
    assert answer.decode() == repr(USER)


async def test_the_metadata_key_is_the_deployments_choice(tmp_path: Path) -> None:
    access = everyone_is(Access.user_or_services("caller"))
    async with (
        running_echo(who(), tmp_path, access=access, identity_metadata="who-calls") as running,
        running.channel(identity_metadata="who-calls") as channel,
    ):
        stub = EchoStub(channel.channel)
        assert (await stub.Unary(b"")).decode() == repr(Principal("caller", service="caller"))
        # The caller's own identity must not be sent beside the user's.
        assert (await stub.Unary(b"", metadata=with_identity(user_token()))).decode() == repr(USER)


async def test_calls_at_once_do_not_see_each_others_principal(tmp_path: Path) -> None:
    async with (
        running_echo(who(), tmp_path, access=everyone_is(Access.user())) as running,
        running.channel(identity=None) as channel,
    ):
        stub = EchoStub(channel.channel)
        users = [Principal(f"user-{number}", f"space-{number}") for number in range(20)]
        calls = [stub.Unary(b"", metadata=with_identity(user_token(user))) for user in users]
        answers = await asyncio.gather(*calls)
    assert [answer.decode() for answer in answers] == [repr(user) for user in users]


REFUSED: dict[str, tuple[Access, Callable[[], str], type[Exception]]] = {
    "service where users are meant": (Access.user(), lambda: service_identity().token(), PermissionDenied),
    "user where a service is meant": (Access.services("caller"), user_token, PermissionDenied),
    "another service": (Access.services("caller"), lambda: service_identity("stranger").token(), PermissionDenied),
    "another audience": (Access.user(), lambda: user_token(audience="other"), Unauthenticated),
    "expired": (Access.user(), lambda: user_token(ttl=timedelta(seconds=-1)), Unauthenticated),
    "nonsense": (Access.user(), lambda: "nonsense", Unauthenticated),
    "too large": (Access.user(), lambda: "x" * 9_000, Unauthenticated),
    "forged for an open method": (Access.anyone(), lambda: "forged", Unauthenticated),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", REFUSED)
async def test_who_may_not_call_is_refused_before_the_servicer_runs(case: str, method: str, tmp_path: Path) -> None:
    access, token, expected = REFUSED[case]

    def act() -> Any:
        raise AssertionError("the servicer ran")

    async with (
        running_echo(everywhere(act), tmp_path, access=everyone_is(access)) as running,
        running.channel(identity=UserIdentity(token())) as channel,
    ):
        with pytest.raises(expected):
            await outcome(EchoStub(channel.channel), method)


@pytest.mark.parametrize("method", METHODS)
async def test_nobody_is_refused_unless_anyone_may_call(method: str, tmp_path: Path) -> None:
    access = everyone_is(Access.user_or_services("caller"))
    async with running_echo(who(), tmp_path, access=access) as running, running.channel(identity=None) as channel:
        with pytest.raises(Unauthenticated, match="nobody is known"):
            await outcome(EchoStub(channel.channel), method)


async def test_anyone_may_call_an_open_method_and_is_nobody(tmp_path: Path) -> None:
    async with running_echo(who(), tmp_path, access=ANYONE) as running, running.channel(identity=None) as channel:
        assert (await EchoStub(channel.channel).Unary(b"")).decode() == repr(ANONYMOUS)


@pytest.mark.fault(21)
@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512"])
async def test_unsigned_tokens_and_key_confusion_are_refused(algorithm: str, tmp_path: Path) -> None:
    now = int(datetime.now(UTC).timestamp())
    claims = {"iss": "auth", "aud": AUDIENCE, "sub": "mallory", "namespace": "space-1", "iat": now, "exp": now + 60}
    # HMAC keyed with the public key, as text: what a verifier that trusts the header's algorithm would accept.
    key = None if algorithm == "none" else KEYS.public["auth"].encode()
    forged = _forged(claims, key, algorithm)
    async with (
        running_echo(who(), tmp_path, access=everyone_is(Access.user())) as running,
        running.channel(identity=UserIdentity(forged)) as channel,
    ):
        with pytest.raises(Unauthenticated):
            await EchoStub(channel.channel).Unary(b"")


@pytest.mark.fault(21)
async def test_a_token_signed_by_somebody_elses_key_is_refused(tmp_path: Path) -> None:
    forged = IdentitySigner(new_identity_keys("auth").private["auth"], "auth")
    token = forged.sign(USER, AUDIENCE, timedelta(minutes=1), datetime.now(UTC))
    async with (
        running_echo(who(), tmp_path, access=everyone_is(Access.user())) as running,
        running.channel(identity=UserIdentity(token)) as channel,
    ):
        with pytest.raises(Unauthenticated):
            await EchoStub(channel.channel).Unary(b"")


async def test_a_bearer_token_is_taken_where_there_is_no_identity(tmp_path: Path) -> None:
    async def bearer(token: str) -> Principal:
        if token != "good":
            raise Unauthenticated("the token does not hold")
        return USER

    access = everyone_is(Access.user())
    async with (
        running_echo(who(), tmp_path, access=access, bearer=bearer) as running,
        running.channel(identity=None) as channel,
    ):
        stub = EchoStub(channel.channel)
        assert (await stub.Unary(b"", metadata=(("authorization", "Bearer good"),))).decode() == repr(USER)
        for header in ("Bearer bad", "Basic Zm9vOmJhcg=="):
            with pytest.raises(Unauthenticated):
                await stub.Unary(b"", metadata=(("authorization", header),))


async def test_a_bearer_token_is_refused_where_nobody_can_verify_it(tmp_path: Path) -> None:
    async with (
        running_echo(who(), tmp_path, access=everyone_is(Access.user())) as running,
        running.channel(identity=None) as channel,
    ):
        with pytest.raises(Unauthenticated):
            await EchoStub(channel.channel).Unary(b"", metadata=(("authorization", "Bearer good"),))


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({name: Access.anyone() for name in METHODS if name != "Duplex"}, "who may call Duplex"),
        (ANYONE | {"Unnary": Access.anyone()}, "no method Unnary"),
        ({}, "who may call Answers, Duplex, Requests, Unary"),
    ],
    ids=["missing", "unknown", "empty"],
)
async def test_a_server_whose_rules_are_not_complete_does_not_start(
    access: dict[str, Access], words: str, tmp_path: Path
) -> None:
    server = RpcServer(f"unix:{tmp_path}/s.sock", verifier=verifier())
    server.add(Echo(), add_echo, SERVICE, access)
    with pytest.raises(InvalidArgument, match=words):
        await server.start()
    assert not (tmp_path / "s.sock").exists()


def _forged(claims: dict[str, Any], key: bytes | None, algorithm: str) -> str:
    """PyJWT refuses to sign with a PEM as HMAC key, so this is done by hand."""
    if key is None:
        return jwt.encode(claims, "", algorithm="none", headers={"kid": "auth"})
    unsigned = jwt.encode(claims, "k" * 64, algorithm=algorithm, headers={"kid": "auth"}).rpartition(".")[0]
    method = jwt.get_algorithm_by_name(algorithm)
    signature = method.sign(unsigned.encode(), key)
    return f"{unsigned}.{jwt.utils.base64url_encode(signature).decode()}"
