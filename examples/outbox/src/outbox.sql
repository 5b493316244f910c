CREATE TABLE IF NOT EXISTS orders (
    number  bigint PRIMARY KEY,
    closed  timestamptz
);

CREATE TABLE IF NOT EXISTS outbox (
    -- The order of sending.
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The message's id: the same for every attempt to send the row.
    id       uuid NOT NULL DEFAULT gen_random_uuid(),
    payload  jsonb NOT NULL CHECK (octet_length(payload::text) <= 1000000),
    due      timestamptz NOT NULL CHECK (due BETWEEN 'epoch' AND '9999-12-31 23:59:59.999+00'),
    -- Why the row cannot be sent. Correct it and set this to NULL to send it.
    refused  text
);
