"""Calls: bounded, made in the right name, with a token looked at only when the function wants one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from sless_platform.errors import PlatformError, Unavailable
from sless_platform.identity import authorise

from sless_gateway.application.callers import Callers
from sless_gateway.domain import Call, CallBody, Caller, Headers
from sless_gateway.errors import TooManyCalls
from sless_gateway.ports import Invoker, OpenCall

_TOKEN_REQUIRED: Final = "TOKEN_REQUIRED"  # noqa: S105 - the reason of an error
_RETRY_AFTER: Final = timedelta(seconds=1)


class Calls:
    """Makes calls, at most `limit` at once."""

    def __init__(self, invoker: Invoker, callers: Callers, *, limit: int) -> None:
        self._invoker = invoker
        self._callers = callers
        self._limit = limit
        self.in_flight = 0
        """Slots that are taken."""

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Held by a call from before its body is read until its answer is sent. Raises TooManyCalls."""
        if self.in_flight >= self._limit:
            raise TooManyCalls(
                f"this gateway has {self._limit} calls in flight, as many as it may: try again",
                retry_after=_RETRY_AFTER,
            )
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def public(self, *, call: Call, body: CallBody, token: str | None) -> OpenCall:
        """A call to a function's URL.

        `token` is the bearer token that came along. It is nobody's business unless the invoker answers that the
        function wants one; it does so before it reads of the body, which is then still in hand.
        """
        opened = await self._opened(call, body, token)
        body.settle()
        return opened

    async def _opened(self, call: Call, body: CallBody, token: str | None) -> OpenCall:
        try:
            return await self._invoker.open(call, body, caller=None)
        except PlatformError as error:
            if error.reason != _TOKEN_REQUIRED or token is None:
                raise
        caller = await self._callers.authenticate(token)
        authorise(caller.principal, call.namespace)
        if not body.rewind():
            raise Unavailable("the call was not authenticated before its body was sent", retry_after=_RETRY_AFTER)
        owned = replace(call, headers=_without_token(call.headers), owner_authenticated=True)
        return await self._invoker.open(owned, body, caller=None)

    async def invoke(self, *, call: Call, body: CallBody, caller: Caller) -> OpenCall:
        """A call by the owner, in the owner's name. The owner's token is not the function's business."""
        authorise(caller.principal, call.namespace)
        return await self._invoker.open(replace(call, headers=_without_token(call.headers)), body, caller=caller)


def _without_token(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.lower() != "authorization"]
