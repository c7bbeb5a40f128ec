-- migrate:up

-- How often a builder was lost with a build, apart from failures that were told; and since when the platform fails at it.
-- A build that waits to be tried again is told to the registry, with the reason that its message names.
ALTER TABLE builds ADD COLUMN takeovers integer NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN failing_since timestamptz;
ALTER TABLE builds DROP COLUMN unreported;
ALTER TABLE builds ADD COLUMN unreported boolean NOT NULL GENERATED ALWAYS AS (
    (state IN ('building', 'built', 'failed') OR state = 'pending' AND message <> '')
    AND (reported_attempt IS DISTINCT FROM attempt OR reported_state IS DISTINCT FROM state)
) STORED;
CREATE INDEX builds_unreported ON builds (changed_at) WHERE unreported;

-- migrate:down

ALTER TABLE builds DROP COLUMN unreported;
ALTER TABLE builds ADD COLUMN unreported boolean NOT NULL GENERATED ALWAYS AS (
    state IN ('building', 'built', 'failed')
    AND (reported_attempt IS DISTINCT FROM attempt OR reported_state IS DISTINCT FROM state)
) STORED;
CREATE INDEX builds_unreported ON builds (changed_at) WHERE unreported;
ALTER TABLE builds DROP COLUMN failing_since;
ALTER TABLE builds DROP COLUMN takeovers;
