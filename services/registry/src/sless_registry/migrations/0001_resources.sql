-- migrate:up

-- The newest revision. Every write of resources takes the next one as its last lock and holds it until it is committed, so that
-- revisions have no gaps and come in the order of commits.
CREATE TABLE revision (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    value    bigint  NOT NULL
);
INSERT INTO revision (value) VALUES (0);

-- Namespaces, numbered once and for all.
CREATE TABLE namespaces (
    name       text        PRIMARY KEY,
    number     bigint      NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL
);

-- Identities and names are compared by bytes, whatever the database's collation, because lists are paged by them.

-- Functions and services. A deleted one stays until every finalizer has reported; its name is free at once.
CREATE TABLE functions (
    uid                 text        COLLATE "C" PRIMARY KEY,
    namespace           text        COLLATE "C" NOT NULL,
    name                text        COLLATE "C" NOT NULL,
    kind                text        NOT NULL,
    configuration       jsonb       NOT NULL,
    generation          bigint      NOT NULL,
    observed_generation bigint      NOT NULL,
    phase               text        NOT NULL,
    message             text        NOT NULL,
    code_version        integer     NOT NULL,
    pending_version     integer     NOT NULL,
    desired_version     integer     NOT NULL,
    active_version      integer     NOT NULL,
    failed_build        integer     NOT NULL,
    last_version        integer     NOT NULL,
    image_ref           text        NOT NULL,
    has_served          boolean     NOT NULL,
    last_built_at       timestamptz,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    deleted_at          timestamptz,
    revision            bigint      NOT NULL
);
CREATE UNIQUE INDEX functions_live_name ON functions (namespace, name) WHERE deleted_at IS NULL;
CREATE INDEX functions_deleted ON functions (namespace, name) WHERE deleted_at IS NOT NULL;
CREATE INDEX functions_deploying ON functions (uid) WHERE phase = 'Deploying' AND deleted_at IS NULL;

-- Versions of functions.
CREATE TABLE versions (
    uid               text        COLLATE "C" PRIMARY KEY,
    function_uid      text        COLLATE "C" NOT NULL REFERENCES functions (uid) ON DELETE CASCADE,
    namespace         text        NOT NULL,
    name              text        NOT NULL,
    number            integer     NOT NULL,
    code_sha256       text        NOT NULL,
    size_bytes        bigint      NOT NULL,
    runtime           text        NOT NULL,
    entrypoint        text        NOT NULL,
    created_by        text        NOT NULL,
    created_at        timestamptz NOT NULL,
    activate          boolean     NOT NULL,
    state             text        NOT NULL,
    active            boolean     NOT NULL,
    attempt           integer     NOT NULL,
    image_ref         text        NOT NULL,
    layers            text[]      NOT NULL,
    message           text        NOT NULL,
    error             jsonb,
    build_started_at  timestamptz,
    build_finished_at timestamptz,
    cached            boolean     NOT NULL,
    revision          bigint      NOT NULL,
    UNIQUE (function_uid, number)
);

-- Which services have cleaned up after a deleted function.
CREATE TABLE finalizations (
    function_uid text COLLATE "C" NOT NULL REFERENCES functions (uid) ON DELETE CASCADE,
    service      text NOT NULL,
    PRIMARY KEY (function_uid, service)
);

-- What changed in which revision: type 1 a function, 2 a version, 3 a function that is gone for good.
CREATE TABLE events (
    revision bigint   NOT NULL,
    type     smallint NOT NULL,
    uid      text     COLLATE "C" NOT NULL,
    PRIMARY KEY (revision, type, uid)
);

-- Events up to this revision have been forgotten.
CREATE TABLE event_floor (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    value    bigint  NOT NULL
);
INSERT INTO event_floor (value) VALUES (0);

-- What mutations with a request id were answered.
CREATE TABLE answers (
    subject     text        NOT NULL,
    method      text        NOT NULL,
    request_id  uuid        NOT NULL,
    fingerprint bytea       NOT NULL,
    answer      jsonb       NOT NULL,
    revision    bigint      NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (subject, method, request_id)
);
CREATE INDEX answers_age ON answers (created_at);

-- migrate:down

DROP TABLE answers, event_floor, events, finalizations, versions, functions, namespaces, revision;
