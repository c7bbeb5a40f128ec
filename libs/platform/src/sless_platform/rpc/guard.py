"""What stands around every servicer method: who is calling, whether it may, and errors as statuses.

The methods themselves are wrapped, once, when the server starts: gRPC runs each call in a task of its own, and what is set there (the
principal, the request id, the trace) is seen by the servicer's code and by nothing else.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeAlias

import grpc
from structlog.contextvars import bind_contextvars

from sless_platform.errors import Internal, Kind, PlatformError, Unauthenticated
from sless_platform.identity import IdentityVerifier, Principal
from sless_platform.logging import bound, get_logger
from sless_platform.rpc.access import Access, admit
from sless_platform.rpc.credentials import Metadata
from sless_platform.rpc.status import code_of, to_status, to_trailing_metadata
from sless_platform.rpc.traces import TracedMethod, answered
from sless_platform.telemetry import Span

REQUEST_ID_METADATA = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_BEARER_SCHEME = "bearer "

# Texts, because these classes are generic for type checkers alone.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour = Callable[[Any, Any], Any]

log = get_logger(__name__)


@dataclass(frozen=True)
class Guard:
    """How the calls of one server are checked and how their errors are told."""

    verifier: IdentityVerifier
    bearer: Callable[[str], Awaitable[Principal]] | None
    identity_metadata: str
    error_domain: str

    def wrap(self, handler: Handler, method: str, access: Access | None) -> Handler:
        """The handler with its behaviour wrapped. `access` None: identity is not even looked at (health, reflection)."""
        names = ("stream_stream", "stream_unary", "unary_stream", "unary_unary")
        name = next(name for name in names if getattr(handler, name))
        wrapping = self._streaming if handler.response_streaming else self._single
        made = getattr(grpc, f"{name}_rpc_method_handler")(
            wrapping(getattr(handler, name), method, access),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return made  # type: ignore[no-any-return]

    def _single(self, behaviour: Behaviour, method: str, access: Access | None) -> Behaviour:
        traced = TracedMethod(method)

        async def call(request: Any, context: Context) -> Any:
            sent, span = _accepted(traced, access, context)
            try:
                await self._enter(method, access, sent)
                answer = await behaviour(request, context)
                if span is not None:
                    answered(span, None)
                return answer
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary: _fail logs what it does not know
                await self._fail(error, context, span)
            finally:
                if span is not None:
                    span.end()

        return call

    def _streaming(self, behaviour: Behaviour, method: str, access: Access | None) -> Behaviour:
        traced = TracedMethod(method)

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            sent, span = _accepted(traced, access, context)
            try:
                await self._enter(method, access, sent)
                answers = behaviour(request, context)
                if hasattr(answers, "__aiter__"):
                    # Closed here, not by the garbage collector: its `finally` belongs to this call.
                    async with _closing(answers):
                        async for answer in answers:
                            yield answer
                else:
                    await answers  # a servicer that uses context.write
                if span is not None:
                    answered(span, None)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001
                await self._fail(error, context, span)
            finally:
                if span is not None:
                    span.end()

        return call

    async def _enter(self, method: str, access: Access | None, metadata: Mapping[str, str | bytes]) -> None:
        bind_contextvars(request_id=_request_id(metadata.get(REQUEST_ID_METADATA)), rpc=method)
        if access is not None:
            admit(access, await self._identify(metadata))

    async def _identify(self, metadata: Mapping[str, str | bytes]) -> Principal | None:
        token = metadata.get(self.identity_metadata)
        if isinstance(token, str):
            return self.verifier.verify(token, datetime.now(UTC))
        header = metadata.get("authorization")
        if not isinstance(header, str):
            return None
        if self.bearer is None or not header.lower().startswith(_BEARER_SCHEME):
            raise Unauthenticated("this kind of authorization is not taken here")
        return await self.bearer(header[len(_BEARER_SCHEME) :].strip())

    async def _fail(self, error: Exception, context: Context, span: Span | None) -> NoReturn:
        told = _typed(error) or _unknown()
        if told.kind is Kind.INTERNAL:
            log.error("call failed", exc_info=error)
        if span is not None:
            answered(span, told)
        status = to_status(told, self.error_domain)
        await context.abort(code_of(told), status.message, to_trailing_metadata(status))


def _accepted(
    traced: TracedMethod, access: Access | None, context: Context
) -> tuple[Mapping[str, str | bytes], Span | None]:
    """The call's metadata, and its span when one is made; health and reflection belong to no trace."""
    sent: Metadata = tuple(context.invocation_metadata() or ())
    metadata = dict(sent)
    return metadata, None if access is None else traced.accept(sent, metadata)


def _typed(error: Exception) -> PlatformError | None:
    """The error itself, or the first of a task group all of whose errors are typed; None for what a caller may not see."""
    if isinstance(error, ExceptionGroup):
        typed = [_typed(one) for one in error.exceptions]
        return None if None in typed else typed[0]
    return error if isinstance(error, PlatformError) else None


@asynccontextmanager
async def _closing(answers: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if hasattr(answers, "aclose"):
            await answers.aclose()


def _unknown() -> Internal:
    return Internal(f"internal error; request id {bound('request_id')}")


def _request_id(sent: str | bytes | None) -> str:
    """The caller's request id when it is a plain one, else a new one."""
    return sent if isinstance(sent, str) and _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
