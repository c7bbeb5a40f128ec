"""If-Match (RFC 9110 §13.1.1): under which state of a resource a write is wanted. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sless_platform.errors import InvalidArgument

from sless_gateway.errors import EtagMismatch

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST: Final = re.compile(rf"\s*{_TAG}\s*(?:,\s*{_TAG}\s*)*,?\s*")
_ONE: Final = re.compile(_TAG)
_MEANS_ANY: Final = frozenset({"", "*"})
"""Etags that the contracts read as "any state", which an entity tag can never mean."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What If-Match said: nothing (`always`), `*` (`any_existing`), or entity tags, without their quotes.

    A weak tag never matches (§8.8.3.2: If-Match compares strongly), so it is kept as it came, to be refused.
    """

    always: bool = False
    any_existing: bool = False
    tags: tuple[str, ...] = ()

    @property
    def single(self) -> str | None:
        """The tag when there is exactly one; None otherwise."""
        return self.tags[0] if len(self.tags) == 1 and self.tags[0] not in _MEANS_ANY else None

    def check(self, current: str) -> None:
        """Raise EtagMismatch unless the resource that exists in the state `current` is one that was meant."""
        if not (self.always or self.any_existing or current in self.tags):
            raise EtagMismatch(f'If-Match names another state; the resource is at "{current}" now: read it again')

    def check_absent(self) -> None:
        """Raise EtagMismatch when a state is named of what does not exist yet."""
        if self.tags:
            raise EtagMismatch("If-Match names a state, but what is to be created has none yet")


ANY_STATE: Final = Condition(always=True)


def if_match(values: Iterable[str]) -> Condition:
    """The condition that the If-Match fields of a request make. Raises InvalidArgument for what can't be read."""
    text = ", ".join(values).strip()
    if not text:
        return ANY_STATE
    if text == "*":
        return Condition(any_existing=True)
    if _LIST.fullmatch(text) is None:
        raise InvalidArgument(f"If-Match must be * or entity tags in quotes, not {text}", field="If-Match")
    return Condition(tags=tuple(tag if tag.startswith("W/") else tag[1:-1] for tag in _ONE.findall(text)))
