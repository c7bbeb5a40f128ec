"""The instances of all functions, as the runtime-manager tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sless_calls.pool import InstanceAddress
from sless_platform.errors import PlatformError

from sless_invoker.application.waiting import FunctionCalls
from sless_invoker.ports import Supply


@dataclass(frozen=True, slots=True)
class ServingSet:
    """All instances of one function that take calls, or the reason why none can be had."""

    function_uid: str
    instances: tuple[InstanceAddress, ...]
    failure: str


class Instances:
    """Keeps a FunctionCalls for each function that has instances, or calls that run or wait."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._functions: dict[str, FunctionCalls] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def of(self, function_uid: str) -> FunctionCalls:
        """The calls of one function."""
        found = self._functions.get(function_uid)
        if found is None:
            found = self._functions[function_uid] = FunctionCalls(function_uid, self._supply)
        return found

    def apply(self, sets: Sequence[ServingSet], *, reset: bool) -> None:
        """Takes changed sets; with `reset` functions that are not named have no instance."""
        if reset:
            named = {serving.function_uid for serving in sets}
            for uid, calls in self._functions.items():
                if uid not in named:
                    calls.update((), "")
        for serving in sets:
            self.of(serving.function_uid).update(serving.instances, serving.failure)

    def refuse(self, function_uid: str, error: PlatformError) -> None:
        """Sends away everyone who waits for this function."""
        found = self._functions.get(function_uid)
        if found is not None:
            found.refuse(error)

    def take_activity(self) -> list[tuple[str, int]]:
        """Functions that had calls since this was last asked, with the most at once; forgets what is idle."""
        activity = []
        for uid, calls in list(self._functions.items()):
            peak = calls.take_peak()
            if peak:
                activity.append((uid, peak))
            elif calls.idle:
                del self._functions[uid]
        return activity

    async def close(self) -> None:
        """Ends everything; calls in flight fail."""
        for calls in list(self._functions.values()):
            await calls.close()
        self._functions.clear()
