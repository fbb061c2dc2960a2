//! Every key of agent.toml: its type, default, meaning and an example. The reader, the commented file of `config init`, the
//! JSON Schema and the tables of the documentation are made from this list alone (I2).

use super::form::Form;

/// A table of the file with some of its keys.
pub(super) struct Section {
    /// Where the table stands; words in capitals are names that the author chooses. Empty: the top of the file.
    pub(super) path: &'static [&'static str],
    /// The same with names of an author, as a table's header.
    pub(super) example: &'static str,
    /// Of its part in documents.
    pub(super) title: &'static str,
    /// What it is for.
    pub(super) about: &'static str,
    /// In order of reading.
    pub(super) keys: &'static [Key],
}

/// One key.
pub(super) struct Key {
    /// As it is written.
    pub(super) name: &'static str,
    /// What may stand behind it.
    pub(super) value: Value,
    /// What holds without it.
    pub(super) default: Default,
    /// What it does.
    pub(super) meaning: &'static str,
    /// A value, as TOML.
    pub(super) example: &'static str,
}

/// What may stand behind a key.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// One text.
    Text(Form),
    /// A whole number, both bounds included.
    Number(u32, u32),
    /// Any number from 0 to this one.
    Amount(u32),
    /// `true` or `false`.
    Flag,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts(Form),
    /// A table of the author's own keys with texts.
    Pairs(Form, Form),
    /// A JSON Schema as a table, or the path of a file with one.
    Schema,
}

/// What holds without a key.
#[derive(Clone, Copy)]
pub(super) enum Default {
    /// This value, as TOML.
    Is(&'static str),
    /// What these words say.
    Words(&'static str),
}

const NONE: Default = Default::Words("none");

/// All of them, in order of reading; those of the top come first, as TOML wants it.
pub(super) const SECTIONS: &[Section] =
    &[AGENT, MODELS, TURN, RETRY, PROVIDER, PROVIDER_MODEL, HOST_GRANTS, GRANTS, LIMITS];

const AGENT: Section = Section {
    path: &[],
    example: "",
    title: "The agent",
    about: "Who it is and what it is told.",
    keys: &[
        Key {
            name: "name",
            value: Value::Text(Form::Name),
            default: Default::Words("the file's name without `.toml`"),
            meaning: "The agent's name: sessions belong to it, and `--agent NAME` finds it.",
            example: r#""reader""#,
        },
        Key {
            name: "plugin_directory",
            value: Value::Text(Form::Filled),
            default: Default::Words("none; then `--plugins DIR` only"),
            meaning: "The folder with the plugins (*.wasm).",
            example: r#""plugins""#,
        },
        Key {
            name: "instructions",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "What the agent is and does, as the first section of its prompt.",
            example: r#""Answer exactly, and name your sources.""#,
        },
        Key {
            name: "chain_of_thought",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "How it shall think.",
            example: r#""Think step by step, and check each step.""#,
        },
        Key {
            name: "tool_rules",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "How it shall use its tools.",
            example: r#""Read before you write.""#,
        },
    ],
};

const MODELS: Section = Section {
    path: &[],
    example: "",
    title: "Its models",
    about: "A model is PROVIDER/MODEL, `offline` or `scripted:FILE`. PROVIDER is a known one or a table `[providers.NAME]`.",
    keys: &[
        Key {
            name: "model",
            value: Value::Text(Form::Line),
            default: Default::Is(r#""offline""#),
            meaning: "The model that is asked first. `offline` is built in and no language model.",
            example: r#""openai/gpt-4.1-mini""#,
        },
        Key {
            name: "fallback_models",
            value: Value::Texts(Form::Line),
            default: NONE,
            meaning: "Asked in this order when those before have failed. Needs `model`.",
            example: r#"["ollama/qwen3:8b"]"#,
        },
        Key {
            name: "fallback_text",
            value: Value::Text(Form::Filled),
            default: Default::Words("none; then the turn ends with an error"),
            meaning: "The answer when no model answers. With `output_schema` it is JSON that the schema takes.",
            example: r#"'{"answer": "No model can be reached."}'"#,
        },
        Key {
            name: "model_cooldown_ms",
            value: Value::Number(0, 86_400_000),
            default: Default::Is("60000"),
            meaning: "Milliseconds for which a model that kept failing is passed over while another is there.",
            example: "30000",
        },
        Key {
            name: "reply_tokens",
            value: Value::Number(1, 1_000_000),
            default: Default::Is("4096"),
            meaning: "Most tokens of a reply; so many are kept free for it in the model's window.",
            example: "2000",
        },
    ],
};

const TURN: Section = Section {
    path: &[],
    example: "",
    title: "The turn",
    about: "What bounds it, and what its output must be.",
    keys: &[
        Key {
            name: "max_interactions",
            value: Value::Number(1, 1000),
            default: Default::Is("10"),
            meaning: "Model calls of a turn.",
            example: "40",
        },
        Key {
            name: "at_limit",
            value: Value::Choice(&["finish", "error"]),
            default: Default::Is(r#""finish""#),
            meaning: "What happens there: `finish` makes a last call without tools, `error` ends the turn with an error.",
            example: r#""error""#,
        },
        Key {
            name: "max_corrections",
            value: Value::Number(0, 100),
            default: Default::Is("2"),
            meaning: "Rejected outputs that the model may correct.",
            example: "0",
        },
        Key {
            name: "parallel_calls",
            value: Value::Number(1, 64),
            default: Default::Is("4"),
            meaning: "Tools that run at once.",
            example: "2",
        },
        Key {
            name: "result_characters",
            value: Value::Number(200, 1_048_576),
            default: Default::Is("6000"),
            meaning: "Characters of a tool's result that the model is shown; it reads on with `read_result`.",
            example: "2000",
        },
        Key {
            name: "minimum_remaining",
            value: Value::Number(0, 1_000_000),
            default: Default::Is("1500"),
            meaning: "Tokens of the window that must be free before a step; with less the turn ends with a last answer.",
            example: "3000",
        },
        Key {
            name: "include_history",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the output carries the turn's messages.",
            example: "true",
        },
        Key {
            name: "output_schema",
            value: Value::Schema,
            default: Default::Words("none; then the output is text"),
            meaning: "A JSON Schema that the output must satisfy.",
            example: r#"{ type = "object", required = ["answer"], properties = { answer = { type = "string" } } }"#,
        },
        Key {
            name: "validators",
            value: Value::Texts(Form::Filled),
            default: NONE,
            meaning: "Plugins that check the output, in this order, before the schema does.",
            example: r#"["strict-json"]"#,
        },
        Key {
            name: "context_builder",
            value: Value::Text(Form::Filled),
            default: Default::Words("the host's own"),
            meaning: "The plugin that builds the context.",
            example: r#""project-context""#,
        },
        Key {
            name: "media_policies",
            value: Value::Pairs(Form::Line, Form::Filled),
            default: NONE,
            meaning: "By provider, the plugin that decides which media its models are shown.",
            example: r#"{ openai = "mask-openai" }"#,
        },
    ],
};

const RETRY: Section = Section {
    path: &["retry"],
    example: "retry",
    title: "Retries",
    about: "When a model that did not answer is asked again: after connection errors, broken streams, and the statuses 408, 429 \
            and 5xx. Waits double, with jitter; a provider's `Retry-After` goes before them.",
    keys: &[
        Key {
            name: "attempts",
            value: Value::Number(1, 20),
            default: Default::Is("4"),
            meaning: "Tries of one model call, the first included.",
            example: "2",
        },
        Key {
            name: "first_wait_ms",
            value: Value::Number(0, 600_000),
            default: Default::Is("500"),
            meaning: "Milliseconds before the second try.",
            example: "200",
        },
        Key {
            name: "longest_wait_ms",
            value: Value::Number(0, 600_000),
            default: Default::Is("30000"),
            meaning: "Longest single wait, and the longest that a provider may ask for.",
            example: "10000",
        },
        Key {
            name: "total_ms",
            value: Value::Number(1, 3_600_000),
            default: Default::Is("120000"),
            meaning: "All tries and waits of one model call together.",
            example: "60000",
        },
    ],
};

const PROVIDER: Section = Section {
    path: &["providers", "NAME"],
    example: "providers.office",
    title: "Providers",
    about: "How a provider that speaks Chat Completions is reached. The known ones need no table, and one with their name \
            changes only what it says.",
    keys: &[
        Key {
            name: "base_url",
            value: Value::Text(Form::Url),
            default: Default::Words("that of the known provider; all others need it"),
            meaning: "Its address, without `/chat/completions`.",
            example: r#""https://models.example.com/v1""#,
        },
        Key {
            name: "key_env",
            value: Value::Text(Form::Variable),
            default: Default::Words("that of the known provider; else no key is sent"),
            meaning: "The environment variable that holds its key, sent as a bearer token. The key itself never stands here.",
            example: r#""OFFICE_API_KEY""#,
        },
        Key {
            name: "headers",
            value: Value::Pairs(Form::PlainHeader, Form::HeaderValue),
            default: NONE,
            meaning: "Headers of every request, by name. No secrets: those go into `header_env`.",
            example: r#"{ "X-Title" = "agent-host" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(Form::Header, Form::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by name.",
            example: r#"{ "X-Team-Key" = "OFFICE_TEAM_KEY" }"#,
        },
        Key {
            name: "connect_timeout_ms",
            value: Value::Number(1, 600_000),
            default: Default::Is("10000"),
            meaning: "Milliseconds to connect, TLS included.",
            example: "2000",
        },
        Key {
            name: "stall_timeout_ms",
            value: Value::Number(1, 3_600_000),
            default: Default::Is("120000"),
            meaning: "Milliseconds without a byte of the reply, before its head and between its pieces.",
            example: "300000",
        },
        Key {
            name: "total_timeout_ms",
            value: Value::Number(1, 86_400_000),
            default: Default::Is("600000"),
            meaning: "Milliseconds from the request to the reply's last byte.",
            example: "1200000",
        },
    ],
};

const PROVIDER_MODEL: Section = Section {
    path: &["providers", "NAME", "models", "MODEL"],
    example: r#"providers.office.models."qwen3-32b""#,
    title: "Single models",
    about: "What the host cannot know of a provider's model.",
    keys: &[
        Key {
            name: "window",
            value: Value::Number(1000, 100_000_000),
            default: Default::Words("the known model's, else 32768"),
            meaning: "Its context window, in tokens.",
            example: "131072",
        },
        Key {
            name: "prompt_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the known model's, else none"),
            meaning: "US dollars for a million tokens of the prompt. Needs `completion_price`.",
            example: "0.4",
        },
        Key {
            name: "completion_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the known model's, else none"),
            meaning: "US dollars for a million tokens of the reply. Needs `prompt_price`.",
            example: "1.6",
        },
    ],
};

const HOST_GRANTS: Section = Section {
    path: &["host", "grants"],
    example: "host.grants",
    title: "Grants of the host's own tools",
    about: "The tools `read_file` and `list_directory` are there when a folder is granted.",
    keys: &[Key {
        name: "read",
        value: Value::Texts(Form::Filled),
        default: NONE,
        meaning: "Folders that they read.",
        example: r#"["docs"]"#,
    }],
};

const GRANTS: Section = Section {
    path: &["plugins", "NAME", "grants"],
    example: "plugins.files.grants",
    title: "Grants of a plugin",
    about: "NAME is the plugin's name as `agent-host plugin list` shows it. It gets what its manifest asks for ∩ what stands \
            here. Folders must exist and are written without `..`.",
    keys: &[
        Key {
            name: "read",
            value: Value::Texts(Form::Filled),
            default: NONE,
            meaning: "Folders: read what is under them.",
            example: r#"["."]"#,
        },
        Key {
            name: "write",
            value: Value::Texts(Form::Filled),
            default: NONE,
            meaning: "Folders: read and write what is under them.",
            example: r#"["out"]"#,
        },
        Key {
            name: "env",
            value: Value::Texts(Form::Variable),
            default: NONE,
            meaning: "Environment variables, which must be set.",
            example: r#"["LANG"]"#,
        },
        Key {
            name: "config",
            value: Value::Pairs(Form::ConfigKey, Form::Filled),
            default: NONE,
            meaning: "What the plugin gets when it asks for the key.",
            example: r#"{ language = "en" }"#,
        },
    ],
};

const LIMITS: Section = Section {
    path: &["plugins", "NAME", "limits"],
    example: "plugins.files.limits",
    title: "Limits of a plugin's calls",
    about: "Of each single call.",
    keys: &[
        Key {
            name: "wall_ms",
            value: Value::Number(1, 120_000),
            default: Default::Words("30000 for tools, 2000 for context builders, 250 for validators and policies"),
            meaning: "Milliseconds from its begin to its end.",
            example: "5000",
        },
        Key {
            name: "cpu_ms",
            value: Value::Number(1, 120_000),
            default: Default::Words("as long as the wall time"),
            meaning: "Milliseconds of processor time.",
            example: "1000",
        },
        Key {
            name: "memory_mib",
            value: Value::Number(1, 256),
            default: Default::Is("64"),
            meaning: "MiB of all its memories together.",
            example: "128",
        },
    ],
};
