"""Work that must come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Await work that is not stopped by a cancellation: that is raised once the work is over.

    A thread cannot be stopped; whoever goes on before it has ended leaves something behind that it makes afterwards.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise


async def together(*works: Awaitable[None]) -> None:
    """Await all of them, each to its end, and raise the first error."""
    for outcome in await to_its_end(asyncio.gather(*works, return_exceptions=True)):
        if outcome is not None:
            raise outcome


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread, to its end."""
    return await to_its_end(asyncio.to_thread(function, *args, **kwargs))
