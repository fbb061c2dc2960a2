//! Keys of the tables for retries, providers, delegates, grants and secrets.

use super::{Default, Key, NONE, Section, TextFormat, Value};
use agent_models::{Effort, Protocol};

pub(super) const RETRY: Section = Section {
    path: &["retry"],
    example: "retry",
    title: "Retries",
    about: "When a failed model request is retried: after connection errors, broken streams, and the HTTP status codes \
            408, 429 and 5xx. Each wait is twice as long as the wait before it, with jitter. A provider's \
            `Retry-After` takes precedence.",
    keys: &[
        Key {
            name: "attempts",
            value: Value::Number(1, 20),
            default: Default::Is("4"),
            meaning: "Maximum number of attempts for one model call, including the first attempt.",
            example: "2",
        },
        Key {
            name: "first_wait_ms",
            value: Value::Number(0, 600_000),
            default: Default::Is("500"),
            meaning: "Milliseconds before the second attempt.",
            example: "200",
        },
        Key {
            name: "longest_wait_ms",
            value: Value::Number(0, 600_000),
            default: Default::Is("30000"),
            meaning: "Maximum wait between two attempts, in milliseconds. A provider cannot ask for a longer wait.",
            example: "10000",
        },
        Key {
            name: "total_ms",
            value: Value::Number(1, 3_600_000),
            default: Default::Is("120000"),
            meaning: "Maximum total time of all attempts and waits for one model call, in milliseconds.",
            example: "60000",
        },
    ],
};

pub(super) const PROVIDER: Section = Section {
    path: &["providers", "NAME"],
    example: "providers.office",
    title: "Providers",
    about: "How a provider of models is reached. Known providers need no table. A table with the name of a known \
            provider changes only the keys that it sets.",
    keys: &[
        Key {
            name: "base_url",
            value: Value::Text(TextFormat::Url),
            default: Default::Words("the address of the known provider; required for all others"),
            meaning: "Address of the provider, without `/chat/completions`, `/responses`, `/messages` or `/models`.",
            example: r#""https://models.example.com/v1""#,
        },
        Key {
            name: "protocol",
            value: Value::Choice(&Protocol::NAMES),
            default: Default::Words(
                "`anthropic` and `gemini` for the known providers with these names, otherwise `chat-completions`",
            ),
            meaning: "Wire format of requests and replies: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages \
                      or Google Gemini.",
            example: r#""responses""#,
        },
        Key {
            name: "key_env",
            value: Value::Text(TextFormat::Variable),
            default: Default::Words("the variable of the known provider; for others, no key is sent"),
            meaning: "Name of the environment variable that contains the provider's key. The key is sent in the header \
                      that the protocol prescribes. Never write the key itself into the file.",
            example: r#""OFFICE_API_KEY""#,
        },
        Key {
            name: "headers",
            value: Value::Pairs(TextFormat::PlainHeader, TextFormat::HeaderValue),
            default: NONE,
            meaning: "Headers that are sent with every request, by name. Put secrets into `header_env` instead.",
            example: r#"{ "X-Title" = "agent-host" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(TextFormat::Header, TextFormat::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by the name of the header.",
            example: r#"{ "X-Team-Key" = "OFFICE_TEAM_KEY" }"#,
        },
        Key {
            name: "connect_timeout_ms",
            value: Value::Number(1, 600_000),
            default: Default::Is("10000"),
            meaning: "Maximum time to connect, including TLS, in milliseconds.",
            example: "2000",
        },
        Key {
            name: "stall_timeout_ms",
            value: Value::Number(1, 3_600_000),
            default: Default::Is("120000"),
            meaning: "Maximum time to wait for the next bytes of the reply, both before its headers and between its \
                      parts, in milliseconds.",
            example: "300000",
        },
        Key {
            name: "total_timeout_ms",
            value: Value::Number(1, 86_400_000),
            default: Default::Is("600000"),
            meaning: "Maximum time from the request to the last byte of the reply, in milliseconds.",
            example: "1200000",
        },
    ],
};

pub(super) const PROVIDER_MODEL: Section = Section {
    path: &["providers", "NAME", "models", "MODEL"],
    example: r#"providers.office.models."qwen3-32b""#,
    title: "Single models",
    about: "Context window, prices and thinking of one model of a provider, for example of a model that the host does \
            not know.",
    keys: &[
        Key {
            name: "window",
            value: Value::Number(1000, 100_000_000),
            default: Default::Words("the built-in value if the host knows the model, otherwise 32768"),
            meaning: "Context window of the model, in tokens.",
            example: "131072",
        },
        Key {
            name: "prompt_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the built-in value if the host knows the model, otherwise none"),
            meaning: "US dollars per million tokens of the prompt. Requires `completion_price`.",
            example: "0.4",
        },
        Key {
            name: "completion_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the built-in value if the host knows the model, otherwise none"),
            meaning: "US dollars per million tokens of the reply. Requires `prompt_price`.",
            example: "1.6",
        },
        Key {
            name: "cache_read_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the built-in value if the host knows the model, otherwise `prompt_price`"),
            meaning: "US dollars per million tokens that are read from the provider's prompt cache. Requires \
                      `prompt_price`.",
            example: "0.04",
        },
        Key {
            name: "cache_write_price",
            value: Value::Amount(1_000_000),
            default: Default::Words("the built-in value if the host knows the model, otherwise `prompt_price`"),
            meaning: "US dollars per million tokens that are written to the provider's prompt cache. Requires \
                      `prompt_price`.",
            example: "0.5",
        },
        Key {
            name: "effort",
            value: Value::Choice(&Effort::NAMES),
            default: Default::Words("none; the provider decides"),
            meaning: "How much the model thinks before it answers. Not every model accepts every value.",
            example: r#""high""#,
        },
    ],
};

pub(super) const DELEGATES: Section = Section {
    path: &["agents", "NAME"],
    example: "agents.researcher",
    title: "Agents as tools",
    about: "Other agents that this agent may delegate work to, each as the tool NAME. A delegate works in its own \
            session, with the model, plugins, grants and limits of its own file. This agent passes only the task to \
            the delegate.",
    keys: &[
        Key {
            name: "agent",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("none; required"),
            meaning: "Configuration file of the delegate: a file like this one.",
            example: r#""researcher.toml""#,
        },
        Key {
            name: "description",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none; required"),
            meaning: "What the delegate can do, for the model that decides which agent to ask.",
            example: r#""Finds sources, and sums up each in a sentence.""#,
        },
        Key {
            name: "input_schema",
            value: Value::Schema,
            default: Default::Words("`{\"task\": text}`"),
            meaning: "A JSON Schema for the arguments of the tool. The delegate gets the arguments as a JSON object.",
            example: r#"{ type = "object", required = ["topic"], properties = { topic = { type = "string" } } }"#,
        },
    ],
};

pub(super) const HOST_GRANTS: Section = Section {
    path: &["host", "grants"],
    example: "host.grants",
    title: "Grants for the host's own tools",
    about: "The built-in tools `read_file` and `list_directory` are available if a folder is granted.",
    keys: &[Key {
        name: "read",
        value: Value::Texts(TextFormat::Tree),
        default: NONE,
        meaning: "Folders that `read_file` and `list_directory` may read.",
        example: r#"["docs"]"#,
    }],
};

pub(super) const GRANTS: Section = Section {
    path: &["plugins", "NAME", "grants"],
    example: "plugins.files.grants",
    title: "Grants for a plugin",
    about: "NAME is the name of the plugin as `agent-host plugin list` shows it. The plugin gets only the permissions \
            that its manifest requests and this table grants. The folders in this table must exist, and their paths \
            must not contain `..`.",
    keys: &[
        Key {
            name: "read",
            value: Value::Texts(TextFormat::Tree),
            default: NONE,
            meaning: "Folders that the plugin may read, including everything in them.",
            example: r#"["."]"#,
        },
        Key {
            name: "write",
            value: Value::Texts(TextFormat::Tree),
            default: NONE,
            meaning: "Folders that the plugin may read and write, including everything in them.",
            example: r#"["out"]"#,
        },
        Key {
            name: "env",
            value: Value::Texts(TextFormat::Variable),
            default: NONE,
            meaning: "Environment variables that the plugin may read. All variables in this list must be set.",
            example: r#"["LANG"]"#,
        },
        Key {
            name: "config",
            value: Value::Pairs(TextFormat::ConfigKey, TextFormat::Filled),
            default: NONE,
            meaning: "Configuration values that the plugin may read, by key.",
            example: r#"{ language = "en" }"#,
        },
        Key {
            name: "http",
            value: Value::Texts(TextFormat::Requests),
            default: NONE,
            meaning: "Requests that the plugin may send: `[METHOD ]SCHEME://HOST[:PORT][/PREFIX]`. HOST is a name, \
                      `*.NAME`, `*` or an IP address. Requests to addresses of this machine and its network are denied \
                      unless the pattern contains the address itself or begins with `private `.",
            example: r#"["GET https://api.example.com/v1/"]"#,
        },
        Key {
            name: "key_value_mib",
            value: Value::Number(1, 1024),
            default: NONE,
            meaning: "Storage that the plugin may use between calls, in MiB, for all its keys and values together.",
            example: "10",
        },
        Key {
            name: "model_tokens",
            value: Value::Number(1, 100_000_000),
            default: NONE,
            meaning: "Tokens of the agent's model that the plugin may use in one turn, prompts and replies together. \
                      The tokens that the plugin uses count as tokens of the turn.",
            example: "20000",
        },
        Key {
            name: "events",
            value: Value::Texts(TextFormat::EventType),
            default: NONE,
            meaning: "Types of the service events that the host may send for the plugin's tools when they return \
                      `pending`. If the type belongs to one of the agent's `[services.*]`, the `accepts`, `domain` and \
                      approval rules of that service apply, too. Types that begin with `agent-host.` are reserved for \
                      the host and cannot be granted.",
            example: r#"["com.example.payment.requested"]"#,
        },
        Key {
            name: "media",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the plugin may read the media of the conversation, by digest.",
            example: "true",
        },
        Key {
            name: "ask",
            value: Value::Flag,
            default: Default::Is("true"),
            meaning: "Whether a user at a terminal is asked, at the first use of the plugin, to grant the permissions \
                      that its manifest requests and this table does not grant.",
            example: "false",
        },
    ],
};

pub(super) const SECRETS: Section = Section {
    path: &["plugins", "NAME", "secrets", "SECRET"],
    example: "plugins.web.secrets.API_TOKEN",
    title: "Secrets for a plugin",
    about: "A credential that the host inserts into the plugin's requests. The plugin never sees the credential. \
            SECRET is the name by which the plugin's manifest asks for the secret. A request that contains the secret \
            also needs a grant.",
    keys: &[
        Key {
            name: "env",
            value: Value::Text(TextFormat::Variable),
            default: Default::Words("none; required"),
            meaning: "Name of the environment variable that contains the secret. Never write the secret itself into the \
                      file.",
            example: r#""EXAMPLE_TOKEN""#,
        },
        Key {
            name: "hosts",
            value: Value::Texts(TextFormat::Filled),
            default: Default::Words("none; required"),
            meaning: "Hosts that the secret may be sent to. Each item is a host name, which is reached over https, \
                      or a pattern as in the key `http` of the grants.",
            example: r#"["api.example.com"]"#,
        },
        Key {
            name: "header",
            value: Value::Text(TextFormat::Header),
            default: Default::Is(r#""Authorization""#),
            meaning: "The header that contains the secret. The host replaces a value that the plugin sets for this \
                      header.",
            example: r#""X-Api-Key""#,
        },
        Key {
            name: "format",
            value: Value::Text(TextFormat::HeaderValue),
            default: Default::Words("`Bearer {}` for `Authorization`, otherwise `{}`"),
            meaning: "The value of the header, with `{}` in place of the secret.",
            example: r#""token {}""#,
        },
    ],
};
