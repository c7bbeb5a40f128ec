"""Hypothesis on machines that are busy with other things: examples are counted, not timed."""

from hypothesis import HealthCheck, settings

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
