"""Options of gRPC's C core (grpc/impl/channel_arg_names.h) that server and client must agree on."""

from __future__ import annotations

from typing import Any, Final

DEFAULT_IDENTITY_METADATA: Final = "x-identity"

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

# Two tokens of at most 8 KiB, or a status whose texts are not ASCII, must fit into one call's headers.
_MAX_METADATA_BYTES: Final = 64 * 1024

_KEEPALIVE_MS: Final = 20_000
_KEEPALIVE_TIMEOUT_MS: Final = 5_000

_MAX_PENDING_CALLS: Final = 20_000

Options = list[tuple[str, Any]]


def server_options(max_message_bytes: int) -> Options:
    """Of a server."""
    return [
        *_common(max_message_bytes),
        # Two servers on one TCP port would each get a share of the calls; the second must fail instead.
        ("grpc.so_reuseport", 0),
        # A burst waits for its turn: above 1,000 waiting calls the core would drop some at random, as CANCELLED.
        ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_CALLS),
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def client_options(max_message_bytes: int) -> Options:
    """Of a channel."""
    return [
        *_common(max_message_bytes),
        # A peer that restarts is back within a second; the core's own pauses between connects are one second to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 250),
        # Peers are named by deployments, never reached through the proxy of somebody's environment.
        ("grpc.enable_http_proxy", 0),
    ]


def _common(max_message_bytes: int) -> Options:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
