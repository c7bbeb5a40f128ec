-- migrate:up

-- What is known of a layer's content: the modules in it, the imports that nothing in it satisfies.
ALTER TABLE layers ADD COLUMN facts jsonb NOT NULL DEFAULT '{}';

-- migrate:down

ALTER TABLE layers DROP COLUMN facts;
