"""Changes of functions, applied where calls are decided."""

from __future__ import annotations

from collections.abc import Sequence

from sless_invoker.application.instances import Instances
from sless_invoker.application.routes import Routes
from sless_invoker.domain import Target
from sless_invoker.errors import FunctionNotFound


class Changes:
    """Once this has returned, no call is admitted by what was true before."""

    def __init__(self, routes: Routes, instances: Instances) -> None:
        self._routes = routes
        self._instances = instances

    def changed(self, functions: Sequence[tuple[Target, bool]], revision: int) -> None:
        """Takes functions as they are now, in the order of their revisions, with whether each is deleted."""
        self._routes.apply(
            (((target.namespace, target.name), None if deleted else target) for target, deleted in functions), revision
        )
        for target, deleted in functions:
            if deleted:
                self._instances.refuse(target.uid, FunctionNotFound(f"{target.kind.value} not found: {target.name}"))

    def missed(self) -> None:
        """Forgets what was remembered."""
        self._routes.forget_all()
