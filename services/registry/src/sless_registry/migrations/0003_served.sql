-- migrate:up

-- The generation that served last, and its configuration: {"generation", "configuration"}; NULL before the first, and where
-- it served before this was noted.
ALTER TABLE functions ADD COLUMN served jsonb;

-- migrate:down

ALTER TABLE functions DROP COLUMN served;
