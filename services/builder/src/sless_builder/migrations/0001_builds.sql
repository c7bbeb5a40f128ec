-- migrate:up

-- The registry's revision up to which its changes are stored here.
CREATE TABLE feed (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint NOT NULL
);

-- Objects that are named by an upload; a build names them once there is one.
CREATE TABLE uploads (
    upload_id    uuid PRIMARY KEY,
    function_uid text NOT NULL,
    object_key   text NOT NULL,
    ended        boolean NOT NULL DEFAULT false,
    begun_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX uploads_by_object ON uploads (object_key);
CREATE INDEX uploads_by_function ON uploads (function_uid);

-- One row a version: state, lease, result and what the registry has heard of it.
CREATE TABLE builds (
    version_uid      text PRIMARY KEY,
    function_uid     text NOT NULL,
    namespace        text NOT NULL,
    name             text NOT NULL,
    number           integer NOT NULL,
    code_sha256      text NOT NULL,
    runtime          text NOT NULL,
    entrypoint       text NOT NULL,
    state            text NOT NULL DEFAULT 'pending'
                     CHECK (state IN ('pending', 'building', 'built', 'failed', 'cancelled')),
    attempt          integer NOT NULL DEFAULT 0,
    failures         integer NOT NULL DEFAULT 0,
    runs             integer NOT NULL DEFAULT 0,
    lease_owner      text,
    lease_until      timestamptz,
    due_at           timestamptz NOT NULL DEFAULT now(),
    -- Keys of the objects that this version needs, its archive first.
    objects          text[] NOT NULL,
    message          text NOT NULL DEFAULT '',
    problem          jsonb,
    layers           text[],
    image_ref        text,
    cached           boolean,
    log_bytes        integer NOT NULL DEFAULT 0,
    reported_attempt integer,
    reported_state   text,
    unreported       boolean NOT NULL GENERATED ALWAYS AS (
                         state IN ('building', 'built', 'failed')
                         AND (reported_attempt IS DISTINCT FROM attempt OR reported_state IS DISTINCT FROM state)
                     ) STORED,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    finished_at      timestamptz,
    CHECK ((state = 'building') <= (lease_owner IS NOT NULL AND lease_until IS NOT NULL))
);
CREATE INDEX builds_to_do ON builds (created_at) WHERE state IN ('pending', 'building');
CREATE INDEX builds_unreported ON builds (changed_at) WHERE unreported;
CREATE INDEX builds_by_function ON builds (function_uid);
CREATE INDEX builds_by_object ON builds USING gin (objects);
CREATE INDEX builds_to_trim ON builds (version_uid)
    WHERE state IN ('failed', 'cancelled') AND cardinality(objects) > 1;

CREATE TABLE build_log (
    version_uid text NOT NULL REFERENCES builds ON DELETE CASCADE,
    position    bigint GENERATED ALWAYS AS IDENTITY,
    text        text NOT NULL,
    PRIMARY KEY (version_uid, position)
);

-- One row for each thing that a layer was made from; `made` when no layer with its digest was there before.
CREATE TABLE layers (
    key     text PRIMARY KEY,
    digest  text NOT NULL,
    size    bigint NOT NULL,
    broken  jsonb NOT NULL,
    made    boolean NOT NULL,
    made_by text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX layers_by_object ON layers (('layers/sha256/' || substr(digest, 8)));
CREATE INDEX layers_by_maker ON layers (made_by);

-- Deleted functions that are to be cleaned up after.
CREATE TABLE deletions (
    function_uid text PRIMARY KEY,
    requested_at timestamptz NOT NULL DEFAULT now()
);

-- Objects that go unless something names them when they are due.
CREATE TABLE garbage (
    key    text PRIMARY KEY,
    due_at timestamptz NOT NULL DEFAULT now()
);

-- migrate:down

DROP TABLE garbage, deletions, layers, build_log, builds, uploads, feed;
