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
    due      timestamptz NOT NULL
);
