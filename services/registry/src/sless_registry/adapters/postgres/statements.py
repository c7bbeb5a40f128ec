"""Every SQL statement of the registry. Names without a schema: the pool's search_path is the registry's own schema."""

from __future__ import annotations

from typing import Final

CHANNEL: Final = "sless_registry"
"""The channel on which a commit is notified; its payload is the revision, which nobody relies on."""

# Reads.

REVISION: Final = "SELECT value FROM revision"

SPAN: Final = "SELECT (SELECT value FROM event_floor) AS floor, (SELECT value FROM revision) AS head"

NAMESPACE: Final = "SELECT name, number, created_at FROM namespaces WHERE name = $1"

FUNCTION: Final = """
SELECT r.value AS read_revision, f.*
FROM revision AS r
LEFT JOIN functions AS f ON f.namespace = $1 AND f.name = $2 AND f.deleted_at IS NULL
"""

FUNCTION_BY_UID: Final = """
SELECT r.value AS read_revision, f.*
FROM revision AS r
LEFT JOIN functions AS f ON f.uid = $1
"""

FUNCTIONS: Final = """
SELECT * FROM functions
WHERE namespace = $1 AND deleted_at IS NULL AND name > $2 AND ($3::text IS NULL OR kind = $3)
ORDER BY name
LIMIT $4
"""

VERSION: Final = "SELECT * FROM versions WHERE function_uid = $1 AND number = $2"

NEWEST_VERSION: Final = "SELECT * FROM versions WHERE function_uid = $1 ORDER BY number DESC LIMIT 1"

VERSIONS: Final = """
SELECT * FROM versions WHERE function_uid = $1 AND ($2 = 0 OR number < $2) ORDER BY number DESC LIMIT $3
"""

# One statement, so that all of it is read at one moment.
WORKLOAD: Final = """
SELECT r.value AS read_revision, coalesce(n.number, 0) AS namespace_number, to_jsonb(v) AS version,
       to_jsonb(s) AS serving, f.*
FROM revision AS r
JOIN functions AS f ON f.uid = $1 AND f.deleted_at IS NULL
LEFT JOIN versions AS v ON v.function_uid = f.uid AND v.number = f.desired_version
LEFT JOIN versions AS s ON s.function_uid = f.uid AND s.number = f.active_version
LEFT JOIN namespaces AS n ON n.name = f.namespace
"""

SWITCHING_OFF: Final = """
SELECT * FROM functions
WHERE phase = 'Deploying' AND deleted_at IS NULL AND configuration -> 'replicas' ->> 'max' = '0'
"""

EVENTS: Final = """
SELECT revision, type, uid FROM events
WHERE revision > $1
  AND revision <= coalesce(
      (SELECT revision FROM events WHERE revision > $1 ORDER BY revision OFFSET $2 - 1 LIMIT 1), 9223372036854775807)
ORDER BY revision, type, uid
"""

ALL_FUNCTIONS: Final = "SELECT * FROM functions WHERE uid > $1 ORDER BY uid LIMIT $2"

ALL_VERSIONS: Final = "SELECT * FROM versions WHERE uid > $1 ORDER BY uid LIMIT $2"

# The revision of the $2-th event after $1, else the newest revision.
CHANGES_BOUND: Final = """
SELECT (SELECT value FROM event_floor) AS floor, r.value AS head, coalesce(
    (SELECT revision FROM events WHERE revision > $1 ORDER BY revision OFFSET $2 - 1 LIMIT 1), r.value) AS bound
FROM revision AS r
"""

CHANGED_FUNCTIONS: Final = """
SELECT * FROM functions
WHERE revision <= $2 AND uid IN (SELECT uid FROM events WHERE revision > $1 AND revision <= $2 AND type = 1)
ORDER BY revision, uid
"""

CHANGED_VERSIONS: Final = """
SELECT * FROM versions
WHERE revision <= $2 AND uid IN (SELECT uid FROM events WHERE revision > $1 AND revision <= $2 AND type = 2)
ORDER BY revision, uid
"""

PURGED_FUNCTIONS: Final = """
SELECT uid FROM events WHERE revision > $1 AND revision <= $2 AND type = 3 ORDER BY revision, uid
"""

PURGED_VERSIONS: Final = """
SELECT uid FROM events WHERE revision > $1 AND revision <= $2 AND type = 4 ORDER BY revision, uid
"""

# Locks and reads of write transactions.

LOCK_REQUEST: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

ANSWER: Final = """
SELECT fingerprint, answer, revision, created_at FROM answers
WHERE subject = $1 AND method = $2 AND request_id = $3::text::uuid
"""

LOCK_NAMESPACE: Final = "SELECT name, number, created_at FROM namespaces WHERE name = $1 FOR UPDATE"

MAKE_NAMESPACE: Final = "INSERT INTO namespaces (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"

REMOVE_NAMESPACE: Final = "DELETE FROM namespaces WHERE name = $1"

COUNT_FUNCTIONS: Final = "SELECT count(*) FROM functions WHERE namespace = $1 AND deleted_at IS NULL"

LOCK_FUNCTION: Final = """
SELECT * FROM functions WHERE namespace = $1 AND name = $2 AND deleted_at IS NULL FOR UPDATE
"""

LOCK_FUNCTION_BY_UID: Final = "SELECT * FROM functions WHERE uid = $1 FOR UPDATE"

LOCK_FUNCTION_BY_VERSION: Final = """
SELECT * FROM functions WHERE uid = (SELECT function_uid FROM versions WHERE uid = $1) FOR UPDATE
"""

LOCK_FUNCTIONS: Final = """
SELECT * FROM functions WHERE namespace = $1 AND deleted_at IS NULL ORDER BY uid FOR UPDATE
"""

VERSIONS_OF: Final = "SELECT * FROM versions WHERE function_uid = ANY($1::text[]) ORDER BY function_uid, number"

DELETION: Final = """
SELECT coalesce(max(revision), 0) FROM functions
WHERE namespace = $1 AND deleted_at IS NOT NULL AND ($2 = '' OR name = $2) AND ($3::text IS NULL OR kind = $3)
"""

NOTE_FINALIZED: Final = """
INSERT INTO finalizations (function_uid, service) VALUES ($1, $2) ON CONFLICT DO NOTHING
"""

FINALIZED: Final = "SELECT service FROM finalizations WHERE function_uid = $1"

# The last statement of a write transaction: it takes the revision, the last lock, and does all that needs it in one round trip.
# $1 functions, $2 versions, $3 answers: arrays of rows. $4 versions dropped, $5 functions purged, $6 and $7 types and uids of events.
WRITE: Final = """
WITH next AS (
    UPDATE revision SET value = value + 1 RETURNING value
), put_functions AS (
    INSERT INTO functions (
        uid, namespace, name, kind, configuration, generation, observed_generation, phase, message, code_version,
        pending_version, desired_version, active_version, failed_build, last_version, image_ref, has_served,
        last_built_at, created_at, updated_at, deleted_at, served, traceparent, revision)
    SELECT
        f.uid, f.namespace, f.name, f.kind, f.configuration, f.generation, f.observed_generation, f.phase, f.message,
        f.code_version, f.pending_version, f.desired_version, f.active_version, f.failed_build, f.last_version,
        f.image_ref, f.has_served, f.last_built_at, f.created_at, f.updated_at, f.deleted_at, f.served, f.traceparent,
        next.value
    FROM next, jsonb_populate_recordset(NULL::functions, $1) AS f
    ON CONFLICT (uid) DO UPDATE SET
        configuration = excluded.configuration, generation = excluded.generation,
        observed_generation = excluded.observed_generation, phase = excluded.phase, message = excluded.message,
        code_version = excluded.code_version, pending_version = excluded.pending_version,
        desired_version = excluded.desired_version, active_version = excluded.active_version,
        failed_build = excluded.failed_build, last_version = excluded.last_version, image_ref = excluded.image_ref,
        has_served = excluded.has_served, last_built_at = excluded.last_built_at, updated_at = excluded.updated_at,
        deleted_at = excluded.deleted_at, served = excluded.served, traceparent = excluded.traceparent,
        revision = excluded.revision
), put_versions AS (
    INSERT INTO versions (
        uid, function_uid, namespace, name, number, code_sha256, size_bytes, runtime, entrypoint, created_by,
        created_at, activate, state, active, attempt, image_ref, layers, message, error, build_started_at,
        build_finished_at, cached, traceparent, revision)
    SELECT
        v.uid, v.function_uid, v.namespace, v.name, v.number, v.code_sha256, v.size_bytes, v.runtime, v.entrypoint,
        v.created_by, v.created_at, v.activate, v.state, v.active, v.attempt, v.image_ref, v.layers, v.message,
        v.error, v.build_started_at, v.build_finished_at, v.cached, v.traceparent, next.value
    FROM next, jsonb_populate_recordset(NULL::versions, $2) AS v
    ON CONFLICT (uid) DO UPDATE SET
        activate = excluded.activate, state = excluded.state, active = excluded.active, attempt = excluded.attempt,
        image_ref = excluded.image_ref, layers = excluded.layers, message = excluded.message, error = excluded.error,
        build_started_at = excluded.build_started_at, build_finished_at = excluded.build_finished_at,
        cached = excluded.cached, revision = excluded.revision
), put_answers AS (
    INSERT INTO answers (subject, method, request_id, fingerprint, answer, revision, created_at)
    SELECT a.subject, a.method, a.request_id, a.fingerprint, a.answer, next.value, a.created_at
    FROM next, jsonb_populate_recordset(NULL::answers, $3) AS a
    ON CONFLICT (subject, method, request_id) DO UPDATE SET
        fingerprint = excluded.fingerprint, answer = excluded.answer, revision = excluded.revision,
        created_at = excluded.created_at
), dropped AS (
    DELETE FROM versions WHERE uid = ANY($4::text[])
), purged AS (
    DELETE FROM functions WHERE uid = ANY($5::text[])
), put_events AS (
    INSERT INTO events (revision, type, uid)
    SELECT next.value, e.type, e.uid FROM next, unnest($6::smallint[], $7::text[]) AS e (type, uid)
)
SELECT value, pg_notify('sless_registry', value::text) FROM next
"""

# The answer of a mutation that changed nothing.
PUT_ANSWER: Final = """
INSERT INTO answers (subject, method, request_id, fingerprint, answer, revision, created_at)
SELECT a.subject, a.method, a.request_id, a.fingerprint, a.answer, 0, a.created_at
FROM jsonb_populate_recordset(NULL::answers, $1) AS a
ON CONFLICT (subject, method, request_id) DO UPDATE SET
    fingerprint = excluded.fingerprint, answer = excluded.answer, revision = excluded.revision,
    created_at = excluded.created_at
"""

# Trimming.

RAISE_FLOOR: Final = """
UPDATE event_floor SET value = (SELECT value FROM revision) - $1
WHERE value < (SELECT value FROM revision) - $1
RETURNING value
"""

FORGET_EVENTS: Final = "DELETE FROM events WHERE revision <= $1"

FORGET_ANSWERS: Final = "DELETE FROM answers WHERE created_at < $1"
