"""The REST API (docs: product's /openapi.json) as the commands use it: one sentence for every way in which it can fail."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from sless_cli.context import Context
from sless_cli.errors import CliError, NotAllowed, NotFound, Unreachable, UsageFault

TRIES = 3
DELAYS_SEC = (0.2, 0.8)
_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
# In these the request cannot have reached the platform.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """status   HTTP status
    headers  of the answer, without regard to case
    body     whole
    retried  whether an earlier try may have reached the platform
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    retried: bool = False

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


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


def http_client(endpoint: str) -> httpx.Client:
    """A client for this endpoint. One on this machine is never asked through a proxy."""
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL as error:
        raise UsageFault(
            f"{endpoint!r} is no URL ({error}): set SLESS_ENDPOINT to one such as http://127.0.0.1:9090"
        ) from error
    return httpx.Client(
        timeout=_TIMEOUT,
        follow_redirects=False,
        trust_env=not _is_loopback(url.host),
        # Loading the certificates takes longer than a call; without TLS nothing looks at them.
        verify=url.scheme == "https",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
        """The caller's own namespace."""
        answer = self.call("GET", "/v1/whoami")
        body = answer.json()
        if not isinstance(body, dict) or not isinstance(body.get("namespace"), str):
            raise self._wrong_host(answer)
        return str(body["namespace"])

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
        """An answer below 400. `body` is sent as JSON, `content` as it is. `repeatable`: sending it twice does no harm.

        Raises ApiError (ApiNotAllowed for 401 and 403, ApiNotFound for 404) and Unreachable.
        """
        if body is not None:
            content = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        answer = self.send(
            method, path, content=content, headers=headers, params=params, repeatable=repeatable, timeout=timeout
        )
        return self.checked(answer)

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
        retried = False
        for delay in (*DELAYS_SEC, None):
            try:
                response = self.client.send(request)
            except httpx.TransportError as error:
                never_sent = isinstance(error, _NEVER_SENT)
                if delay is None or not (never_sent or repeatable or method in _IDEMPOTENT):
                    raise self._unreachable(error) from error
                retried = retried or not never_sent
                self.sleep(delay)
            else:
                return Answer(response.status_code, response.headers, response.content, retried)
        raise AssertionError("the last try either answers or raises")

    @contextmanager
    def stream(self, path: str, *, params: Mapping[str, str], timeout: float) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer as they come. `timeout`: seconds without a byte. Raises ApiError, Unreachable."""
        request = self._request("GET", path, params=params, timeout=timeout)
        try:
            response = self.client.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        try:
            if response.status_code >= 300:
                response.read()
                raise self._error(Answer(response.status_code, response.headers, response.content))
            yield self._lines(response)
        finally:
            response.close()

    def _lines(self, response: httpx.Response) -> Iterator[str]:
        try:
            yield from response.iter_lines()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

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
                timeout=_TIMEOUT if timeout is None else httpx.Timeout(timeout, connect=10.0),
            )
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
            raise Unreachable(f"{self.context.endpoint} with this token makes no valid request: {error}") from error

    def _error(self, answer: Answer) -> CliError:
        body = answer.json()
        if not isinstance(body, dict) or not isinstance(body.get("error"), str):
            return self._wrong_host(answer)
        code = str(body.get("code", ""))
        message = _sentence(str(body["error"]), answer, endpoint=self.context.endpoint)
        kinds: dict[int, type[ApiError]] = {401: ApiNotAllowed, 403: ApiNotAllowed, 404: ApiNotFound}
        return kinds.get(answer.status, ApiError)(message, status=answer.status, code=code)

    def _wrong_host(self, answer: Answer) -> CliError:
        kind = answer.headers.get("content-type", "").partition(";")[0]
        what = "HTML" if kind == "text/html" else kind or "nothing"
        return Unreachable(
            f"{self.context.endpoint} answered {answer.status} with {what} where the sless API was expected: "
            f"it is probably the wrong host; set SLESS_ENDPOINT, or start a platform with `sless up`"
        )

    def _unreachable(self, error: httpx.TransportError) -> Unreachable:
        detail = str(error) or type(error).__name__
        if isinstance(error, _NEVER_SENT):
            advice = "is the platform running? start it with `sless up`, or set SLESS_ENDPOINT"
            return Unreachable(f"cannot reach {self.context.endpoint} ({detail}): {advice}")
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(
                f"{self.context.endpoint} did not answer in time: look at `sless status`, then try again"
            )
        return Unreachable(
            f"the connection to {self.context.endpoint} broke ({detail}): look at `sless status`, then try again"
        )


def resource_path(namespace: str, kind: str, name: str = "") -> str:
    """Path of a function or service, or of all of them."""
    base = f"/v1/namespaces/{quote(namespace, safe='')}/{kind}s"
    return f"{base}/{quote(name, safe='')}" if name else base


def _sentence(message: str, answer: Answer, *, endpoint: str) -> str:
    if answer.status == 401:
        return f"{message} ({endpoint} does not accept this token: get one with `sless token`, or set SLESS_API_TOKEN)"
    if answer.status >= 500:
        identifier = answer.headers.get("x-request-id", "")
        return f"{message} ({endpoint} answered {answer.status}{f', request {identifier}' if identifier else ''})"
    return message
