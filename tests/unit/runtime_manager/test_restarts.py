from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sless_runtime_manager.restarts import Restarts

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def pauses_of_a_crash_loop(crashes: int, lives_sec: float) -> list[float]:
    """Each instance starts when it may, is ready at once, and crashes after `lives_sec`."""
    restarts, pauses, now = Restarts(), [], NOW
    for _ in range(crashes):
        started, now = now, now + timedelta(seconds=lives_sec)
        restarts.crashed(started, started, now)
        pause = restarts.pause(now) or timedelta(0)
        pauses.append(pause.total_seconds())
        now += pause
    return pauses


def test_the_first_crash_of_what_served_is_repaired_at_once_and_later_ones_after_a_second() -> None:
    assert pauses_of_a_crash_loop(9, lives_sec=1) == [0, 1, 1, 1, 1, 1, 1, 1, 1]


def test_a_minute_of_health_makes_up_for_crashes_before() -> None:
    assert pauses_of_a_crash_loop(4, lives_sec=61) == [0, 0, 0, 0]


def test_instances_that_crash_together_are_one_trouble() -> None:
    restarts = Restarts()
    for second in (10, 10.1, 10.2, 10.3):
        restarts.crashed(NOW, after(1), after(second))
    assert restarts.pause(after(10.3)) is None
    restarts.crashed(after(10.5), after(11), after(12))
    assert restarts.pause(after(12)) == timedelta(seconds=1)


def test_a_failed_start_is_told_and_paused_for_until_an_instance_is_ready() -> None:
    restarts = Restarts()
    restarts.start_failed("no such module", NOW, after(1))
    assert (restarts.failure, restarts.troubled) == ("no such module", True)
    assert restarts.pause(after(1)) == timedelta(seconds=1)
    restarts.became_ready()
    assert (restarts.failure, restarts.troubled) == ("", False)


def test_what_the_platform_could_not_do_is_no_failure_of_the_function_and_tried_again_soon() -> None:
    restarts, pauses = Restarts(), []
    for _ in range(7):
        restarts.postponed("no memory left", NOW)
        pause = restarts.pause(NOW)
        assert pause is not None
        pauses.append(pause.total_seconds())
        assert (restarts.failure, restarts.obstacle) == ("", "no memory left")
        restarts.retried()
    assert pauses == [0.25, 0.5, 1, 2, 4, 4, 4]
    restarts.became_ready()
    restarts.postponed("no memory left", NOW)
    assert restarts.pause(NOW) == timedelta(seconds=0.25)
