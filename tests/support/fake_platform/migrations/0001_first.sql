-- migrate:up
CREATE TABLE starts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());

-- migrate:down
DROP TABLE starts;
