"""Page tokens: where a list goes on, opaque and signed, so that only what was given out comes back."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sless_registry.domain.resources import Function, Version
from sless_registry.errors import InvalidField, PageTokenInvalid
from sless_registry.ports import Sealer

DEFAULT_PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 1_000
PAGE_BYTES: Final = 2 * 1024 * 1024
"""About how large a page may get: a message has at most 4 MiB. A page that would be larger ends early."""
_SIGNATURE_BYTES: Final = 16
_FIXED_BYTES: Final = 1_024  # of a resource's fields of bounded length

T = TypeVar("T")
ListOf = Sequence[str]
"""What a list is of, such as ("functions", namespace, kind): a token is good for the same list only."""


def page_size(asked: int) -> int:
    """The size of a page; 0 asks for the default. Raises InvalidField."""
    if not 0 <= asked <= MAX_PAGE_SIZE:
        raise InvalidField(
            f"page_size must be from 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}, not {asked}", field="page_size"
        )
    return asked or DEFAULT_PAGE_SIZE


def fitting(items: Sequence[T], size: int, weight: Callable[[T], int]) -> Sequence[T]:
    """The first of the items that make a page: at most `size`, about PAGE_BYTES in all, one at least if there is one."""
    total = 0
    for count, item in enumerate(items[:size]):
        total += weight(item)
        if total > PAGE_BYTES and count:
            return items[:count]
    return items[:size]


def function_weight(function: Function) -> int:
    """About how many bytes the function's message has."""
    configuration = function.configuration
    maps = (configuration.env_vars, configuration.labels, dict.fromkeys(configuration.secret_env, "." * 64))
    texts = (
        configuration.description,
        function.message,
        *(text for each in maps for pair in each.items() for text in pair),
    )
    return _FIXED_BYTES + sum(len(text.encode()) for text in texts)


def version_weight(version: Version) -> int:
    """About how many bytes the version's message has."""
    reason = "" if version.error is None else version.error.message
    return _FIXED_BYTES + sum(len(text.encode()) for text in (version.message, reason, *version.layers))


def page_token(sealer: Sealer, of: ListOf, last: str) -> str:
    """The token of the page that goes on after the item with this key."""
    content = last.encode()
    return base64.urlsafe_b64encode(_signature(sealer, of, content) + content).decode()


def page_start(sealer: Sealer, of: ListOf, token: str) -> str:
    """The key of the last item before the page; "" for the first page. Raises PageTokenInvalid."""
    if not token:
        return ""
    try:
        decoded = base64.b64decode(token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise PageTokenInvalid from None
    signature, content = decoded[:_SIGNATURE_BYTES], decoded[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(sealer, of, content)):
        raise PageTokenInvalid
    return content.decode()


def _signature(sealer: Sealer, of: ListOf, content: bytes) -> bytes:
    return sealer.fingerprint(json.dumps(["page", *of]).encode() + content)[:_SIGNATURE_BYTES]
