//! The keys of the file's tables.

use super::{Default, Form, Key, NONE, Section, Value};

pub(super) const RETRY: Section = Section {
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

pub(super) const PROVIDER: Section = Section {
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

pub(super) const PROVIDER_MODEL: Section = Section {
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

pub(super) const DELEGATES: Section = Section {
    path: &["agents", "NAME"],
    example: "agents.researcher",
    title: "Agents as tools",
    about: "Other agents that this one may hand work to, each as the tool NAME. Such an agent works in a session of its own, with \
            the model, plugins, grants, limits and bounds of its own file: it gets nothing from this one but the task.",
    keys: &[
        Key {
            name: "agent",
            value: Value::Text(Form::Line),
            default: Default::Words("none: it must be there"),
            meaning: "Its configuration: a file like this one.",
            example: r#""researcher.toml""#,
        },
        Key {
            name: "description",
            value: Value::Text(Form::Filled),
            default: Default::Words("none: it must be there"),
            meaning: "What it can do, for the model that decides whom to ask.",
            example: r#""Finds sources, and sums up each in a sentence.""#,
        },
        Key {
            name: "input_schema",
            value: Value::Schema,
            default: Default::Words("`{\"task\": text}`"),
            meaning: "A JSON Schema of what it is asked, an object; it gets that as JSON.",
            example: r#"{ type = "object", required = ["topic"], properties = { topic = { type = "string" } } }"#,
        },
    ],
};

pub(super) const HOST_GRANTS: Section = Section {
    path: &["host", "grants"],
    example: "host.grants",
    title: "Grants of the host's own tools",
    about: "The tools `read_file` and `list_directory` are there when a folder is granted.",
    keys: &[Key {
        name: "read",
        value: Value::Texts(Form::Tree),
        default: NONE,
        meaning: "Folders that they read.",
        example: r#"["docs"]"#,
    }],
};

pub(super) const GRANTS: Section = Section {
    path: &["plugins", "NAME", "grants"],
    example: "plugins.files.grants",
    title: "Grants of a plugin",
    about: "NAME is the plugin's name as `agent-host plugin list` shows it. It gets what its manifest asks for ∩ what stands \
            here. Folders must exist and are written without `..`.",
    keys: &[
        Key {
            name: "read",
            value: Value::Texts(Form::Tree),
            default: NONE,
            meaning: "Folders: read what is under them.",
            example: r#"["."]"#,
        },
        Key {
            name: "write",
            value: Value::Texts(Form::Tree),
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
        Key {
            name: "http",
            value: Value::Texts(Form::Requests),
            default: NONE,
            meaning: "Requests that it may send: `[METHOD ]SCHEME://HOST[:PORT][/PREFIX]`. HOST is a name, `*.NAME`, `*` or an address. \
                      Addresses of this machine and network are refused unless the address itself stands here, or `private ` before \
                      the rest.",
            example: r#"["GET https://api.example.com/v1/"]"#,
        },
        Key {
            name: "key_value_mib",
            value: Value::Number(1, 1024),
            default: NONE,
            meaning: "MiB that it may keep between calls, all its keys and values together.",
            example: "10",
        },
        Key {
            name: "model_tokens",
            value: Value::Number(1, 100_000_000),
            default: NONE,
            meaning: "Tokens of the agent's model, questions and answers together, that it may use in one turn. They count as \
                      the turn's own.",
            example: "20000",
        },
        Key {
            name: "events",
            value: Value::Texts(Form::EventType),
            default: NONE,
            meaning: "Types of the service events that its tools may have the host send, when they return `pending`. For a type \
                      of one of the agent's `[services.*]`, that service's `accepts`, `domain` and approval rules hold, too. \
                      Types that begin with `agent-host.` are the host's own and cannot be granted.",
            example: r#"["com.example.payment.requested"]"#,
        },
        Key {
            name: "media",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether it may read the media of the conversation, by digest.",
            example: "true",
        },
        Key {
            name: "ask",
            value: Value::Flag,
            default: Default::Is("true"),
            meaning: "Whether somebody at a terminal is asked, at the plugin's first use, for what it asks for and does not stand \
                      here.",
            example: "false",
        },
    ],
};

pub(super) const SECRETS: Section = Section {
    path: &["plugins", "NAME", "secrets", "SECRET"],
    example: "plugins.web.secrets.API_TOKEN",
    title: "Secrets of a plugin",
    about: "A credential that the host puts into the plugin's requests; the plugin never sees it. SECRET is the name by which its \
            manifest asks for it. The requests themselves need a grant, too.",
    keys: &[
        Key {
            name: "env",
            value: Value::Text(Form::Variable),
            default: Default::Words("none: it must be there"),
            meaning: "The environment variable that holds it. The secret itself never stands here.",
            example: r#""EXAMPLE_TOKEN""#,
        },
        Key {
            name: "hosts",
            value: Value::Texts(Form::Filled),
            default: Default::Words("none: it must be there"),
            meaning: "Where it goes: names of hosts, which are reached by https; or patterns as in `http`.",
            example: r#"["api.example.com"]"#,
        },
        Key {
            name: "header",
            value: Value::Text(Form::Header),
            default: Default::Is(r#""Authorization""#),
            meaning: "The header that it goes into. What the plugin writes there is replaced.",
            example: r#""X-Api-Key""#,
        },
        Key {
            name: "format",
            value: Value::Text(Form::HeaderValue),
            default: Default::Words("`Bearer {}` for `Authorization`, else `{}`"),
            meaning: "The header's value, with `{}` where the secret stands.",
            example: r#""token {}""#,
        },
    ],
};
