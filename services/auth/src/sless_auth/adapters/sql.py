"""Every statement of auth."""

from __future__ import annotations

from typing import Final

_COLUMNS: Final = "id, namespace, name, digest, created_by, created_at, expires_at, last_used_at"

LOCK_NAMESPACE: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
"""Two keys of one namespace are made one after the other, so that the limit holds."""

COUNT: Final = "SELECT count(*) FROM api_keys WHERE namespace = $1"

REMOVE_EXPIRED: Final = "DELETE FROM api_keys WHERE namespace = $1 AND expires_at <= $2"

ADD: Final = """
    INSERT INTO api_keys (id, namespace, name, digest, created_by, created_at, expires_at, request_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

FIND: Final = f"SELECT {_COLUMNS} FROM api_keys WHERE id = $1"  # noqa: S608 - our own constant

PAGE: Final = f"""
    SELECT {_COLUMNS} FROM api_keys
     WHERE namespace = $1 AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3))
     ORDER BY created_at DESC, id DESC
     LIMIT $4
"""  # noqa: S608

REMOVE: Final = "DELETE FROM api_keys WHERE namespace = $1 AND id = $2 RETURNING id"

REMOVE_ALL: Final = "DELETE FROM api_keys WHERE namespace = $1 RETURNING id"

NOTE_USES: Final = """
    UPDATE api_keys SET last_used_at = used.at
      FROM unnest($1::text[], $2::timestamptz[]) AS used (id, at)
     WHERE api_keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)
"""
