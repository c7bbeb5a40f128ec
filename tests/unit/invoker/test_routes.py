"""Routes: no answer is older than its question, and nothing deleted is remembered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sless_invoker.application.routes import Routes
from sless_invoker.domain import Kind, Target
from sless_invoker.ports import Lookup
from sless_platform.errors import Unavailable

NAME = ("sless-a", "hello")


def target(revision: int = 1, *, served: bool = True, uid: str = "u1") -> Target:
    """A service."""
    return Target(
        uid=uid,
        namespace=NAME[0],
        name=NAME[1],
        kind=Kind.SERVICE,
        access_public=True,
        timeout=timedelta(seconds=30),
        max_replicas=1,
        concurrency=16,
        idempotent=False,
        served=served,
        message="",
        revision=revision,
    )


class Registry:
    """A directory whose answers a test lets go one by one."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Lookup]] = []
        self._news = asyncio.Event()

    async def find(self, namespace: str, name: str) -> Lookup:
        assert (namespace, name) == NAME
        answer: asyncio.Future[Lookup] = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        self._news.set()
        return await answer

    async def question(self, number: int) -> asyncio.Future[Lookup]:
        async with asyncio.timeout(5):
            while len(self.asked) < number:
                self._news.clear()
                await self._news.wait()
        return self.asked[number - 1]


async def settle() -> None:
    """Lets everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_function_that_has_served_is_asked_for_once() -> None:
    registry = Registry()
    routes = Routes(registry)
    first = asyncio.create_task(routes.find(*NAME))
    (await registry.question(1)).set_result(Lookup(target(), 1))

    assert await first == target()
    assert await routes.find(*NAME) == target()
    assert len(registry.asked) == 1


async def test_a_function_that_has_never_served_is_asked_for_each_time() -> None:
    registry = Registry()
    routes = Routes(registry)
    for number in (1, 2):
        asking = asyncio.create_task(routes.find(*NAME))
        (await registry.question(number)).set_result(Lookup(target(served=False), 1))
        assert await asking == target(served=False)

    assert len(routes) == 0


@pytest.mark.fault(1)
async def test_a_delete_that_comes_while_a_look_up_is_under_way_wins() -> None:
    registry = Registry()
    routes = Routes(registry)
    asking = asyncio.create_task(routes.find(*NAME))
    question = await registry.question(1)

    routes.apply([(NAME, None)], 7)
    question.set_result(Lookup(target(), 6))
    (await registry.question(2)).set_result(Lookup(None, 0))

    assert await asking is None
    assert len(routes) == 0


async def test_an_answer_that_is_newer_than_the_change_is_taken() -> None:
    registry = Registry()
    routes = Routes(registry)
    asking = asyncio.create_task(routes.find(*NAME))
    question = await registry.question(1)

    routes.apply([(NAME, target(7))], 7)
    question.set_result(Lookup(target(7), 7))

    assert await asking == target(7)


@pytest.mark.fault(2)
async def test_a_create_that_comes_while_nothing_was_found_is_seen() -> None:
    registry = Registry()
    routes = Routes(registry)
    asking = asyncio.create_task(routes.find(*NAME))
    question = await registry.question(1)

    routes.apply([(NAME, target(9, uid="u2"))], 9)
    question.set_result(Lookup(None, 0))
    (await registry.question(2)).set_result(Lookup(target(9, uid="u2"), 9))

    assert await asking == target(9, uid="u2")


async def test_a_late_caller_joins_only_a_look_up_that_has_not_started() -> None:
    registry = Registry()
    routes = Routes(registry)
    first = asyncio.create_task(routes.find(*NAME))
    running = await registry.question(1)
    late = [asyncio.create_task(routes.find(*NAME)) for _ in range(20)]
    await settle()
    assert len(registry.asked) == 1

    running.set_result(Lookup(target(1, served=False), 1))
    (await registry.question(2)).set_result(Lookup(target(2, served=False), 2))

    assert await first == target(1, served=False)
    assert await asyncio.gather(*late) == [target(2, served=False)] * 20
    assert len(registry.asked) == 2


async def test_who_joined_is_not_cancelled_with_who_asked() -> None:
    registry = Registry()
    routes = Routes(registry)
    first = asyncio.create_task(routes.find(*NAME))
    running = await registry.question(1)
    leader = asyncio.create_task(routes.find(*NAME))
    await settle()
    joined = asyncio.create_task(routes.find(*NAME))
    await settle()

    leader.cancel()
    running.set_result(Lookup(target(1, served=False), 1))
    (await registry.question(2)).set_result(Lookup(target(2), 2))

    assert await joined == target(2)
    assert await first == target(1, served=False)
    with pytest.raises(asyncio.CancelledError):
        await leader


async def test_an_error_reaches_everyone_who_asked_and_is_not_remembered() -> None:
    registry = Registry()
    routes = Routes(registry)
    asking = asyncio.create_task(routes.find(*NAME))
    (await registry.question(1)).set_exception(Unavailable("away"))
    with pytest.raises(Unavailable):
        await asking

    again = asyncio.create_task(routes.find(*NAME))
    (await registry.question(2)).set_result(Lookup(target(), 1))
    assert await again == target()


async def test_changes_of_what_nobody_calls_are_not_remembered() -> None:
    routes = Routes(Registry())

    routes.apply([((NAME[0], f"f{number}"), target(number)) for number in range(1000)], 1000)

    assert len(routes) == 0


async def test_missed_changes_make_everything_be_asked_again() -> None:
    registry = Registry()
    routes = Routes(registry)
    asking = asyncio.create_task(routes.find(*NAME))
    (await registry.question(1)).set_result(Lookup(target(), 1))
    await asking

    routes.forget_all()
    again = asyncio.create_task(routes.find(*NAME))
    (await registry.question(2)).set_result(Lookup(None, 0))

    assert await again is None
