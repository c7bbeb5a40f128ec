"""The calls of one function: those that run, and those that wait in line for an instance."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sless_calls.connection import Connection
from sless_calls.pool import InstanceAddress, InstanceSet
from sless_platform.errors import FailedPrecondition, NotFound, PlatformError

from sless_invoker.application.admission import RETRY_AFTER
from sless_invoker.domain import Target
from sless_invoker.errors import InstancesUnavailable, InstanceTimeout, TooManyRequests
from sless_invoker.ports import Supply

_OPEN_TIMEOUT: Final = timedelta(seconds=10)
_AGAIN_SEC: Final = 0.25


@dataclass(frozen=True, slots=True)
class Room:
    """Room for one call. The call must be made before anything else is awaited."""

    connection: Connection
    cold: bool


class FunctionCalls:
    """One function's instances, and the line of calls before them. Everyone who waits stands in this one line."""

    def __init__(self, uid: str, supply: Supply) -> None:
        self._uid = uid
        self._supply = supply
        self._instances = InstanceSet(role="invoker", open_timeout=_OPEN_TIMEOUT, on_room=self._serve)
        self._line: deque[_Turn] = deque()
        self._running = 0
        self._peak = 0
        self._asking: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Calls in line."""
        return len(self._line)

    @property
    def idle(self) -> bool:
        """Whether nothing has to be kept for this function."""
        return not len(self._instances) and not self._running and not self._peak and self._instances.in_flight == 0

    def update(self, instances: Sequence[InstanceAddress], failure: str) -> None:
        """Takes the instances there are now, or the reason why none can be had."""
        self._instances.update(instances)
        if failure and not instances:
            self.refuse(InstancesUnavailable(failure, retry_after=RETRY_AFTER))

    def refuse(self, error: PlatformError) -> None:
        """Sends away everyone who waits."""
        while self._line:
            self._line.popleft().refuse(error)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a call, waiting or running, as activity."""
        self._running += 1
        self._peak = max(self._peak, self._running)
        try:
            yield
        finally:
            self._running -= 1

    def take_peak(self) -> int:
        """The most calls at once since this was last asked; 0 when there was none."""
        peak, self._peak = self._peak, self._running
        return peak

    async def room(self, target: Target, *, until: float, queue_limit: int) -> Room:
        """Waits for room, at most until the loop's time `until`.

        Raises TooManyRequests when the line is full, InstanceTimeout when the time is up, InstancesUnavailable when
        no instance can be had, NotFound when the function is gone.
        """
        if not self._line and (connection := self._instances.acquire()) is not None:
            return Room(connection, cold=False)
        cold = not len(self._instances)
        if len(self._line) >= queue_limit:
            raise TooManyRequests(
                f"{len(self._line)} calls of {target.name} wait for an instance already: try again later",
                retry_after=RETRY_AFTER,
            )
        return Room(await self._stand_in_line(target, until), cold)

    async def close(self) -> None:
        """Ends everything; calls in flight fail."""
        self.refuse(InstancesUnavailable("the invoker is stopping", retry_after=RETRY_AFTER))
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._instances.close()

    async def _stand_in_line(self, target: Target, until: float) -> Connection:
        turn = _Turn()
        self._line.append(turn)
        self._ask()
        try:
            async with asyncio.timeout_at(until):
                while True:
                    await turn.called()
                    if (connection := self._instances.acquire()) is not None:
                        return connection
        except TimeoutError:
            raise InstanceTimeout(f"no instance of {target.name} could be had in time: try again later") from None
        finally:
            if turn in self._line:
                self._line.remove(turn)
            # The next one runs after this call has been made, and so sees what room it has left.
            self._serve()

    def _serve(self) -> None:
        """Calls whoever waits longest; it stays at the head of the line until it has taken its room."""
        if self._line:
            self._line[0].call()

    def _ask(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_while_waiting(), name=f"instances of {self._uid}")

    async def _ask_while_waiting(self) -> None:
        """Tells the runtime-manager of the line until it is empty."""
        told, told_at = 0, float("-inf")
        loop = asyncio.get_running_loop()
        while self._line:
            if self._running > told or loop.time() - told_at >= 1:
                told, told_at = self._running, loop.time()
                await self._tell(told)
            # Not every reason for room is announced: an instance that could not be reached is tried again.
            self._serve()
            await asyncio.sleep(_AGAIN_SEC)

    async def _tell(self, concurrency: int) -> None:
        try:
            await self._supply.ensure(self._uid, concurrency)
        except FailedPrecondition as error:
            self.refuse(InstancesUnavailable(error.message, retry_after=error.retry_after or RETRY_AFTER))
        except NotFound as error:
            self.refuse(error)
        except PlatformError:
            return  # it is away; who waits goes on waiting, and it is asked again


class _Turn:
    """A place in the line."""

    def __init__(self) -> None:
        self._called = asyncio.Event()
        self._error: PlatformError | None = None

    def call(self) -> None:
        """There may be room."""
        self._called.set()

    def refuse(self, error: PlatformError) -> None:
        """There will be none."""
        self._error = error
        self._called.set()

    async def called(self) -> None:
        """Waits for the next call. Raises what it was refused with."""
        await self._called.wait()
        self._called.clear()
        if self._error is not None:
            raise self._error
