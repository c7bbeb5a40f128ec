"""A namespace's API keys end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import NotFound, PermissionDenied, PlatformError, Unavailable

from tests.support.registry import NAMESPACE, OTHER_SUB, RunningRegistry, running_registry

REQUEST = "0199e325-1cdf-7cda-9319-e5302a85e291"


@dataclass
class Keys:
    """What the registry asks of auth; `fails` says which of its questions fail."""

    asked: list[str] = field(default_factory=list)
    fails: Callable[[int], bool] = lambda _question: False

    async def delete_all(self, namespace: str) -> None:
        self.asked.append(namespace)
        if self.fails(len(self.asked)):
            raise Unavailable("auth can't be reached")


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
async def registry(keys: Keys) -> AsyncIterator[RunningRegistry]:
    async with running_registry(api_keys=keys) as running, running.invoker():
        yield running


def deletion(**changes: str) -> pb.DeleteNamespaceRequest:
    return pb.DeleteNamespaceRequest(**{"namespace": NAMESPACE, "confirm": NAMESPACE, **changes})


async def exists(registry: RunningRegistry) -> bool:
    try:
        await registry.user().GetNamespace(pb.GetNamespaceRequest(namespace=NAMESPACE))
    except NotFound:
        return False
    return True


async def test_keys_go_before_the_namespace_and_those_made_meanwhile_after_it(
    registry: RunningRegistry, keys: Keys
) -> None:
    await registry.create()

    await registry.user().DeleteNamespace(deletion())

    assert keys.asked == [NAMESPACE, NAMESPACE]


async def test_a_namespace_whose_keys_cannot_be_revoked_stays(registry: RunningRegistry, keys: Keys) -> None:
    await registry.create()
    keys.fails = lambda _question: True

    with pytest.raises(Unavailable):
        await registry.user().DeleteNamespace(deletion())

    assert await exists(registry)


async def test_a_delete_that_broke_off_is_completed_when_it_is_repeated(registry: RunningRegistry, keys: Keys) -> None:
    await registry.create()
    keys.fails = lambda question: question == 2

    await registry.user().DeleteNamespace(deletion(request_id=REQUEST))  # the channel repeats it by itself

    assert not await exists(registry)
    assert len(keys.asked) == 4


async def test_keys_that_are_left_of_a_namespace_go_with_a_delete_of_what_is_no_more(
    registry: RunningRegistry, keys: Keys
) -> None:
    with pytest.raises(NotFound):
        await registry.user().DeleteNamespace(deletion())

    assert keys.asked == [NAMESPACE]


@pytest.mark.parametrize("confirm", ["", "other"])
async def test_what_is_not_confirmed_revokes_nothing(registry: RunningRegistry, keys: Keys, confirm: str) -> None:
    with pytest.raises(PlatformError):
        await registry.user().DeleteNamespace(deletion(confirm=confirm))

    assert keys.asked == []


async def test_nobody_revokes_anothers_keys_by_a_delete(registry: RunningRegistry, keys: Keys) -> None:
    with pytest.raises(PermissionDenied):
        await registry.user(OTHER_SUB).DeleteNamespace(deletion())

    assert keys.asked == []
