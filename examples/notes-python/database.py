"""One connection a thread to the PostgreSQL that DATABASE_URL names, made when it is needed and made anew when it was lost."""

import os
import tempfile
import threading
from contextlib import contextmanager

import psycopg2
import psycopg2.extras

_TABLE = """
CREATE TABLE IF NOT EXISTS notes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text NOT NULL,
    body text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
)
"""
_ONE_AT_A_TIME = 5_401_217  # any number: the lock that table makers take
_local = threading.local()


@contextmanager
def cursor():
    """A cursor in a transaction that is committed when the block ends well; rows come as dictionaries."""
    connection = _connection()
    try:
        with connection, connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as opened:
            yield opened
    except (psycopg2.OperationalError, psycopg2.InterfaceError):
        _local.connection = None  # the next call connects again
        raise


def _connection():
    connection = getattr(_local, "connection", None)
    if connection is None or connection.closed:
        connection = psycopg2.connect(os.environ["DATABASE_URL"], connect_timeout=5, **_certificate())
        with connection, connection.cursor() as opened:
            # Two who make the same table at once would meet an error.
            opened.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            opened.execute(_TABLE)
        _local.connection = connection
    return connection


def _certificate():
    """With DATABASE_CA, the PEM text of a certificate authority, the server must prove by it who it is."""
    authority = os.environ.get("DATABASE_CA")
    if not authority:
        return {"sslmode": "require"}
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(authority)
    return {"sslmode": "verify-full", "sslrootcert": file.name}
