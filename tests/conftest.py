"""Fixtures that several parts share; each part's own stand in tests/support."""

pytest_plugins = [
    "tests.support.embedded",
    "tests.support.postgres",
    "tests.support.require",
    "tests.support.tls_postgres",
]
