"""All that shapes a function's instances, for the runtime-manager."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from sless_platform.errors import Internal
from sless_platform.logging import get_logger

from sless_registry.application.means import Means
from sless_registry.application.secrets import revealed
from sless_registry.domain.resources import Configuration, Function, Version
from sless_registry.errors import FunctionNotFound
from sless_registry.ports import WorkloadSource

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workload:
    """What should run. `version` None: nothing is built. `environment`: all variables, secret ones in clear.

    serving  what served last, when its template is another one; None when it is not, or not known.
    """

    function: Function
    version: Version | None
    generation: int
    configuration: Configuration
    namespace_number: int
    environment: dict[str, str]
    revision: int
    serving: Workload | None = None

    @property
    def number(self) -> int:
        """The version's number; 0 while nothing is built."""
        return 0 if self.version is None else self.version.number

    @property
    def runtime(self) -> str:
        """The version's runtime; the function's while nothing is built."""
        return (self.version or self.configuration).runtime

    @property
    def entrypoint(self) -> str:
        """The version's entrypoint; the function's while nothing is built."""
        return (self.version or self.configuration).entrypoint

    @property
    def template(self) -> str:
        """A digest that changes exactly when running instances must be replaced."""
        content = {
            "version": self.number,
            "runtime": self.runtime,
            "entrypoint": self.entrypoint,
            "layers": () if self.version is None else self.version.layers,
            "memory_mb": self.configuration.memory_mb,
            "environment": self.environment,
            "concurrency": self.configuration.replicas.concurrency,
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
        newest = self._workload(source, source.version, source.function.generation, source.function.configuration)
        served = source.function.served
        if served is None or source.serving is None:
            return newest
        try:
            serving = self._workload(source, source.serving, served.generation, served.configuration)
        except Internal as error:  # what serves now can be run all the same
            log.warning("what served last can't be told", function=source.function.uid, error=error.message)
            return newest
        return newest if serving.template == newest.template else replace(newest, serving=serving)

    def _workload(
        self, source: WorkloadSource, version: Version | None, generation: int, configuration: Configuration
    ) -> Workload:
        secrets = revealed(self._means.sealer, source.function.uid, configuration)
        return Workload(
            function=source.function,
            version=version,
            generation=generation,
            configuration=configuration,
            namespace_number=source.namespace_number,
            environment={**configuration.env_vars, **secrets},
            revision=source.revision,
        )
