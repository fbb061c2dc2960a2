//! The tables that a copy contains, and how each store selects their columns.

/// A table. The columns are those that both stores have, and their values do not depend on the store.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    /// The columns by which rows are ordered.
    pub(crate) order: &'static str,
}

/// A column, with the name that it has in each store. A name may be an expression if the column is not inserted with it.
pub(crate) struct Column {
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl Table {
    /// Returns the position of a column.
    pub(crate) fn position_of(&self, name: &str) -> usize {
        self.columns.iter().position(|column| column.sqlite == name).unwrap_or_default()
    }
}

const fn same(name: &'static str) -> Column {
    Column { sqlite: name, postgres: name }
}

const USER: Column = Column { sqlite: "user", postgres: "user_name" };

pub(crate) const BLOB_REFERENCES: &str = "blob_references";
pub(crate) const TRACE_EXPORTS: &str = "trace_exports";
pub(crate) const PERIOD_CHARGES: &str = "period_charges";

/// The sessions themselves. Their order in lists is kept, because they are copied in this order.
pub(crate) static SESSIONS: Table = Table {
    name: "sessions",
    columns: &[
        Column { sqlite: "subject", postgres: "session" },
        same("agent"),
        USER,
        same("delegated_by"),
        same("created"),
        same("updated"),
        same("revision"),
        same("epoch"),
        same("last_message"),
        same("last_event"),
        same("turns"),
        same("state"),
        same("title"),
        same("continues_at"),
    ],
    order: "created",
};

/// The tables whose rows belong to a session.
pub(crate) static SESSION_TABLES: &[Table] = &[
    Table { name: "snapshots", columns: &[same("run")], order: "session" },
    Table { name: "view_pieces", columns: &[same("number"), same("items")], order: "number" },
    Table {
        name: "messages",
        columns: &[same("id"), same("turn"), same("role"), same("tokens"), same("call"), same("parts")],
        order: "id",
    },
    Table { name: "hidden", columns: &[same("id"), same("seen_count"), same("why")], order: "id" },
    Table {
        name: "calls",
        columns: &[
            same("id"),
            same("turn"),
            same("step"),
            same("name"),
            same("state"),
            same("attempt"),
            same("source"),
            same("arguments"),
            same("edited"),
            same("result"),
        ],
        order: "number",
    },
    Table { name: "events", columns: &[same("sequence"), same("turn"), same("time"), same("kind")], order: "sequence" },
    Table {
        name: "records",
        columns: &[same("turn"), same("step"), same("kind"), same("time"), same("body")],
        order: "number",
    },
    Table {
        name: "outbox",
        columns: &[
            same("id"),
            same("kind"),
            same("body"),
            same("created"),
            same("delivered"),
            same("failed_attempts"),
            same("problem"),
        ],
        order: "number",
    },
    Table {
        name: "turn_usage",
        columns: &[
            same("turn"),
            same("execution_units"),
            same("model_calls"),
            same("prompt_tokens"),
            same("completion_tokens"),
            same("uncached_prompt"),
            same("cache_read"),
            same("cache_write"),
            same("completion"),
            same("thinking"),
            same("nanodollars"),
            same("is_partial"),
            same("saved_tokens"),
        ],
        order: "turn",
    },
    Table {
        name: "session_charges",
        columns: &[same("turn"), same("tokens"), same("nanodollars"), same("milliseconds")],
        order: "turn",
    },
    Table {
        name: BLOB_REFERENCES,
        columns: &[
            Column { sqlite: "(SELECT digest FROM blobs WHERE blobs.id = blob)", postgres: "digest" },
            same("mime_type"),
            same("width"),
            same("height"),
            same("name"),
        ],
        order: "1",
    },
    // The numbers of records differ between stores, so the position is the number of exported records.
    Table {
        name: TRACE_EXPORTS,
        columns: &[same("event"), Column { sqlite: EXPORTED_RECORDS, postgres: EXPORTED_RECORDS }, same("turn_start")],
        order: "session",
    },
];

const EXPORTED_RECORDS: &str = "(SELECT count(*) FROM records WHERE records.session = trace_exports.session
                                 AND records.number <= trace_exports.record)";

/// The tables whose rows do not belong to a session.
pub(crate) static COMMON_TABLES: &[Table] = &[
    Table {
        name: "memories",
        columns: &[
            same("id"),
            USER,
            same("kind"),
            same("session"),
            same("text"),
            same("written"),
            same("agent"),
            same("turn"),
            same("project"),
        ],
        order: "number",
    },
    Table {
        name: "key_values",
        columns: &[same("agent"), same("plugin"), same("bucket"), same("key"), same("value")],
        order: "agent, plugin, bucket, key",
    },
    Table {
        name: "approvals",
        columns: &[
            same("id"),
            same("agent"),
            same("tool"),
            same("digest"),
            same("arguments"),
            same("given"),
            same("identity"),
            same("grants"),
        ],
        order: "id",
    },
    Table {
        name: "rule_bindings",
        columns: &[same("agent"), same("tool"), same("identity"), same("bound")],
        order: "agent, tool",
    },
    Table {
        name: "turn_plugins",
        columns: &[same("agent"), same("plugin"), same("digest")],
        order: "agent, plugin, digest",
    },
    Table {
        name: "plugin_sources",
        columns: &[same("plugin"), same("digest"), same("statements")],
        order: "plugin, digest",
    },
    Table {
        name: "plugin_versions",
        columns: &[
            same("number"),
            same("directory"),
            same("plugin"),
            same("digest"),
            same("origin"),
            same("began"),
            same("ended"),
            same("why"),
        ],
        order: "number",
    },
    Table {
        name: "plugin_rollbacks",
        columns: &[same("directory"), same("plugin"), same("rolled_back"), same("serving"), same("why"), same("time")],
        order: "directory, plugin",
    },
    Table {
        name: "plugin_trials",
        columns: &[same("directory"), same("plugin"), same("digest"), same("before"), same("calls"), same("traps")],
        order: "directory, plugin",
    },
    Table {
        name: "schedules",
        columns: &[
            same("agent"),
            same("name"),
            same("definition"),
            same("due"),
            same("last_run"),
            same("last_session"),
        ],
        order: "agent, name",
    },
    Table { name: "traced_agents", columns: &[same("agent")], order: "agent" },
    Table {
        name: PERIOD_CHARGES,
        columns: &[
            same("agent"),
            USER,
            same("period"),
            Column { sqlite: "tokens", postgres: "least(sum(tokens), 9223372036854775807)::bigint" },
            Column { sqlite: "nanodollars", postgres: "least(sum(nanodollars), 9223372036854775807)::bigint" },
            Column { sqlite: "milliseconds", postgres: "least(sum(milliseconds), 9223372036854775807)::bigint" },
        ],
        order: "1, 2, 3",
    },
    Table {
        name: "audit",
        columns: &[same("number"), same("time"), same("kind"), same("subject"), same("body"), same("hash")],
        order: "number",
    },
];
