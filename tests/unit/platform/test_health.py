"""The health registry."""

from __future__ import annotations

import asyncio

from sless_platform.health import HealthRegistry


def test_nothing_serves_until_the_service_says_so() -> None:
    health = HealthRegistry()
    assert health.get("") is False
    health.set("", True)
    assert health.get("") is True


def test_a_dependency_has_a_name_of_its_own() -> None:
    health = HealthRegistry()
    health.set("", True)
    health.set("database", False)
    assert health.states() == {"": True, "database": False}
    assert health.get("broker") is None


async def test_a_watcher_sees_the_state_and_every_change() -> None:
    health = HealthRegistry()
    watch = health.watch("database")
    async with asyncio.timeout(5):
        assert await anext(watch) is None
        for serving in (False, True, False):
            health.set("database", serving)
            assert await anext(watch) is serving


async def test_a_watcher_is_not_woken_by_what_did_not_change() -> None:
    health = HealthRegistry()
    watch = health.watch("")
    async with asyncio.timeout(5):
        assert await anext(watch) is False
        waiting = asyncio.ensure_future(anext(watch))
        health.set("", False)
        health.set("other", True)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        health.set("", True)
        assert await waiting is True


async def test_a_watcher_that_left_is_forgotten() -> None:
    health = HealthRegistry()
    watch = health.watch("")
    await anext(watch)
    await watch.aclose()  # type: ignore[attr-defined]
    assert not health._watchers
