"""Spans by OpenTelemetry. Without an endpoint nothing is set up: tracers do nothing, no thread, no exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_provider: TracerProvider | None = None


def configure(service: str, endpoint: str | None) -> None:
    """Export spans of this process, as `service`, to an OTLP/gRPC endpoint (`http://host:4317`); None means none are made.

    Once a process, after a fork: the exporter runs a thread.
    """
    global _provider  # noqa: PLW0603 - OpenTelemetry itself has one provider a process
    if endpoint is None or _provider is not None:
        return
    # Imported here: the SDK and the exporter cost 60 ms and memory that a process without an endpoint does not owe.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _provider = provider


def shutdown() -> None:
    """Send what is left and stop the exporter; nothing when none runs. Blocks for a few seconds at most."""
    global _provider  # noqa: PLW0603
    if _provider is not None:
        _provider.shutdown()
        _provider = None


def tracer(name: str) -> trace.Tracer:
    """A tracer: `with tracer(__name__).start_as_current_span("build"):`."""
    return trace.get_tracer(name)
