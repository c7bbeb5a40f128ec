"""What handlers work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from sless_gateway.application.api_keys import ApiKeys
from sless_gateway.application.callers import Callers
from sless_gateway.application.calls import Calls
from sless_gateway.application.functions import Resources
from sless_gateway.application.uploads import Uploads
from sless_gateway.http_api.metrics import Metrics
from sless_gateway.http_api.shapes import Shapes
from sless_gateway.ports import Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The application, and what HTTP adds to it.

    `archive_bytes`, `request_bytes`: the most that an upload's and a call's body may have.
    `new_invocation_id` gives the id of the next call. `document`: what the API is, as OpenAPI.
    """

    callers: Callers
    api_keys: ApiKeys
    resources: Resources
    uploads: Uploads
    calls: Calls
    peers: Peers
    shapes: Shapes
    metrics: Metrics
    archive_bytes: int
    request_bytes: int
    new_invocation_id: Callable[[], str]
    document: msgspec.Raw
