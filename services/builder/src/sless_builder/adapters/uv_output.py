"""What uv prints, on its way to a build's log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_OF_NO_INTEREST: Final = re.compile(r"Using (CPython|Python) |warning: The `--")
_ERROR: Final = re.compile(r"error:|  × ")
_KEPT: Final = 5_000


class Output:
    """Passes on what is said as it comes, and keeps the error at its end: that is told with what it means.

    `folder`: a place of this machine that means nothing to an author; it is taken out of what is said.
    """

    def __init__(self, output: Callable[[str], None], folder: str) -> None:
        self.lines: list[str] = []
        self._output = output
        self._folder = folder
        self._failed = False

    def line(self, text: str) -> None:
        """Take a line."""
        text = text.replace(self._folder, "")
        if _OF_NO_INTEREST.match(text):
            return
        if len(self.lines) < _KEPT:
            self.lines.append(text)
        self._failed = self._failed or _ERROR.match(text) is not None
        if not self._failed and text.strip():
            self._output(text)

    def tell_rest(self, quote: str) -> None:
        """Pass on what the error said beyond what is quoted of it."""
        start = next((at for at, text in enumerate(self.lines) if _ERROR.match(text)), len(self.lines))
        quoted = set(quote.splitlines())
        for text in self.lines[start:]:
            if text.strip() and text.rstrip() not in quoted:
                self._output(text)
