"""Instances of the Python runtime for the tests of its callers."""

from collections.abc import Iterator

import pytest

from runtimes.contract.harness import RUNTIMES
from runtimes.contract.instances import Instances


@pytest.fixture(scope="session")
def all_instances() -> Iterator[Instances]:
    instances = Instances(RUNTIMES[0])
    yield instances
    instances.stop_all()


@pytest.fixture
def instances(all_instances: Instances) -> Iterator[Instances]:
    yield all_instances
    all_instances.stop_fresh()
