"""Every bound, default and retention of the platform: the only place that has them.

The OpenAPI document, docs/limits.md and error messages are made from this table. Limits marked
``adjustable`` may be changed by operators through the setting named beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound: its value, the unit of the value, what it bounds, and the setting that changes it, if any."""

    value: int
    unit: str
    what: str
    setting: str | None = None

    @property
    def adjustable(self) -> bool:
        """Whether operators may change it."""
        return self.setting is not None


ARCHIVE_BYTES: Final = Limit(32 * MIB, "bytes", "an uploaded zip", "SLESS_MAX_ARCHIVE_BYTES")
UNPACKED_BYTES: Final = Limit(256 * MIB, "bytes", "the files in a zip, unpacked", "SLESS_MAX_UNPACKED_BYTES")
ARCHIVE_FILES: Final = Limit(10_000, "files", "the files in a zip")
PATH_BYTES: Final = Limit(1024, "bytes", "a path in a zip")
REQUEST_BODY_BYTES: Final = Limit(32 * MIB, "bytes", "the body of a call", "SLESS_MAX_REQUEST_BYTES")
STREAM_THRESHOLD_BYTES: Final = Limit(MIB, "bytes", "a call's body that is held before the call is sent")
API_BODY_BYTES: Final = Limit(MIB, "bytes", "a JSON body of the REST API")
HEADERS_BYTES: Final = Limit(64 * KIB, "bytes", "the headers of a request")
HEADER_BYTES: Final = Limit(16 * KIB, "bytes", "one header of a request")
URL_BYTES: Final = Limit(16 * KIB, "bytes", "the URL of a request")
ENVIRONMENT_BYTES: Final = Limit(32 * KIB, "bytes", "a function's variables, all together")
LOG_LINE_BYTES: Final = Limit(64 * KIB, "bytes", "one line of a function's log")
LOG_CALL_BYTES: Final = Limit(MIB, "bytes", "the log of one call")
INSTANCE_WAIT_SEC: Final = Limit(60, "s", "how long a call waits for an instance", "SLESS_INSTANCE_WAIT_SEC")
IDLE_SEC: Final = Limit(300, "s", "idle time before scale to zero", "SLESS_IDLE_SEC")
NAMESPACE_CALLS: Final = Limit(1_000, "calls", "calls in flight of a namespace", "SLESS_MAX_NAMESPACE_CALLS")
GATEWAY_CALLS: Final = Limit(10_000, "calls", "calls in flight of a gateway", "SLESS_MAX_GATEWAY_CALLS")
QUEUED_CALLS_PER_REPLICA: Final = Limit(
    100, "calls", "calls that wait for an instance, for each replica allowed", "SLESS_MAX_QUEUED_CALLS"
)
FUNCTIONS_PER_NAMESPACE: Final = Limit(
    1_000, "functions", "functions and services of a namespace", "SLESS_MAX_FUNCTIONS"
)
API_KEYS_PER_NAMESPACE: Final = Limit(100, "keys", "API keys of a namespace", "SLESS_MAX_API_KEYS")
VERSIONS_KEPT: Final = Limit(50, "versions", "versions kept of a function", "SLESS_VERSIONS_KEPT")
LAYERS_KEPT_SEC: Final = Limit(
    3_600, "s", "how long layers of a deleted function are kept, in case its code comes back", "SLESS_LAYERS_KEPT_SEC"
)
BUILD_SEC: Final = Limit(300, "s", "how long a build may take", "SLESS_MAX_BUILD_SEC")
BUILD_RETRY_SEC: Final = Limit(
    86_400, "s", "how long a build is tried again while the platform fails", "SLESS_BUILD_RETRY_SEC"
)
BUILD_TAKEOVERS: Final = Limit(5, "times", "how often a build whose builder was lost is begun again")
BUILD_MEMORY_BYTES: Final = Limit(
    1024 * MIB, "bytes", "the memory of one step of a build", "SLESS_MAX_BUILD_MEMORY_BYTES"
)
BUILD_DISK_BYTES: Final = Limit(2048 * MIB, "bytes", "what one step of a build writes", "SLESS_MAX_BUILD_DISK_BYTES")
BUILD_PROCESSES: Final = Limit(256, "processes", "the processes and threads of one step of a build")
BUILD_OUTPUT_BYTES: Final = Limit(MIB, "bytes", "what one step of a build prints")
DEPENDENCIES_BYTES: Final = Limit(
    512 * MIB, "bytes", "a version's dependencies, unpacked", "SLESS_MAX_DEPENDENCIES_BYTES"
)
QUIET_CALL_SEC: Final = Limit(3_600, "s", "how long a call without a limit may go without a byte")
DISPLAY_NAME_CHARS: Final = Limit(255, "characters", "a display name")
DESCRIPTION_CHARS: Final = Limit(4_096, "characters", "a description")
NAME_CHARS: Final = Limit(63, "characters", "a name")
LABELS: Final = Limit(64, "labels", "labels of a resource")
LABEL_CHARS: Final = Limit(255, "characters", "a label's key, and its value")
WAIT_SEC: Final = Limit(600, "s", "how long an upload or a change with ?wait is held")
SOURCE_BYTES: Final = Limit(8 * MIB, "bytes", "the files of a source as JSON; the zip has them all")


def table() -> dict[str, Limit]:
    """All limits by their names, in the order of this file."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
