"""All that shapes a function's instances, for the runtime-manager."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from sless_registry.application.means import Means
from sless_registry.application.secrets import revealed
from sless_registry.domain.resources import Function, Version
from sless_registry.errors import FunctionNotFound


@dataclass(frozen=True, slots=True)
class Workload:
    """What should run. `version` None: nothing is built. `environment`: all variables, secret ones in clear."""

    function: Function
    version: Version | None
    namespace_number: int
    environment: dict[str, str]
    revision: int

    @property
    def runtime(self) -> str:
        """The version's runtime; the function's while nothing is built."""
        return (self.version or self.function.configuration).runtime

    @property
    def entrypoint(self) -> str:
        """The version's entrypoint; the function's while nothing is built."""
        return (self.version or self.function.configuration).entrypoint

    @property
    def template(self) -> str:
        """A digest that changes exactly when running instances must be replaced."""
        configuration = self.function.configuration
        content = {
            "version": self.function.desired_version,
            "runtime": self.runtime,
            "entrypoint": self.entrypoint,
            "layers": () if self.version is None else self.version.layers,
            "memory_mb": configuration.memory_mb,
            "environment": self.environment,
            "concurrency": configuration.replicas.concurrency,
        }
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


class Workloads:
    """Called by the runtime-manager only, which the servicer's access rules check."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def get(self, *, function_uid: str) -> Workload:
        """The workload of a live function as it should be now. Raises FunctionNotFound."""
        source = await self._means.store.workload(function_uid)
        if source is None:
            raise FunctionNotFound(f"there is no function with uid {function_uid[:64]!r}")
        variables = {**source.function.configuration.env_vars, **revealed(self._means.sealer, source.function)}
        return Workload(
            function=source.function,
            version=source.version,
            namespace_number=source.namespace_number,
            environment=variables,
            revision=source.revision,
        )
