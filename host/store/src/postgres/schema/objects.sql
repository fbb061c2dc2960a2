-- Media and large parts in an object store. A blob without an object is in `blob_parts`.
ALTER TABLE blobs ADD COLUMN object text COLLATE "C";

-- The object store of this database. All processes use the same one. The names of its objects begin with `id`, so that
-- several databases can share a bucket. `listed` is the time of the last search for objects of which nothing knows.
CREATE TABLE object_store (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    address text NOT NULL,
    id text NOT NULL,
    listed bigint NOT NULL
);

-- Objects that will be deleted. An object is listed here before it is written, and a transaction that refers to it removes
-- it from here. A doomed object is never referred to again. Times are in microseconds since 1970.
CREATE TABLE unused_objects (
    object text COLLATE "C" PRIMARY KEY,
    due bigint NOT NULL,
    doomed boolean NOT NULL
);
CREATE INDEX unused_objects_by_time ON unused_objects (due);
