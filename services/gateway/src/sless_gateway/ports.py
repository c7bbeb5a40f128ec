"""What the gateway needs of the other services.

Every method raises sless_platform.errors: what the service refused, Unavailable when it can't be reached,
DeadlineExceeded when it didn't answer in time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from sless_gateway.domain import (
    ApiKey,
    Call,
    CallBody,
    Caller,
    ConfigChange,
    Function,
    FunctionConfig,
    FunctionKey,
    Kind,
    Namespace,
    NewApiKey,
    Reply,
    SourceFile,
    SourceHead,
    Upload,
    Version,
)


class Authority(Protocol):
    """Whoever can tell whose a token is."""

    async def authenticate(self, token: str, audiences: Sequence[str]) -> Caller:
        """The token's owner, with an identity for each audience.

        Raises Unauthenticated when the token is not valid, Unavailable when that can't be told now.
        """
        ...


class ApiKeyKeeper(Protocol):
    """The owner of API keys; asked in the caller's name."""

    async def create(
        self, caller: Caller, namespace: str, *, name: str, expires_at: datetime | None, request_id: str
    ) -> NewApiKey:
        """Raises InvalidArgument, PermissionDenied for a caller who has presented an API key, reason LIMIT_REACHED."""
        ...

    async def all(self, caller: Caller, namespace: str) -> Sequence[ApiKey]:
        """All of them, newest first."""
        ...

    async def delete(self, caller: Caller, namespace: str, key_id: str) -> None:
        """Revoke one. Raises NotFound, PermissionDenied for a caller who has presented an API key."""
        ...


class Registry(Protocol):
    """The owner of all resources; asked in the caller's name. `etag` "" means any state."""

    async def ensure_namespace(self, caller: Caller, namespace: str) -> Namespace:
        """Make the namespace when it isn't there."""
        ...

    async def get_namespace(self, caller: Caller, namespace: str) -> Namespace:
        """Raises NotFound."""
        ...

    async def delete_namespace(self, caller: Caller, namespace: str, *, confirm: str, request_id: str) -> None:
        """Delete it with all that is in it. Raises NotFound, InvalidArgument when `confirm` isn't its name."""
        ...

    async def create(self, caller: Caller, key: FunctionKey, config: FunctionConfig, *, request_id: str) -> Function:
        """Raises AlreadyExists, InvalidArgument."""
        ...

    async def get(self, caller: Caller, key: FunctionKey) -> Function:
        """Raises NotFound."""
        ...

    async def functions(self, caller: Caller, namespace: str, kind: Kind) -> Sequence[Function]:
        """All of them, by name."""
        ...

    async def update(
        self, caller: Caller, key: FunctionKey, config: FunctionConfig, *, etag: str, request_id: str
    ) -> Function:
        """Replace the configuration. Raises NotFound, InvalidArgument, reason ETAG_MISMATCH."""
        ...

    async def delete(self, caller: Caller, key: FunctionKey, *, etag: str, request_id: str) -> None:
        """Raises NotFound, reason ETAG_MISMATCH."""
        ...

    async def wait(self, caller: Caller, key: FunctionKey, wait: timedelta) -> Function:
        """The function once the newest generation's outcome is known, or when the wait is over."""
        ...

    async def version(self, caller: Caller, key: FunctionKey, number: int) -> Version:
        """Raises NotFound."""
        ...

    async def versions(self, caller: Caller, key: FunctionKey) -> Sequence[Version]:
        """All of them, newest first. Raises NotFound for the function."""
        ...

    async def activate(self, caller: Caller, key: FunctionKey, number: int, *, etag: str, request_id: str) -> Function:
        """Make a built version the one that serves. Raises NotFound, reasons VERSION_NOT_BUILT, ETAG_MISMATCH."""
        ...


class Builder(Protocol):
    """Takes code; asked in the caller's name."""

    async def upload(
        self,
        caller: Caller,
        key: FunctionKey,
        parts: AsyncIterator[bytes | ConfigChange],
        *,
        etag: str,
        request_id: str,
        build_only: bool,
    ) -> Upload:
        """Stream an archive in and make a version of it, with the configuration that is among its parts, in one step.

        Raises InvalidArgument for a bad archive or configuration, reason ARCHIVE_TOO_LARGE, NotFound, and what `parts` raises.
        """
        ...

    def build_log(self, caller: Caller, key: FunctionKey, number: int, *, follow: bool) -> AsyncIterator[str]:
        """The log's parts; with `follow` until the build has ended. Raises NotFound."""
        ...

    def source(
        self, caller: Caller, key: FunctionKey, number: int | None, *, max_bytes: int
    ) -> AsyncGenerator[SourceHead | SourceFile, None]:
        """A head, then the files that fit into `max_bytes`. `number` None: what serves, the newest while nothing does.

        Raises NotFound, also when there is no version yet.
        """
        ...

    def archive(self, caller: Caller, key: FunctionKey, number: int | None) -> AsyncGenerator[SourceHead | bytes, None]:
        """A head, then the bytes of the archive as it was uploaded. Otherwise as `source`."""
        ...


class OpenCall(Protocol):
    """A call whose answer has begun."""

    @property
    def reply(self) -> Reply:
        """The answer's head."""
        ...

    def rest(self) -> AsyncIterator[bytes]:
        """What follows the reply's first bytes, as it comes. Raises when the answer breaks off."""
        ...

    async def close(self) -> None:
        """End the call: cancelled unless its answer is complete. Must be called, once."""
        ...


class Invoker(Protocol):
    """Makes calls."""

    async def open(self, call: Call, body: CallBody, *, caller: Caller | None) -> OpenCall:
        """Send a call and wait for its answer to begin. `caller` None: the gateway itself asks.

        Raises the reasons of sless.invoker.v1.ErrorReason, and what reading the body raises. Cancelling it cancels the call.
        """
        ...


class Peers(Protocol):
    """The services without which the gateway cannot do its main job."""

    async def reachable(self) -> Mapping[str, bool]:
        """Whether each of them serves, by its name; never raises."""
        ...
