"""Channels to other services."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from sless_platform.backoff import Backoff
from sless_platform.rpc.calls import MultiCallable
from sless_platform.rpc.credentials import IdentitySource, ServiceIdentity, UserIdentity, with_identity
from sless_platform.rpc.options import DEFAULT_IDENTITY_METADATA, MAX_MESSAGE_BYTES, client_options
from sless_platform.rpc.policy import NO_DEADLINE, CallPolicy, mapped_errors
from sless_platform.rpc.sending import Serializer

__all__ = [
    "NO_DEADLINE",
    "IdentitySource",
    "RpcChannel",
    "ServiceIdentity",
    "UserIdentity",
    "map_stream",
    "mapped_errors",
    "with_identity",
]

T = TypeVar("T")


class RpcChannel:
    """A channel to `unix:/path` or `host:port`; made inside the event loop that uses it: `XStub(RpcChannel(…).channel)`.

    Every call carries the identity, the current request id and trace, and a deadline; a unary-unary call, and a unary-stream call
    before its first answer, is tried again while the service is UNAVAILABLE. All calls raise sless_platform.errors.
    """

    def __init__(
        self,
        target: str,
        *,
        identity: IdentitySource | None = None,
        timeout: timedelta = timedelta(seconds=10),
        stream_timeout: timedelta | None = None,
        tries: int = 3,
        backoff: Backoff | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        identity_metadata: str = DEFAULT_IDENTITY_METADATA,
    ) -> None:
        """`timeout`: default deadline of calls with one answer; `stream_timeout`: of calls with a stream of answers (None: none).

        A call's own `timeout` (seconds, NO_DEADLINE) comes first. See CallPolicy for the rest.
        """
        policy = CallPolicy(identity, identity_metadata, timeout, stream_timeout, tries)
        if backoff is not None:
            policy = CallPolicy(identity, identity_metadata, timeout, stream_timeout, tries, backoff)
        inner = grpc.aio.insecure_channel(target, options=client_options(max_message_bytes))
        self.target = target
        self.channel: grpc.aio.Channel = _TypedChannel(inner, policy)
        """What stubs take."""

    async def close(self, grace: timedelta | None = None) -> None:
        """Close; calls that run are cancelled after `grace` (at once without one)."""
        await self.channel.close(None if grace is None else grace.total_seconds())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


class _TypedChannel(grpc.aio.Channel):
    """A grpc.aio channel whose methods are MultiCallables.

    Not grpc.aio's client interceptors: those cost a task a call, and their stream calls lack half of the interface.
    """

    def __init__(self, inner: grpc.aio.Channel, policy: CallPolicy) -> None:
        self._inner = inner
        self._policy = policy

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable("unary_unary", method, *args, **kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable("unary_stream", method, *args, **kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable("stream_unary", method, *args, **kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._callable("stream_stream", method, *args, **kwargs)

    def _callable(
        self, kind: str, method: str, request_serializer: Serializer | None = None, *args: Any, **kwargs: Any
    ) -> MultiCallable:
        inner = getattr(self._inner, kind)(method, request_serializer, *args, **kwargs)
        return MultiCallable(inner, kind, method, request_serializer, self._policy)

    async def close(self, grace: float | None = None) -> None:
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._inner.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()


async def map_stream(call: AsyncIterable[T], method: str = "the service") -> AsyncIterator[T]:
    """The answers of a raw grpc.aio call with typed errors; the streams of an RpcChannel have them already."""
    async with mapped_errors(method):
        async for answer in call:
            yield answer
