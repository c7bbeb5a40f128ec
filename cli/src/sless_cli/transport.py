"""Below the REST API: the HTTP client, what it answered, and what its faults mean to a person."""

from __future__ import annotations

import ipaddress
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from sless_cli.errors import Unreachable, UsageFault

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_ELSEWHERE = "set SLESS_ENDPOINT, or start a platform with `sless up`"


@dataclass(frozen=True, slots=True)
class Answer:
    """status   HTTP status
    headers  of the answer, without regard to case
    body     whole
    asked    method and path of the request
    retried  whether an earlier try may have reached the platform
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    asked: str = ""
    retried: bool = False

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def http_client(endpoint: str) -> httpx.Client:
    """A client for this endpoint. One on this machine is never asked through a proxy."""
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL as error:
        raise UsageFault(
            f"{endpoint!r} is no URL ({error}): set SLESS_ENDPOINT to one such as http://127.0.0.1:9090"
        ) from error
    return httpx.Client(
        timeout=TIMEOUT,
        follow_redirects=False,
        trust_env=not _is_loopback(url.host),
        # Loading the certificates takes longer than a call; without TLS nothing looks at them.
        verify=httpx.create_ssl_context() if url.scheme == "https" else False,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def never_sent(error: httpx.TransportError) -> bool:
    """Whether the request cannot have reached the platform: no connection, or no TLS on it, came about."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def passing(error: httpx.TransportError) -> bool:
    """Whether the same request may fare better in a moment; a certificate that is not trusted stays so."""
    return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def wrong_host(endpoint: str, answer: Answer) -> Unreachable:
    """The sentence for an answer that no sless API gives."""
    return Unreachable(
        f"{endpoint} answered {_described(answer)} to {answer.asked}: this is probably the wrong host, "
        f"not the API's address; {_ELSEWHERE}"
    )


def unreachable(endpoint: str, error: httpx.TransportError) -> Unreachable:
    """The sentence for a fault of transport."""
    detail = str(error) or type(error).__name__
    if not passing(error):
        return Unreachable(
            f"{endpoint} has a certificate that is not trusted here ({detail}): is it the right host? "
            f"name the file of its authority in SSL_CERT_FILE"
        )
    if any("WRONG_VERSION_NUMBER" in str(cause) for cause in _causes(error)):
        return Unreachable(f"{endpoint} does not speak TLS: should SLESS_ENDPOINT begin with http://?")
    if never_sent(error):
        return Unreachable(f"cannot reach {endpoint} ({detail}): is the platform running? {_ELSEWHERE}")
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"{endpoint} did not answer in time: look at `sless status`, then try again")
    return Unreachable(f"the connection to {endpoint} broke ({detail}): look at `sless status`, then try again")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _described(answer: Answer) -> str:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "text/html" or answer.body.lstrip()[:1] == b"<":
        what = "HTML"
    elif not answer.body:
        what = "nothing"
    else:
        what = kind or "something unknown"
    if 300 <= answer.status < 400:
        return f"{answer.status} (go to {answer.headers.get('location', 'nowhere')})"
    return what if answer.status < 300 else f"{answer.status} with {what}"
