"""auth as a process of its own: with its database, without it, and with one that goes and comes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sless.auth.v1 import auth_pb2 as pb
from sless.auth.v1 import auth_pb2_grpc
from sless_auth.main import MIGRATIONS
from sless_contracts.catalog import namespace_of
from sless_contracts.wire import IDENTITY_METADATA, SERVICES
from sless_platform.errors import AlreadyExists, FailedPrecondition, PermissionDenied, Unauthenticated, Unavailable
from sless_platform.identity import IdentitySigner
from sless_platform.migrations import migrations_in
from sless_platform.rpc.client import RpcChannel, ServiceIdentity

from tests.support.identity import new_identity_keys
from tests.support.postgres import PostgresServer, ServiceDatabase, running_postgres

KEYS = new_identity_keys(*SERVICES)
ISSUER_KEY = Ed25519PrivateKey.generate()
ISSUER = "https://issuer.example"
LIMIT_SEC = 30
NAMESPACE = namespace_of("alice")
UUID = "0199e325-1cdf-7cda-9319-e5302a85e291"


def user_token(sub: str = "alice") -> str:
    """A token of the issuer."""
    claims = {"sub": sub, "iss": ISSUER, "exp": datetime.now(UTC) + timedelta(hours=1)}
    return jwt.encode(claims, ISSUER_KEY, algorithm="EdDSA", headers={"kid": "k"})


def settings(folder: Path, dsn: str, **changes: str) -> dict[str, str]:
    """The environment of an auth that listens in a folder."""
    jwk = jwt.algorithms.OKPAlgorithm.to_jwk(ISSUER_KEY.public_key(), as_dict=True)
    given = {
        "SLESS_LISTEN": f"unix:{folder}/sock",
        "SLESS_IDENTITY_KEY": KEYS.private["auth"],
        "SLESS_IDENTITY_PUBLIC_KEYS": json.dumps(KEYS.public),
        "SLESS_ISSUER": ISSUER,
        "SLESS_JWKS": json.dumps({"keys": [{**jwk, "kid": "k"}]}),
        "POSTGRES_DSN": dsn,
        "SLESS_LOG_LEVEL": "debug",
    }
    return {"PATH": os.defpath, **given, **changes}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="auth-") as path:
        yield Path(path)


@dataclass
class Auth:
    """A running auth."""

    target: str
    process: asyncio.subprocess.Process

    async def authenticate(self, token: str) -> pb.AuthenticateResponse:
        """What the gateway is told of a token."""
        signer = IdentitySigner(KEYS.private["gateway"], "gateway")
        identity = ServiceIdentity(signer, "gateway", "auth")
        async with RpcChannel(self.target, identity=identity, identity_metadata=IDENTITY_METADATA, tries=1) as channel:
            stub = auth_pb2_grpc.AuthServiceStub(channel.channel)
            answer: pb.AuthenticateResponse = await stub.Authenticate(
                pb.AuthenticateRequest(token=token, audiences=["registry"])
            )
            return answer

    async def call(self, method: str, request: Any, token: str) -> Any:
        """A user's own call."""
        async with RpcChannel(self.target, tries=1) as channel:
            stub = auth_pb2_grpc.AuthServiceStub(channel.channel)
            return await getattr(stub, method)(request, metadata=(("authorization", f"Bearer {token}"),))

    async def create(self, token: str | None = None, **fields: Any) -> pb.CreateApiKeyResponse:
        """A key of Alice's."""
        request = pb.CreateApiKeyRequest(**{"namespace": NAMESPACE, "name": "ci", **fields})
        answer: pb.CreateApiKeyResponse = await self.call("CreateApiKey", request, token or user_token())
        return answer

    async def listed(self) -> list[pb.ApiKey]:
        """Alice's keys."""
        answer = await self.call("ListApiKeys", pb.ListApiKeysRequest(namespace=NAMESPACE), user_token())
        return list(answer.api_keys)

    async def written(self) -> str:
        """Stops it; what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_SEC):
            out, err = await self.process.communicate()
        assert self.process.returncode == 0, err
        return (out + err).decode()


async def start(environment: dict[str, str]) -> asyncio.subprocess.Process:
    """The process, once it says that it is ready (or has ended)."""
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sless_auth",
        env=environment | {"SLESS_READY_FD": str(write)},
        pass_fds=[write],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read, "rb") as ready:
        async with asyncio.timeout(LIMIT_SEC):
            await asyncio.to_thread(ready.readline)
    return process


@asynccontextmanager
async def running(environment: dict[str, str]) -> AsyncIterator[Auth]:
    """An auth in a process of its own."""
    process = await start(environment)
    try:
        assert process.returncode is None
        yield Auth(environment["SLESS_LISTEN"], process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_a_key_works_until_it_is_revoked_and_no_secret_is_in_the_log(
    service_database: ServiceDatabase, folder: Path
) -> None:
    async with running(settings(folder, await service_database("auth", MIGRATIONS))) as auth:
        made = await auth.create()
        who = (await auth.authenticate(made.secret)).principal
        assert (who.sub, who.namespace, list(who.roles)) == ("alice", NAMESPACE, [])
        assert who.api_key_id == made.api_key.id
        assert not who.HasField("expires_at")
        me = await auth.call("WhoAmI", pb.WhoAmIRequest(), made.secret)
        assert me.principal.api_key_id == made.api_key.id
        assert [key.id for key in await auth.listed()] == [made.api_key.id]
        for refused in (auth.create(made.secret), auth.authenticate(made.secret[:-1] + "_")):
            with pytest.raises((PermissionDenied, Unauthenticated)):
                await refused

        revocation = pb.DeleteApiKeyRequest(namespace=NAMESPACE, id=made.api_key.id)
        with pytest.raises(PermissionDenied):
            await auth.call("DeleteApiKey", revocation, made.secret)
        await auth.call("DeleteApiKey", revocation, user_token())

        with pytest.raises(Unauthenticated):
            await auth.authenticate(made.secret)
        assert made.secret.rpartition("_")[2] not in await auth.written()


async def test_the_database_holds_no_secret(postgres_server: PostgresServer, folder: Path) -> None:
    database = await postgres_server.service_database("auth", MIGRATIONS)
    async with running(settings(folder, postgres_server.dsn(database, "sless_auth"))) as auth:
        made = await auth.create()
        kept = postgres_server.sql(database, "SELECT api_keys::text FROM sless_auth.api_keys")
    postgres_server.drop_database(database)

    assert made.api_key.id in kept
    assert made.secret.rpartition("_")[2] not in kept


async def test_the_last_use_is_there_after_a_stop(service_database: ServiceDatabase, folder: Path) -> None:
    environment = settings(folder, await service_database("auth", MIGRATIONS))
    async with running(environment) as auth:
        made = await auth.create()
        before = datetime.now(UTC)
        await auth.authenticate(made.secret)
        await auth.written()

    async with running(environment) as auth:
        (key,) = await auth.listed()
        assert key.last_used_at.ToDatetime(tzinfo=UTC) >= before
        await auth.authenticate(made.secret)


async def test_a_request_that_is_repeated_makes_no_second_key(service_database: ServiceDatabase, folder: Path) -> None:
    async with running(settings(folder, await service_database("auth", MIGRATIONS))) as auth:
        await auth.create(request_id=UUID)
        with pytest.raises((FailedPrecondition, AlreadyExists)) as refusal:
            await auth.create(request_id=UUID)
        assert refusal.value.reason == "REQUEST_ID_REUSED"
        assert len(await auth.listed()) == 1


async def test_keys_of_a_replica_end_at_the_other_within_five_seconds(
    service_database: ServiceDatabase, folder: Path
) -> None:
    dsn = await service_database("auth", MIGRATIONS)
    (folder / "2").mkdir()
    async with running(settings(folder, dsn)) as one, running(settings(folder / "2", dsn)) as two:
        made = await one.create()
        await two.authenticate(made.secret)
        await one.call("DeleteApiKey", pb.DeleteApiKeyRequest(namespace=NAMESPACE, id=made.api_key.id), user_token())

        remembered = timedelta()
        async with asyncio.timeout(5):
            while True:
                try:
                    remembered = (await two.authenticate(made.secret)).remember_for.ToTimedelta()
                except Unauthenticated:
                    break
                await asyncio.sleep(0.05)
        assert remembered <= timedelta(seconds=2)


async def test_users_are_verified_without_the_database_and_keys_once_it_is_back(folder: Path) -> None:
    with running_postgres() as server:
        database = await server.service_database("auth", MIGRATIONS)
        environment = settings(folder, server.dsn(database, "sless_auth"))
        async with running(environment) as auth:
            made = await auth.create()
            await asyncio.to_thread(server.stop)
            assert (await auth.authenticate(user_token())).principal.sub == "alice"
            with pytest.raises(Unavailable) as refusal:
                await auth.create()
            assert refusal.value.reason == "API_KEYS_UNAVAILABLE"
            with pytest.raises(Unavailable):
                await auth.authenticate(made.secret)
            await asyncio.to_thread(server.resume)
            await until_served(auth, made.secret)
            server.crash()
            await ended(auth, made.secret)
        async with running(environment) as auth:
            assert (await auth.authenticate(user_token())).principal.sub == "alice"
            with pytest.raises(Unavailable):
                await auth.authenticate(made.secret)
            await asyncio.to_thread(server.resume)
            await until_served(auth, made.secret)


async def ended(auth: Auth, secret: str) -> None:
    """A key that was verified before the database went is not for ever."""
    async with asyncio.timeout(10):
        while True:
            try:
                await auth.authenticate(secret)
            except Unavailable:
                return
            await asyncio.sleep(0.1)


async def until_served(auth: Auth, secret: str) -> None:
    async with asyncio.timeout(LIMIT_SEC):
        while True:
            try:
                await auth.authenticate(secret)
                return
            except Unavailable:
                await asyncio.sleep(0.1)


@pytest.mark.fault(40)
async def test_it_refuses_to_serve_on_an_older_schema(postgres_server: PostgresServer, folder: Path) -> None:
    database = postgres_server.new_database()
    dsn = postgres_server.provision(database, "auth")

    process = await start(settings(folder, dsn))
    async with asyncio.timeout(LIMIT_SEC):
        _, said = await process.communicate()
    postgres_server.drop_database(database)

    assert process.returncode not in {0, None}
    assert f"auth needs migration {migrations_in(MIGRATIONS)[-1].name}, the database has none" in said.decode()
