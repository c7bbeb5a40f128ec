"""One timer a connection finds all calls that are overdue."""

from collections.abc import Callable
from typing import Any

from sless_calls.call import Call
from sless_calls.guard import Guard


class Clock:
    """The part of a loop that a guard uses, with time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.set_count = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.set_count += 1
        timer = (when, callback)
        self.timers.append(timer)

        class Handle:
            def cancel(handle) -> None:
                self.timers.remove(timer)

        return Handle()

    def move_to(self, now: float) -> None:
        self.now = now
        for timer in [timer for timer in self.timers if timer[0] <= now]:
            self.timers.remove(timer)
            timer[1]()


class Due:
    def __init__(self, due: float) -> None:
        self.due = due


def guard(clock: Clock, calls: dict[int, Any]) -> tuple[Guard, list[Any]]:
    overdue: list[Any] = []

    def end(call: Call) -> None:
        overdue.append(call)
        for number in [number for number, one in calls.items() if one is call]:
            del calls[number]

    loop: Any = clock
    return Guard(loop, calls, end), overdue


def test_calls_that_end_in_time_set_one_timer() -> None:
    clock = Clock()
    calls: dict[int, Any] = {}
    watching, overdue = guard(clock, calls)
    for number in range(1000):
        calls[number] = Due(30.0 + number)
        watching.watch(calls[number])
        del calls[number]
    assert clock.set_count == 1
    clock.move_to(5000)
    assert overdue == []
    assert clock.timers == []


def test_every_overdue_call_is_found_and_the_rest_is_watched_on() -> None:
    clock = Clock()
    calls: dict[int, Any] = {1: Due(10), 2: Due(5), 3: Due(20), 4: Due(10)}
    watching, overdue = guard(clock, calls)
    for call in list(calls.values()):
        watching.watch(call)
    clock.move_to(10)
    assert [call.due for call in overdue] == [10, 5, 10]
    assert [when for when, _ in clock.timers] == [20]
    clock.move_to(20)
    assert [call.due for call in overdue][3:] == [20]


def test_a_due_that_moved_later_is_looked_at_again_then() -> None:
    clock = Clock()
    calls: dict[int, Any] = {1: Due(10)}
    watching, overdue = guard(clock, calls)
    watching.watch(calls[1])
    calls[1].due = 40
    clock.move_to(10)
    assert overdue == []
    clock.move_to(40)
    assert len(overdue) == 1


def test_stop_leaves_no_timer() -> None:
    clock = Clock()
    calls: dict[int, Any] = {1: Due(10)}
    watching, _ = guard(clock, calls)
    watching.watch(calls[1])
    watching.stop()
    assert clock.timers == []
