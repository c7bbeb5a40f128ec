-- migrate:up

-- A key is known by the SHA-256 of its whole token. The token holds 178 random bits, so nobody finds it by trying:
-- a slow hash, which makes up for what people choose, would only cost time.
CREATE TABLE api_keys (
    id           text PRIMARY KEY,
    namespace    text NOT NULL,
    name         text NOT NULL,
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    request_id   uuid
);
CREATE INDEX api_keys_by_namespace ON api_keys (namespace, created_at DESC, id DESC);
CREATE UNIQUE INDEX api_keys_by_request ON api_keys (created_by, request_id);

-- migrate:down

DROP TABLE api_keys;
