-- migrate:up

-- W3C traceparent of the upload; '' when it had none.
ALTER TABLE builds ADD COLUMN traceparent text NOT NULL DEFAULT '';

-- migrate:down

ALTER TABLE builds DROP COLUMN traceparent;
