"""What a client may say of an API key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from sless_contracts import limits
from sless_platform.errors import InvalidArgument

from sless_gateway.http_api.fields import ReadOnly, about

_NAME = msgspec.Meta(
    description="A name for people.",
    extra_json_schema={"minLength": 1, "maxLength": limits.NAME_CHARS.value, "pattern": r"^\S(?:.*\S)?$"},
)


class ApiKeyForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body that makes an API key."""

    name: Annotated[str, _NAME]
    expires_at: (
        Annotated[datetime, msgspec.Meta(tz=True), about("When it stops to work, RFC 3339; null: never.")] | None
    ) = None
    id: ReadOnly = None
    hint: ReadOnly = None
    created_by: ReadOnly = None
    created_at: ReadOnly = None
    last_used_at: ReadOnly = None

    def ends(self) -> datetime | None:
        """`expires_at` in UTC. Raises InvalidArgument for what is no time there."""
        if self.expires_at is None:
            return None
        try:
            return self.expires_at.astimezone(UTC)
        except OverflowError:
            raise InvalidArgument(
                f"expires_at must be a time such as 2030-01-31T12:00:00Z, not {self.expires_at.isoformat()}",
                field="expires_at",
            ) from None
