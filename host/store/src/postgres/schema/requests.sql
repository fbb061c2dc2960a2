-- Requests to sessions that another process has open. The sender deletes a request when it has read the answer. Times are
-- in microseconds since 1970.
CREATE TABLE requests (
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    posted bigint NOT NULL,
    expires bigint NOT NULL,
    content text NOT NULL,
    claimed boolean NOT NULL DEFAULT false,
    answer text,
    PRIMARY KEY (session, id)
);
CREATE INDEX requests_to_handle ON requests (posted) WHERE answer IS NULL;
CREATE INDEX requests_by_expiry ON requests (expires);
