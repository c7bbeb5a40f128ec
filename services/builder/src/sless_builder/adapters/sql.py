"""Every statement of the builder. Names of objects are found by the connection's search_path."""

from __future__ import annotations

from typing import Final

# A key's lock: shared while an object is being named, alone while it is judged and removed.
LOCK_TO_NAME: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended(key, 0)) FROM unnest($1::text[]) AS key"
LOCK_TO_REMOVE: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
LOCK_CLAIMS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('claims', 0))"

BEGIN_UPLOAD: Final = "INSERT INTO uploads (upload_id, function_uid, object_key) VALUES ($1, $2, $3)"

DROP_UPLOAD: Final = """
WITH gone AS (DELETE FROM uploads WHERE upload_id = $1 RETURNING object_key),
     left_over AS (
         INSERT INTO garbage (key) SELECT object_key FROM gone
         ON CONFLICT (key) DO UPDATE SET due_at = least(garbage.due_at, excluded.due_at) RETURNING key
     )
SELECT pg_notify('sless_builder', 'cleanup') FROM left_over
"""

# The upload is over when its build is there; else the build's row will take it away.
END_UPLOAD: Final = """
WITH done AS (
    DELETE FROM uploads u WHERE upload_id = $1 AND EXISTS (
        SELECT FROM builds b WHERE b.function_uid = u.function_uid AND b.objects @> ARRAY[u.object_key]
    ) RETURNING upload_id
)
UPDATE uploads SET ended = true WHERE upload_id = $1 AND NOT EXISTS (SELECT FROM done)
"""

REVISION: Final = "SELECT revision FROM feed"

SET_REVISION: Final = """
INSERT INTO feed (revision) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET revision = excluded.revision
"""

ADD_BUILD: Final = """
WITH added AS (
    INSERT INTO builds (version_uid, function_uid, namespace, name, number, code_sha256, runtime, entrypoint, traceparent,
                        attempt, objects)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, ARRAY[$11]
    WHERE NOT EXISTS (SELECT FROM deletions WHERE function_uid = $2)
    ON CONFLICT (version_uid) DO NOTHING
    RETURNING version_uid
), ended AS (
    DELETE FROM uploads WHERE function_uid = $2 AND object_key = $11 AND ended
)
SELECT pg_notify('sless_builder', 'queue') FROM added
"""

CANCEL: Final = """
WITH cancelled AS (
    UPDATE builds SET state = 'cancelled', finished_at = now(), changed_at = now()
    WHERE (version_uid = ANY ($1::text[]) OR function_uid = ANY ($2::text[])) AND state IN ('pending', 'building')
    RETURNING version_uid
)
SELECT pg_notify('sless_builder', 'build/' || version_uid), pg_notify('sless_builder', 'cleanup') FROM cancelled
"""

DELETE: Final = """
WITH asked AS (
    INSERT INTO deletions (function_uid) SELECT unnest($1::text[]) ON CONFLICT (function_uid) DO NOTHING
    RETURNING function_uid
)
SELECT pg_notify('sless_builder', 'cleanup') FROM asked
"""

# Of those functions that have left something here.
STALE_FUNCTIONS: Final = "SELECT DISTINCT function_uid FROM builds WHERE function_uid = ANY ($1::text[])"
FUNCTIONS_NOT_IN: Final = "SELECT DISTINCT function_uid FROM builds WHERE function_uid <> ALL ($1::text[])"

VERSIONS_NOT_IN: Final = """
SELECT version_uid FROM builds WHERE NOT dropped AND version_uid NOT IN (SELECT unnest($1::text[]))
"""

DROP: Final = """
WITH dropped AS (
    UPDATE builds SET dropped = true WHERE version_uid = ANY ($1::text[]) AND NOT dropped RETURNING version_uid
)
SELECT pg_notify('sless_builder', 'cleanup') FROM dropped
"""

CLAIM: Final = """
WITH next AS (
    SELECT version_uid, state = 'building' AS expired FROM builds b
    WHERE (state = 'pending' AND due_at <= clock_timestamp() OR state = 'building' AND lease_until < clock_timestamp())
      AND NOT EXISTS (
          SELECT FROM builds other
          WHERE other.state = 'building' AND other.lease_until >= clock_timestamp()
            AND other.code_sha256 = b.code_sha256 AND other.runtime = b.runtime
      )
    ORDER BY created_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE builds b
SET state = 'building', attempt = b.attempt + 1, takeovers = b.takeovers + next.expired::int, message = '',
    lease_owner = $1, lease_until = clock_timestamp() + $2::interval,
    started_at = clock_timestamp(), changed_at = clock_timestamp()
FROM next WHERE b.version_uid = next.version_uid
RETURNING b.version_uid, function_uid, namespace, name, number, code_sha256, runtime, entrypoint,
          traceparent, attempt, failures, takeovers, clock_timestamp() - failing_since AS failing, log_bytes,
          pg_notify('sless_builder', 'reports')
"""

# Statements below that take ($1 version, $2 attempt) give a row only while the build is that attempt's.
RENEW: Final = """
UPDATE builds SET lease_until = clock_timestamp() + $3::interval
WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
"""

COUNT_RUN: Final = """
UPDATE builds SET runs = runs + 1 WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
"""

LAYER: Final = "SELECT key, digest, size, broken, facts FROM layers WHERE key = $1"

HOLD: Final = """
UPDATE builds SET objects = objects[1:1] || $3::text[]
WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
"""

ADD_LAYER: Final = """
INSERT INTO layers (key, digest, size, broken, facts, made_by, made)
SELECT $1, $2, $3, $4, $5, $6, NOT EXISTS (SELECT FROM layers WHERE digest = $2)
ON CONFLICT (key) DO UPDATE
SET digest = excluded.digest, size = excluded.size, broken = excluded.broken, facts = excluded.facts,
    made_by = excluded.made_by, made = layers.made OR excluded.made, made_at = excluded.made_at
"""

APPEND_LOG: Final = """
WITH mine AS (
    UPDATE builds SET log_bytes = log_bytes + octet_length($3)
    WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
), line AS (
    INSERT INTO build_log (version_uid, text) SELECT version_uid, $3 FROM mine WHERE $3 <> ''
)
SELECT pg_notify('sless_builder', 'build/' || version_uid) FROM mine
"""

FINISH: Final = """
WITH mine AS (
    UPDATE builds
    SET state = $4, message = $5, problem = $6, layers = $7, image_ref = $8, cached = $9, lease_until = NULL,
        log_bytes = log_bytes + octet_length($3), finished_at = clock_timestamp(), changed_at = clock_timestamp()
    WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
), line AS (
    INSERT INTO build_log (version_uid, text) SELECT version_uid, $3 FROM mine WHERE $3 <> ''
)
SELECT pg_notify('sless_builder', 'build/' || version_uid), pg_notify('sless_builder', 'reports'),
       pg_notify('sless_builder', 'queue')
FROM mine
"""

RETRY: Final = """
WITH mine AS (
    UPDATE builds
    SET state = 'pending', failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp()),
        message = $5, lease_until = NULL, due_at = clock_timestamp() + $4::interval,
        log_bytes = log_bytes + octet_length($3), changed_at = clock_timestamp()
    WHERE version_uid = $1 AND attempt = $2 AND state = 'building' RETURNING version_uid
), line AS (
    INSERT INTO build_log (version_uid, text) SELECT version_uid, $3 FROM mine WHERE $3 <> ''
)
SELECT pg_notify('sless_builder', 'build/' || version_uid), pg_notify('sless_builder', 'queue'),
       pg_notify('sless_builder', 'reports')
FROM mine
"""

RELEASE: Final = """
WITH mine AS (
    UPDATE builds
    SET state = CASE state WHEN 'building' THEN 'pending' ELSE state END, lease_owner = NULL, lease_until = NULL
    WHERE version_uid = $1 AND attempt = $2 AND state IN ('building', 'cancelled') AND lease_owner = $3
    RETURNING version_uid
)
SELECT pg_notify('sless_builder', 'queue'), pg_notify('sless_builder', 'cleanup') FROM mine
"""

COUNTERS: Final = """
SELECT attempt, runs, (SELECT count(*) FROM layers WHERE made_by = version_uid AND made) AS layers
FROM builds WHERE version_uid = $1
"""

LOG: Final = """
SELECT state, coalesce(text, '') AS text, coalesce(position, $2) AS position
FROM builds LEFT JOIN LATERAL (
    SELECT string_agg(text, '' ORDER BY position) AS text, max(position) AS position
    FROM build_log WHERE version_uid = $1 AND position > $2
) log ON true
WHERE version_uid = $1
"""

UNREPORTED: Final = """
SELECT version_uid, attempt, state, message, problem, layers, image_ref, cached, started_at, finished_at,
       traceparent
FROM builds WHERE unreported AND (lease_owner = $1 OR changed_at < clock_timestamp() - interval '5 s')
ORDER BY changed_at LIMIT 100
"""

ACKNOWLEDGE: Final = """
UPDATE builds SET reported_attempt = $2, reported_state = $3 WHERE version_uid = $1
"""

DELETIONS: Final = """
SELECT function_uid FROM deletions d
WHERE NOT EXISTS (SELECT FROM builds b WHERE b.function_uid = d.function_uid AND b.lease_until > clock_timestamp())
ORDER BY requested_at LIMIT 100
"""

REMOVE_FUNCTION: Final = """
WITH builds_gone AS (DELETE FROM builds WHERE function_uid = $1 RETURNING objects, state),
     uploads_gone AS (DELETE FROM uploads WHERE function_uid = $1 AND ended RETURNING object_key),
     unneeded AS (
         SELECT key, state = 'built' AND key LIKE 'layers/%' AS kept FROM builds_gone, unnest(objects) AS key
         UNION ALL SELECT object_key, false FROM uploads_gone
     )
INSERT INTO garbage (key, due_at)
SELECT key, now() + CASE WHEN bool_or(kept) THEN $2::interval ELSE interval '0' END FROM unneeded GROUP BY key
ON CONFLICT (key) DO UPDATE SET due_at = least(garbage.due_at, excluded.due_at)
"""

END_DELETION: Final = "DELETE FROM deletions WHERE function_uid = $1"

TRIM: Final = """
WITH idle AS (
    SELECT version_uid, objects FROM builds
    WHERE state IN ('failed', 'cancelled') AND cardinality(objects) > 1
      AND (lease_until IS NULL OR lease_until < clock_timestamp())
    FOR UPDATE SKIP LOCKED
), trimmed AS (
    UPDATE builds b SET objects = b.objects[1:1] FROM idle WHERE b.version_uid = idle.version_uid
)
INSERT INTO garbage (key) SELECT DISTINCT unnest(objects[2:]) FROM idle
ON CONFLICT (key) DO UPDATE SET due_at = least(garbage.due_at, excluded.due_at)
"""

REMOVE_DROPPED: Final = """
WITH idle AS (
    SELECT version_uid FROM builds WHERE dropped AND (lease_until IS NULL OR lease_until < clock_timestamp())
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM builds b USING idle WHERE b.version_uid = idle.version_uid RETURNING objects
)
INSERT INTO garbage (key) SELECT DISTINCT unnest(objects) FROM gone
ON CONFLICT (key) DO UPDATE SET due_at = least(garbage.due_at, excluded.due_at)
"""

FORGET_UPLOADS: Final = "DELETE FROM uploads WHERE begun_at < clock_timestamp() - $1::interval"

SUSPECT: Final = """
INSERT INTO garbage (key, due_at)
SELECT key, clock_timestamp() + $2::interval FROM unnest($1::text[]) AS key
WHERE NOT EXISTS (SELECT FROM builds WHERE objects @> ARRAY[key])
  AND NOT EXISTS (SELECT FROM uploads WHERE object_key = key)
ON CONFLICT (key) DO NOTHING
"""

GARBAGE: Final = "SELECT key FROM garbage WHERE due_at <= clock_timestamp() ORDER BY due_at LIMIT 100"

IS_NAMED: Final = """
SELECT EXISTS (SELECT FROM builds WHERE objects @> ARRAY[$1]) OR EXISTS (SELECT FROM uploads WHERE object_key = $1)
"""

FORGET_LAYER: Final = "DELETE FROM layers WHERE 'layers/sha256/' || substr(digest, 8) = $1"

END_GARBAGE: Final = "DELETE FROM garbage WHERE key = $1"
