"""One suite for every runtime: `runtime` runs over all of them, `instances` starts what a test needs."""

from collections.abc import Iterator

import pytest

from runtimes.contract.harness import RUNTIMES, RuntimeUnderTest
from runtimes.contract.instances import Instances


@pytest.fixture(scope="session", params=RUNTIMES, ids=lambda runtime: f"{runtime.name}-{runtime.way}")
def runtime(request: pytest.FixtureRequest) -> RuntimeUnderTest:
    found = request.param
    assert isinstance(found, RuntimeUnderTest)
    return found


@pytest.fixture(scope="session")
def all_instances(runtime: RuntimeUnderTest) -> Iterator[Instances]:
    instances = Instances(runtime)
    yield instances
    instances.stop_all()


@pytest.fixture
def instances(all_instances: Instances) -> Iterator[Instances]:
    yield all_instances
    all_instances.stop_fresh()
