-- migrate:up

-- W3C traceparent of the request that made the version, or the function's newest generation; '' when it had none.
ALTER TABLE functions ADD COLUMN traceparent text NOT NULL DEFAULT '';
ALTER TABLE versions ADD COLUMN traceparent text NOT NULL DEFAULT '';

-- migrate:down

ALTER TABLE versions DROP COLUMN traceparent;
ALTER TABLE functions DROP COLUMN traceparent;
