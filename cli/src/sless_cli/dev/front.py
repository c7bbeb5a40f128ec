"""HTTP on this machine: every request is a call of the handler, as below a function's URL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web
from multidict import CIMultiDict
from sless_calls import Call, CallError, CallHead, InstanceSilent, NotReachable, NotSent, Refused, ReplyHead
from sless_calls.headers import request_headers, response_headers
from sless_calls.ids import new_invocation_id
from sless_contracts import limits

from sless_cli.dev.reloading import Broken, Reloader, Teller
from sless_cli.errors import CliError

INVOCATION_ID: Final = "X-Sless-Invocation-Id"
REQUEST_ID: Final = "X-Request-Id"
_OURS: Final = frozenset({INVOCATION_ID.lower(), REQUEST_ID.lower()})
_REFUSED_PAUSE_SEC: Final = 0.01


class Failed(Exception):
    """The platform's answer to a call that the handler did not answer."""

    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message, "code": code, **more}


class Front:
    """Answers requests; tells of each when it is over."""

    def __init__(self, reloader: Reloader, tell: Teller) -> None:
        self._reloader = reloader
        self._tell = tell

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        began = time.monotonic()
        status = "client gone"
        own = {INVOCATION_ID: new_invocation_id(datetime.now(UTC))}
        own[REQUEST_ID] = request.headers.get(REQUEST_ID) or own[INVOCATION_ID]
        try:
            response = await self._answered(request, own)
            status = str(response.status)
        except Failed as failed:
            status = str(failed.status)
            body = json.dumps({**failed.body, "request_id": own[REQUEST_ID]}, ensure_ascii=False)
            response = web.Response(status=failed.status, text=body, content_type="application/json", headers=own)
        except ConnectionError:
            status = "cut"
            raise
        finally:
            took = (time.monotonic() - began) * 1000
            self._tell.note(f"{request.method} {request.raw_path} {status} {took:.1f} ms")
        return response

    async def _answered(self, request: web.BaseRequest, own: dict[str, str]) -> web.StreamResponse:
        body = await _body(request)
        until = time.monotonic() + limits.INSTANCE_WAIT_SEC.value
        while True:
            try:
                return await self._called(request, body, own)
            except (NotSent, NotReachable, Refused):
                # The process is full, or about to be replaced: what was not begun may go to the next one.
                if time.monotonic() > until:
                    raise Failed(504, "INSTANCE_TIMEOUT", "no process took the call in time") from None
                await asyncio.sleep(_REFUSED_PAUSE_SEC)

    async def _called(self, request: web.BaseRequest, body: bytes, own: dict[str, str]) -> web.StreamResponse:
        try:
            connection, program = await self._reloader.connection()
        except Broken as broken:
            raise Failed(500, "HANDLER_ERROR", broken.message, type="LoadFailed", detail=broken.detail) from None
        head = _head(request, own, program.timeout)
        with connection.call(head, body, on_log=self._tell.lines) as running:
            try:
                reply = await running.reply()
            except (NotSent, NotReachable, Refused):
                raise
            except InstanceSilent:
                raise Failed(504, "FUNCTION_TIMEOUT", f"{program.name} did not answer within its timeout") from None
            except CallError:
                why = f"{program.name} ended during the call: its process died"
                raise Failed(502, "FUNCTION_CRASHED", why) from None
            try:
                return await _sent(request, running, reply, own)
            except CallError as error:
                self._tell.note(f"the answer ended half-way: {error}")
                raise ConnectionResetError(str(error)) from None


async def _body(request: web.BaseRequest) -> bytes:
    limit = limits.REQUEST_BODY_BYTES.value
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise Failed(413, "PAYLOAD_TOO_LARGE", f"the body is larger than {limit} bytes")
    return bytes(body)


def _head(request: web.BaseRequest, own: dict[str, str], timeout: timedelta | None) -> CallHead:
    path, _, query = request.raw_path.partition("?")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
    return CallHead(
        id=own[INVOCATION_ID],
        request_id=own[REQUEST_ID],
        method=request.method,
        path=path if path.startswith("/") else "/",
        query=query,
        headers=request_headers(headers),
        deadline_ms=None if timeout is None else round(timeout / timedelta(milliseconds=1)),
        traceparent=request.headers.get("traceparent"),
    )


async def _sent(request: web.BaseRequest, running: Call, reply: ReplyHead, own: dict[str, str]) -> web.StreamResponse:
    headers = CIMultiDict(
        [field for field in response_headers(reply.headers) if field[0].lower() not in _OURS] + list(own.items())
    )
    response = web.StreamResponse(status=reply.status, headers=headers)
    if reply.end:
        response = web.Response(status=reply.status, headers=headers, body=running.first_body)
    try:
        await response.prepare(request)
    except ValueError as error:
        raise Failed(500, "HANDLER_ERROR", f"the handler gave an answer that HTTP cannot carry: {error}") from None
    if not reply.end:
        async for chunk in running.body():
            await response.write(chunk)
        await response.write_eof()
    return response


class Listener:
    """The server's socket; `close` ends it."""

    def __init__(self, runner: web.ServerRunner, host: str) -> None:
        self._runner = runner
        self._host = host

    @property
    def url(self) -> str:
        """Where it listens."""
        port = self._runner.addresses[0][1]
        return f"http://{self._host}:{port}"

    async def close(self) -> None:
        """Take no more requests, and cut those that run."""
        await self._runner.cleanup()


async def listen(front: Callable[[web.BaseRequest], object], host: str, port: int) -> Listener:
    """Serve HTTP; port 0: a free one. Raises CliError when the port is taken."""
    server = web.Server(front, handler_cancellation=True, auto_decompress=False, access_log=None)  # type: ignore[arg-type]
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise CliError(f"cannot listen on {host}:{port} ({error.strerror or error}): give another --port") from error
    return Listener(runner, host)
