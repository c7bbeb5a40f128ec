"""What a channel adds to every call: identity, request id, trace, a deadline, more tries."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import grpc

from sless_platform.backoff import Backoff
from sless_platform.errors import InvalidArgument, Kind, PlatformError
from sless_platform.logging import bound
from sless_platform.rpc.credentials import IdentitySource, Metadata
from sless_platform.rpc.guard import REQUEST_ID_METADATA
from sless_platform.rpc.options import DEFAULT_IDENTITY_METADATA
from sless_platform.rpc.status import from_rpc_error
from sless_platform.rpc.traces import metadata_of
from sless_platform.tracing import TRACEPARENT, Trace

NO_DEADLINE: Final = float("inf")
"""As a call's `timeout`: however long it takes."""


@dataclass(frozen=True)
class CallPolicy:
    """How the calls of one channel are made.

    timeout         of a call with one answer, all its tries together, unless the call says its own.
    stream_timeout  of a call with a stream of answers; None: without end, keepalive alone notices a dead peer.
    tries           how often a call is made at most while it ends with UNAVAILABLE.
    backoff         the pauses between tries.
    """

    identity: IdentitySource | None = None
    identity_metadata: str = DEFAULT_IDENTITY_METADATA
    timeout: timedelta = timedelta(seconds=10)
    stream_timeout: timedelta | None = None
    tries: int = 3
    backoff: Backoff = field(
        default_factory=lambda: Backoff(timedelta(milliseconds=200), timedelta(seconds=1), factor=4)
    )

    def metadata(self, given: Metadata | None, trace: Trace | None = None) -> list[tuple[str, str | bytes]]:
        """What a call of this trace is sent with. An identity that the call brings replaces the channel's own."""
        own = {DEFAULT_IDENTITY_METADATA, self.identity_metadata}
        sent = [(self.identity_metadata if key in own else key, value) for key, value in given or ()]
        keys = {key for key, _ in sent}
        if self.identity is not None and self.identity_metadata not in keys:
            sent.append((self.identity_metadata, self.identity.token()))
        request_id = bound("request_id")
        if request_id is not None and REQUEST_ID_METADATA not in keys:
            sent.append((REQUEST_ID_METADATA, request_id))
        if trace is not None and TRACEPARENT not in keys:
            sent += metadata_of(trace)
        for key, value in sent:
            # gRPC itself would fail with an error about a batch, and name no key.
            if isinstance(value, str) and not (value.isascii() and value.isprintable()):
                raise InvalidArgument(f"{key} holds characters that cannot be sent in metadata")
        return sent

    def attempts(self, method: str, timeout: float | None, default: timedelta | None) -> Attempts:
        """The tries of one call; `timeout` in seconds as the call said it."""
        if timeout is None:
            timeout = NO_DEADLINE if default is None else default.total_seconds()
        return Attempts(
            method, None if timeout == NO_DEADLINE else timeout, itertools.islice(self.backoff.delays(), self.tries - 1)
        )


class Attempts:
    """One call's tries against its one deadline."""

    def __init__(self, method: str, seconds: float | None, pauses: Iterator[timedelta]) -> None:
        self.method = method
        self._loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else self._loop.time() + seconds
        self._pauses = pauses

    def left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._deadline is None else max(self._deadline - self._loop.time(), 0)

    async def again(self, error: grpc.aio.AioRpcError) -> None:
        """Return when the call may be tried again; raise the typed error when it may not."""
        typed = from_rpc_error(error, self.method)
        pause = next(self._pauses, None) if typed.kind is Kind.UNAVAILABLE else None
        if pause is None or not self._fits(pause, typed):
            raise typed from error
        await asyncio.sleep(pause.total_seconds())

    def _fits(self, pause: timedelta, error: PlatformError) -> bool:
        # A peer that says when to come back knows better than our pauses: its word goes to the caller.
        if error.retry_after is not None and error.retry_after > pause:
            return False
        left = self.left()
        return left is None or pause.total_seconds() < left


@asynccontextmanager
async def mapped_errors(method: str = "the service") -> AsyncIterator[None]:
    """Raise typed errors for what a block's raw gRPC calls raise; those of an RpcChannel are typed already."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, method) from error
