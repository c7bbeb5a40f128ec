"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


async def all_pages(page: Callable[[str], Any]) -> list[Any]:
    """The items of all pages. `page(token)` gives one page's items and the next page's token, "" after the last."""
    items, token = await page("")
    everything = list(items)
    while token:
        items, token = await page(token)
        everything.extend(items)
    return everything
