"""Constants that every service must agree on."""

from __future__ import annotations

from typing import Final

IDENTITY_METADATA: Final = "sless-identity"
"""gRPC metadata key of the internal identity."""

ERROR_DOMAIN: Final = "sless"
"""``domain`` of every ``google.rpc.ErrorInfo``."""

USER_ISSUER: Final = "auth"
"""The only service whose identities may speak for users."""

SERVICES: Final = ("auth", "registry", "builder", "runtime-manager", "invoker", "gateway")
"""Every service, in the order in which they start."""
