-- migrate:up

-- Whether the registry keeps the version no more: the row goes, with what it alone names, once nobody has its lease.
ALTER TABLE builds ADD COLUMN dropped boolean NOT NULL DEFAULT false;
CREATE INDEX builds_dropped ON builds (version_uid) WHERE dropped;

-- migrate:down

DROP INDEX builds_dropped;
ALTER TABLE builds DROP COLUMN dropped;
