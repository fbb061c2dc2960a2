-- The numbers of outbox items come from a sequence, so that commits of different sessions do not wait for each other. An item may become visible after an
-- item of another session with a higher number. Hosts of earlier versions would miss such items, and must not write.
CREATE SEQUENCE outbox_item_numbers;
SELECT setval('outbox_item_numbers', last + 1, false) FROM outbox_numbers;
DROP TABLE outbox_numbers;
CREATE INDEX outbox_pending_of_session ON outbox (session, number) WHERE delivered IS NULL;
