-- Where the versions of plugins come from, so that a machine without a version can fetch it.
CREATE TABLE plugin_sources (
    plugin text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    statements text NOT NULL,
    PRIMARY KEY (plugin, digest)
);
