"""Between the contract's messages and auth's own types. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from sless.auth.v1 import auth_pb2 as pb
from sless_platform.identity import Principal

from sless_auth.domain.api_keys import ApiKey
from sless_auth.domain.users import Caller, Identity
from sless_auth.errors import InvalidField


def authenticated(caller: Caller, identities: Sequence[Identity], now: datetime) -> pb.AuthenticateResponse:
    """Who presented a token, with identities."""
    message = pb.AuthenticateResponse(
        principal=principal(caller.principal), identities=[_identity(identity) for identity in identities]
    )
    if caller.expires_at is not None:
        message.principal.expires_at.FromDatetime(caller.expires_at)
    remember_for = caller.remember_for(now)
    if remember_for is not None:
        message.remember_for.FromTimedelta(remember_for)
    return message


def principal(who: Principal) -> pb.Principal:
    """A user."""
    return pb.Principal(sub=who.subject, namespace=who.namespace, roles=sorted(who.roles), api_key_id=who.credential)


def api_key(key: ApiKey) -> pb.ApiKey:
    """A key."""
    return pb.ApiKey(
        id=key.id,
        namespace=key.namespace,
        name=key.name,
        created_by=key.created_by,
        created_at=_stamp(key.created_at),
        expires_at=_stamp(key.expires_at),
        last_used_at=_stamp(key.last_used_at),
        hint=key.hint,
    )


def moment(message: pb.CreateApiKeyRequest, name: str) -> datetime | None:
    """A time of the request; None when it isn't set. Raises InvalidField for what is no time."""
    if not message.HasField(name):  # type: ignore[arg-type] # the stubs know each message's names alone
        return None
    value: Timestamp = getattr(message, name)
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidField(f"{name} must be a time of the years 1 to 9999", field=name) from None


def _identity(identity: Identity) -> pb.Identity:
    return pb.Identity(audience=identity.audience, token=identity.token, expires_at=_stamp(identity.expires_at))


def _stamp(value: datetime | None) -> Timestamp | None:
    if value is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(value)
    return stamp
