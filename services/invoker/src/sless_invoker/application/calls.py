"""A call, from its admission to the end of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sless_calls.call import Call as RunningCall
from sless_calls.connection import Connection
from sless_calls.errors import (
    AnswerCut,
    CallError,
    InstanceCrashed,
    InstanceSilent,
    NotReachable,
    NotSent,
    ProtocolError,
    Refused,
)
from sless_calls.heads import CallHead, ReplyHead
from sless_calls.heads import LogLine as ProtocolLine
from sless_platform import tracing
from sless_platform.telemetry import Span

from sless_invoker.application import traces
from sless_invoker.application.admission import NamespaceAdmission
from sless_invoker.application.body import Body
from sless_invoker.application.instances import Instances
from sless_invoker.application.routes import Routes
from sless_invoker.application.waiting import Room
from sless_invoker.domain import Call, LogLine, Reply, Target, admit, not_found
from sless_invoker.errors import FunctionCrashed, FunctionTimeout, InstancesUnavailable, InstanceTimeout
from sless_invoker.ports import CallLog

_REFUSED_PAUSE_SEC: Final = 0.01
_REFUSED_PAUSE_MAX_SEC: Final = 0.25
_IDEMPOTENT_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a call waits for an instance, and how many of a function may wait for each replica it may have."""

    instance_wait: timedelta
    queued_per_replica: int


class Calls:
    """Makes calls."""

    def __init__(
        self,
        *,
        routes: Routes,
        instances: Instances,
        namespaces: NamespaceAdmission,
        log: CallLog,
        bounds: Bounds,
    ) -> None:
        self._routes = routes
        self._instances = instances
        self._namespaces = namespaces
        self._log = log
        self._bounds = bounds

    async def admit(self, call: Call) -> Target:
        """The function that the call is for, when the call may reach it; nothing of the body is needed.

        Raises FunctionNotFound, UrlDisabled, FunctionDisabled, NotReady, TokenRequired, Unavailable.
        """
        target = await self._routes.find(call.namespace, call.name)
        if target is None:
            raise not_found(call)
        admit(call, target)
        return target

    async def invoke(self, call: Call, target: Target, body: Body) -> AsyncGenerator[Reply | bytes, None]:
        """The answer: its head, with the body when that is complete, else followed by the body in pieces as they come.

        Raises TooManyRequests, InstanceTimeout, InstancesUnavailable, FunctionTimeout and FunctionCrashed; after the
        head the last two only, and then the body is not whole.
        """
        with self._namespaces.admit(target.namespace), self._instances.of(target.uid).counted():
            try:
                async with aclosing(self._attempts(call, target, body)) as parts:
                    async for part in parts:
                        yield part
            except InstancesUnavailable as error:
                if call.owner_authenticated:
                    raise
                # Why an instance does not start may hold lines of the code: it is the owner's to read.
                raise InstancesUnavailable(
                    f"{target.name} can't be called at the moment: try again later", retry_after=error.retry_after
                ) from None

    async def _attempts(self, call: Call, target: Target, body: Body) -> AsyncGenerator[Reply | bytes, None]:
        until = asyncio.get_running_loop().time() + self._bounds.instance_wait.total_seconds()
        pause, sent, cold = _REFUSED_PAUSE_SEC, 0, False
        while True:
            room = await self._room(target, until)
            cold = cold or room.cold
            answered = False
            try:
                version = room.connection.hello.version
                with traces.function(call, target, version=version, attempt=sent + 1, cold=cold) as span:
                    async with aclosing(self._on(room.connection, call, target, body, span)) as parts:
                        async for part in parts:
                            answered = True
                            yield replace(part, cold=cold) if isinstance(part, Reply) else part
                return
            except (NotSent, NotReachable, Refused) as error:
                _require_replayable(body, target, error)
                await _pause(pause, until, target)
                pause = min(pause * 2, _REFUSED_PAUSE_MAX_SEC)
            except FunctionCrashed:
                sent += 1
                again = target.idempotent and not answered and body.replayable and sent < _IDEMPOTENT_ATTEMPTS
                if not again:
                    raise

    async def _room(self, target: Target, until: float) -> Room:
        limit = self._bounds.queued_per_replica * target.max_replicas
        return await self._instances.of(target.uid).room(target, until=until, queue_limit=limit)

    async def _on(
        self, connection: Connection, call: Call, target: Target, body: Body, span: Span | None
    ) -> AsyncGenerator[Reply | bytes, None]:
        """The answer of one instance. Nothing is awaited before the call has been made: its room is not reserved."""

        def take(lines: list[ProtocolLine]) -> None:
            self._log.write(target.uid, call.request_id, [_log_line(line) for line in lines])

        running = connection.call(_head(call, target, span), body.first, end=body.complete, on_log=take)
        with running:
            upload = None if body.complete else _Upload(running, body)
            try:
                async for part in _answer(running, connection.hello.version):
                    if span is not None and isinstance(part, Reply):
                        traces.note(span, part)
                    yield part
            except CallError as error:
                if upload is not None and upload.error is not None:
                    raise upload.error from error
                raise _failure(error, target) from error
            finally:
                if upload is not None:
                    await upload.stop()


class _Upload:
    """Sends a body to an instance while the answer is awaited."""

    def __init__(self, running: RunningCall, body: Body) -> None:
        self.error: Exception | None = None
        self._running = running
        self._task = asyncio.create_task(self._send(body))

    async def stop(self) -> None:
        """Ends the sending; the answer is complete, or nobody waits for it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self, body: Body) -> None:
        try:
            async for chunk in body.chunks():
                await self._running.send(chunk)
            self._running.end()
        except CallError:
            return  # the answer's reader is told the same
        except Exception as error:  # noqa: BLE001 - whatever the body's source raises ends the call with it
            self.error = error
            self._running.cancel()


async def _answer(running: RunningCall, version: int) -> AsyncGenerator[Reply | bytes, None]:
    head = await running.reply()
    yield _reply(head, version, running.first_body if head.end else b"")
    if not head.end:
        async for chunk in running.body():
            yield chunk


async def _pause(seconds: float, until: float, target: Target) -> None:
    """Between two attempts: an instance that refuses is full or about to end, and others may have room."""
    if asyncio.get_running_loop().time() + seconds >= until:
        raise InstanceTimeout(f"no instance of {target.name} could be had in time: try again later")
    with suppress(TimeoutError):
        await asyncio.sleep(seconds)


def _require_replayable(body: Body, target: Target, error: CallError) -> None:
    if not body.replayable:
        raise InstancesUnavailable(f"{target.name} lost its instance before it took the call: send it again") from error


def _failure(error: CallError, target: Target) -> Exception:
    """What a caller is told. Errors after which the call may go elsewhere stay what they are."""
    match error:
        case NotSent() | NotReachable() | Refused():
            return error
        case InstanceSilent():
            return FunctionTimeout(f"{target.name} did not answer within its timeout")
        case AnswerCut():
            return FunctionCrashed(f"{target.name} ended its answer half-way ({error.type}): {error}")
        case InstanceCrashed() | ProtocolError():
            return FunctionCrashed(f"{target.name} ended during the call: its process died, see its log")
        case _:
            return FunctionCrashed(f"{target.name} could not be called: {error}")


def _head(call: Call, target: Target, span: Span | None) -> CallHead:
    trace = tracing.current() if span is None else span.trace
    return CallHead(
        id=call.invocation_id,
        request_id=call.request_id,
        method=call.method,
        path=call.path,
        query=call.query,
        headers=traces.told(call.headers, trace),
        deadline_ms=None if target.timeout is None else round(target.timeout / timedelta(milliseconds=1)),
        traceparent=None if trace is None else trace.traceparent,
        trigger=call.trigger.value,
    )


def _reply(head: ReplyHead, version: int, whole: bytes) -> Reply:
    took = None if head.handler_ms is None else timedelta(milliseconds=head.handler_ms)
    headers = tuple((name, value) for name, value in head.headers)
    return Reply(head.status, headers, took, version, cold=False, first=whole, complete=head.end)


def _log_line(line: ProtocolLine) -> LogLine:
    return LogLine(datetime.fromtimestamp(line.ts / 1000, UTC), line.stream, line.text)
