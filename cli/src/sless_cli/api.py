"""The REST API (docs: product's /openapi.json) as the commands use it: one sentence for every way in which it can fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from sless_cli.context import Context
from sless_cli.errors import CliError, NotAllowed, NotFound, Unreachable
from sless_cli.transport import TIMEOUT, Answer, http_client, never_sent, passing, unreachable, wrong_host

DELAYS_SEC = (0.2, 0.8)
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class ApiError(CliError):
    """The platform refused: its own sentence, with `status` and `code` of product's error table."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ApiNotAllowed(ApiError, NotAllowed):
    """401 or 403."""

    exit_code = NotAllowed.exit_code


class ApiNotFound(ApiError, NotFound):
    """404."""

    exit_code = NotFound.exit_code


class Api:
    """A platform's REST API, as one caller. `sleep` waits between tries."""

    def __init__(
        self, context: Context, client: httpx.Client | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.context = context
        self.client = http_client(context.endpoint) if client is None else client
        self.sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def namespace(self) -> str:
        """The caller's own namespace. What does not know it is not the API: raises Unreachable."""
        answer = self.send("GET", "/v1/whoami")
        body = answer.json()
        known = isinstance(body, dict) and isinstance(body.get("namespace"), str)
        if answer.status == 404 or (answer.status < 300 and not known):
            raise wrong_host(self.context.endpoint, answer)
        return str(self.checked(answer).json()["namespace"])

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> Answer:
        """An answer below 300, with JSON or nothing in it. `body` is sent as JSON, `content` as it is.

        `repeatable`: sending it twice does no harm.
        Raises ApiError (ApiNotAllowed for 401 and 403, ApiNotFound for 404) and Unreachable.
        """
        if body is not None:
            content = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        answer = self.send(
            method, path, content=content, headers=headers, params=params, repeatable=repeatable, timeout=timeout
        )
        checked = self.checked(answer)
        if checked.body and checked.json() is None:
            raise wrong_host(self.context.endpoint, checked)
        return checked

    def checked(self, answer: Answer) -> Answer:
        """The answer, when it is below 300. Raises as `call` does."""
        if answer.status >= 300:
            raise self._error(answer)
        return answer

    def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> Answer:
        """Whatever is answered. Faults of transport are tried again, three tries in all: when the request was never sent, or
        may be sent twice. An answer, also a refusal, never is. Raises Unreachable."""
        request = self._request(method, path, content=content, headers=headers, params=params, timeout=timeout)
        response, retried = self._sent(request, repeatable=repeatable)
        return _answer(response, retried=retried)

    @contextmanager
    def stream(self, path: str, *, params: Mapping[str, str], timeout: float) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer as they come. `timeout`: seconds without a byte. Raises ApiError, Unreachable."""
        request = self._request("GET", path, params=params, timeout=timeout)
        response, _ = self._sent(request, repeatable=True, stream=True)
        try:
            if response.status_code >= 300:
                raise self._error(self._whole(response))
            yield self._lines(response)
        finally:
            response.close()

    def _whole(self, response: httpx.Response) -> Answer:
        try:
            response.read()
        except httpx.TransportError as error:
            raise unreachable(self.context.endpoint, error) from error
        return _answer(response)

    def _lines(self, response: httpx.Response) -> Iterator[str]:
        try:
            yield from response.iter_lines()
        except httpx.TransportError as error:
            raise unreachable(self.context.endpoint, error) from error

    def _sent(self, request: httpx.Request, *, repeatable: bool, stream: bool = False) -> tuple[httpx.Response, bool]:
        """What is answered, and whether an earlier try may have reached the platform."""
        retried = False
        for delay in (*DELAYS_SEC, None):
            try:
                return self.client.send(request, stream=stream), retried
            except httpx.TransportError as error:
                harmless = never_sent(error) or repeatable or request.method in _IDEMPOTENT
                if delay is None or not harmless or not passing(error):
                    raise unreachable(self.context.endpoint, error) from error
                retried = retried or not never_sent(error)
                self.sleep(delay)
        raise AssertionError("the last try either answers or raises")

    def _request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> httpx.Request:
        try:
            return self.client.build_request(
                method,
                self.context.endpoint + path,
                content=content,
                headers={
                    "Authorization": f"Bearer {self.context.token}",
                    "Accept": "application/json",
                    **(headers or {}),
                },
                params=params,
                timeout=TIMEOUT if timeout is None else httpx.Timeout(timeout, connect=10.0),
            )
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
            raise Unreachable(f"{self.context.endpoint} with this token makes no valid request: {error}") from error

    def _error(self, answer: Answer) -> CliError:
        body = answer.json()
        if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in ("error", "code")):
            return wrong_host(self.context.endpoint, answer)
        message = _sentence(body["error"], answer, endpoint=self.context.endpoint)
        kinds: dict[int, type[ApiError]] = {401: ApiNotAllowed, 403: ApiNotAllowed, 404: ApiNotFound}
        return kinds.get(answer.status, ApiError)(message, status=answer.status, code=body["code"])


def resource_path(namespace: str, kind: str, name: str = "") -> str:
    """Path of a function or service, or of all of them."""
    base = f"/v1/namespaces/{quote(namespace, safe='')}/{kind}s"
    return f"{base}/{quote(name, safe='')}" if name else base


def _answer(response: httpx.Response, *, retried: bool = False) -> Answer:
    asked = f"{response.request.method} {response.request.url.path}"
    return Answer(response.status_code, response.headers, response.content, asked, retried)


def _sentence(message: str, answer: Answer, *, endpoint: str) -> str:
    if answer.status == 401:
        return f"{message} ({endpoint} does not accept this token: get one with `sless token`, or set SLESS_API_TOKEN)"
    if answer.status >= 500:
        identifier = answer.headers.get("x-request-id", "")
        return f"{message} ({endpoint} answered {answer.status}{f', request {identifier}' if identifier else ''})"
    return message
