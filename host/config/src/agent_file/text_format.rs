//! The formats that strings in `agent.toml` can have. Each format has a check for the parser, a description for error
//! messages, and a pattern for the JSON Schema.

use agent_core::event_type::{ServiceEventType, is_reserved};
use agent_core::message::Digest;
use agent_fleet::subject_problem;
use agent_plugins::HttpPattern;
use agent_registry::{LOCAL_NAMESPACE, PublicKey};
use agent_runtime::{InvalidTimes, ScheduleTimes};

/// Headers that contain secrets, which must not be written into a file.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];
/// Usual names of keys that contain secrets. The names in [`SECRET_HEADERS`] are not repeated here.
const SECRETS: [&str; 5] = ["key", "api_key", "apikey", "token", "secret"];
/// Path that the host appends to the base URL of a provider.
const CHAT_PATH: &str = "/chat/completions";

/// The format that a string in `agent.toml` must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    /// Any string that is not empty.
    Filled,
    /// A string of one line that is not empty.
    Line,
    /// The name of an agent or a provider.
    Name,
    /// The base URL of a provider.
    Url,
    /// The name of an MCP server.
    Server,
    /// The address of an MCP server.
    ServerUrl,
    /// The name of an environment variable.
    Variable,
    /// The name of an HTTP header.
    Header,
    /// The name of a header whose value is not a secret.
    PlainHeader,
    /// The value of an HTTP header.
    HeaderValue,
    /// The key of a plugin's configuration value.
    ConfigKey,
    /// An approval policy: `allow`, `ask` or `deny`.
    Policy,
    /// The name under which a model calls a tool.
    Tool,
    /// The path of a folder that is granted to a plugin.
    Tree,
    /// A pattern for the HTTP requests that a plugin may send.
    Requests,
    /// The CloudEvent type of a service's event.
    EventType,
    /// The times of a schedule: a cron expression or an interval.
    Times,
    /// The name of a time zone.
    TimeZone,
    /// A prefix of registry references or addresses, to which trusted keys belong.
    Namespace,
    /// Minisign public keys, separated by spaces.
    PublicKeys,
    /// A plugin's name, or the digest of its component.
    PluginOrDigest,
    /// A subject of NATS to which events are published.
    Subject,
    /// A subject of NATS from which events are received. It may contain wildcards.
    Subjects,
}

impl TextFormat {
    /// Returns the problem of an invalid string, worded as the end of a sentence, such as `is empty`. Returns None if
    /// the string is valid.
    pub(super) fn problem(self, text: &str) -> Option<&'static str> {
        if text.trim().is_empty() {
            return Some("is empty");
        }
        let is_valid = match self {
            TextFormat::Filled => true,
            TextFormat::Line => !text.contains(char::is_control),
            TextFormat::Name => text.chars().count() <= 64 && text.chars().all(is_name_character),
            TextFormat::Url => return url_problem(text),
            TextFormat::Server => {
                text.len() <= 64
                    && text.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character))
            }
            TextFormat::ServerUrl => return address_problem(text),
            TextFormat::Variable => is_variable_name(text),
            TextFormat::Header => text.chars().all(is_header_character),
            TextFormat::PlainHeader if is_secret_header(text) => {
                return Some("is a header for a secret, which must not be written into the file");
            }
            TextFormat::PlainHeader => text.chars().all(is_header_character),
            TextFormat::HeaderValue => text.chars().all(|character| matches!(character, ' '..='~')),
            TextFormat::ConfigKey => !text.contains('='),
            TextFormat::Policy => matches!(text, "allow" | "ask" | "deny"),
            TextFormat::Tool => text.len() <= 128 && text.chars().all(is_tool_character),
            TextFormat::Tree => !text.split('/').any(|step| step == ".."),
            TextFormat::Requests => text.parse::<HttpPattern>().is_ok(),
            TextFormat::EventType if is_reserved(text) => return Some("is reserved for the host"),
            TextFormat::EventType => ServiceEventType::parse(text).is_ok(),
            TextFormat::Times => match ScheduleTimes::parse(text, "UTC") {
                Err(InvalidTimes::Never) => return Some("matches no time in the next four years"),
                times => times.is_ok(),
            },
            TextFormat::TimeZone => ScheduleTimes::parse("0 0 * * *", text).is_ok(),
            TextFormat::Namespace => is_namespace(text),
            TextFormat::PublicKeys => text.split_whitespace().all(|key| PublicKey::parse(key).is_ok()),
            TextFormat::PluginOrDigest => {
                let is_name = text.len() <= 64 && text.chars().all(is_tool_character);
                is_name || Digest::parse(text).is_ok()
            }
            TextFormat::Subject => return subject_problem(text, false),
            TextFormat::Subjects => return subject_problem(text, true),
        };
        (!is_valid).then_some(match self {
            TextFormat::Name | TextFormat::Server | TextFormat::Tool => "is not a valid name",
            TextFormat::Variable => "is not a valid variable name",
            TextFormat::Header | TextFormat::PlainHeader => "is not a valid header name",
            TextFormat::HeaderValue => "is not a valid header value",
            TextFormat::ConfigKey => "contains `=`",
            TextFormat::Policy => "has an unknown value",
            TextFormat::Tree => "contains `..`",
            TextFormat::Requests => "is not a valid request pattern",
            TextFormat::EventType => "is not a valid event type",
            TextFormat::Times => "is neither a cron expression with five fields nor an interval",
            TextFormat::TimeZone => "is not the name of a time zone",
            TextFormat::Namespace => "is not a valid registry prefix",
            TextFormat::PublicKeys => "is not a valid public key",
            TextFormat::PluginOrDigest => "is neither a plugin name nor a digest",
            _ => "contains a line break or a control character",
        })
    }

    /// Describes the allowed strings, for error messages.
    pub(super) fn description(self) -> &'static str {
        match self {
            TextFormat::Filled => "a string in quotes",
            TextFormat::Line => "a string of one line, in quotes",
            TextFormat::Name => "1 to 64 letters, digits, `-`, `_` or `.`, in quotes",
            TextFormat::Url => {
                "an address such as \"http://127.0.0.1:8000/v1\": http or https, without `/chat/completions`, \
                          keys, `?` and `#`"
            }
            TextFormat::Server => "1 to 64 letters from a to z, digits, `-` or `_`, in quotes",
            TextFormat::ServerUrl => {
                "an address such as \"https://mcp.example.com/mcp\": http or https, without keys, `?` and `#`"
            }
            TextFormat::Variable => "the name of an environment variable, such as \"OPENAI_API_KEY\"",
            TextFormat::Header => "the name of a header, such as \"X-Team-Key\"",
            TextFormat::PlainHeader => {
                "the name of a header that contains no secret; for secrets, \
                                  `header_env = { \"NAME\" = \"VARIABLE\" }` reads the value from the environment"
            }
            TextFormat::HeaderValue => "printable ASCII characters, in quotes",
            TextFormat::ConfigKey => "a key without `=`",
            TextFormat::Policy => "\"allow\", \"ask\" or \"deny\"",
            TextFormat::Tool => "1 to 128 letters, digits, `_`, `-` or `.`",
            TextFormat::Tree => {
                "a folder without `..`, because plugins use the path as it is written here; for a folder elsewhere, write its absolute path"
            }
            TextFormat::Requests => {
                "`[private ][METHOD[,METHOD] ]SCHEME://HOST[:PORT][/PREFIX]`, such as \"GET https://api.example.com/v1/\", \
                 without users, keys, `?` and `#`"
            }
            TextFormat::EventType => {
                "an event type such as \"com.example.payment.requested\": 1 to 256 ASCII letters, digits and `.-_/:~+@#`; \
                 types that begin with `agent-host.`, or look like it, are reserved for the host"
            }
            TextFormat::Times => {
                "a cron expression with five fields, such as \"0 7 * * mon-fri\", or an interval, such as \"every 15 minutes\""
            }
            TextFormat::TimeZone => "the name of a time zone, such as \"Europe/Berlin\" or \"UTC\"",
            TextFormat::Namespace => {
                "a host and optionally the beginning of a path, such as \"registry.example/team\", without `https://`; or \"local\""
            }
            TextFormat::PluginOrDigest => {
                "the name of a plugin, or the digest of its component (`sha256:` and 64 hexadecimal digits)"
            }
            TextFormat::PublicKeys => {
                "minisign public keys, separated by spaces: each is the second line of a `.pub` file and begins with `RW`"
            }
            TextFormat::Subject => {
                "words that are separated by dots, without wildcards, such as \"agents.clerk.events\""
            }
            TextFormat::Subjects => {
                "words that are separated by dots, such as \"shop.orders.*\": `*` stands for one word, and `>` at the end for all \
                 further words"
            }
        }
    }

    /// Returns the format as two regular expressions for the JSON Schema. A valid string must match the first
    /// expression and must not match the second expression.
    pub(super) fn patterns(self) -> (String, Option<String>) {
        let filled = r"\S".to_owned();
        match self {
            TextFormat::Filled => (filled, None),
            TextFormat::Line => (filled, Some(r"[\u0000-\u001f\u007f-\u009f]".to_owned())),
            TextFormat::Name => (r"^[\p{L}\p{N}_.-]{1,64}$".to_owned(), None),
            TextFormat::Url => (ADDRESS.to_owned(), Some(format!("{CHAT_PATH}/*$"))),
            TextFormat::Server => (r"^[A-Za-z0-9_-]{1,64}$".to_owned(), None),
            TextFormat::ServerUrl => (ADDRESS.to_owned(), None),
            TextFormat::Variable => (r"^[^=\s\u0000-\u001f\u007f]+$".to_owned(), None),
            TextFormat::Header => (HEADER.to_owned(), None),
            TextFormat::PlainHeader => (HEADER.to_owned(), Some(secret_headers())),
            TextFormat::HeaderValue => (r"^[ -~]*[!-~][ -~]*$".to_owned(), None),
            TextFormat::ConfigKey => (filled, Some("=".to_owned())),
            TextFormat::Policy => ("^(allow|ask|deny)$".to_owned(), None),
            TextFormat::Tool => (r"^[A-Za-z0-9_.-]{1,128}$".to_owned(), None),
            TextFormat::Tree => (filled, Some(r"(^|/)\.\.(/|$)".to_owned())),
            TextFormat::Requests => (REQUESTS.to_owned(), None),
            TextFormat::EventType => (EVENT_TYPE.to_owned(), Some(RESERVED_TYPE.to_owned())),
            TextFormat::Times => (TIMES.to_owned(), None),
            TextFormat::TimeZone => (r"^[A-Za-z][A-Za-z0-9_+/-]*$".to_owned(), None),
            TextFormat::Namespace => (NAMESPACE.to_owned(), Some("://".to_owned())),
            TextFormat::PublicKeys => (PUBLIC_KEYS.to_owned(), None),
            TextFormat::PluginOrDigest => (PLUGIN_OR_DIGEST.to_owned(), None),
            TextFormat::Subject => (SUBJECT.to_owned(), Some(SERVER_SUBJECT.to_owned())),
            TextFormat::Subjects => (SUBJECTS.to_owned(), Some(SERVER_SUBJECT.to_owned())),
        }
    }
}

const ADDRESS: &str = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$";
const REQUESTS: &str = r"^\s*(private +)?([A-Z]+(,[A-Z]+)* +)?https?://[^\s/?#@]+(/[^?#]*)?$";
const EVENT_TYPE: &str = r"^[A-Za-z0-9._/:~+@#-]{1,256}$";
/// Matches reserved types in ASCII letters only. In addition to these types, the host's parser rejects types whose
/// characters look like the letters of a reserved type.
const RESERVED_TYPE: &str = r"^[^A-Za-z0-9]*[Aa][Gg][Ee][Nn][Tt][^A-Za-z0-9]*[Hh][Oo][Ss][Tt]";
const TIMES: &str = r"^\s*(every\s+[1-9][0-9]*\s+(minute|hour|day)s?|[^\s@]+(\s+[^\s@]+){4})\s*$";
const NAMESPACE: &str = r"^(([^\s/@]*[.:][^\s/@]*|localhost)(/[^\s@]*)?|local)$";
const PUBLIC_KEYS: &str = r"^\s*RW[Q-T][A-Za-z0-9+/]{53}(\s+RW[Q-T][A-Za-z0-9+/]{53})*\s*$";
const PLUGIN_OR_DIGEST: &str = r"^([A-Za-z0-9_.-]{1,64}|sha256:[0-9a-f]{64})$";
const SUBJECT: &str = r"^[^\s.*>\u0000-\u001f]+(\.[^\s.*>\u0000-\u001f]+)*$";
const SUBJECTS: &str = r"^([^\s.*>\u0000-\u001f]+|\*)(\.([^\s.*>\u0000-\u001f]+|\*))*(\.>)?$";
/// Matches subjects that belong to the server, and a subject that consists of a wildcard.
const SERVER_SUBJECT: &str = r"^(\$|_INBOX|\*$)";
const HEADER: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || "-_.".contains(character)
}

fn is_tool_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

fn is_variable_name(text: &str) -> bool {
    !text.contains(|character: char| character == '=' || character.is_whitespace() || character.is_control())
}

fn is_header_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&'*+.^_`|~-".contains(character)
}

fn is_namespace(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let is_host = host.contains(['.', ':']) || host == "localhost" || text == LOCAL_NAMESPACE;
    is_host && !text.contains("://") && !text.contains(|character: char| character.is_whitespace() || character == '@')
}

fn is_secret_header(header: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(header))
}

/// Returns whether a key or a header with the name `name` usually contains a secret.
pub(super) fn is_secret(name: &str) -> bool {
    is_secret_header(name) || SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

/// Returns the problem of an invalid provider address, worded as the end of a sentence, such as `has no host name`.
/// Returns None if the address is valid.
pub fn url_problem(text: &str) -> Option<&'static str> {
    let ends_with_path = || text.trim_end_matches('/').ends_with(CHAT_PATH);
    address_problem(text).or_else(|| ends_with_path().then_some("ends with `/chat/completions`, which the host adds"))
}

fn address_problem(text: &str) -> Option<&'static str> {
    let Some(without_scheme) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return Some(match text.contains("://") {
            true => "has a scheme other than `http://` and `https://`",
            false => "is not an address: it begins with neither `http://` nor `https://`",
        });
    };
    if text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Some("contains white space");
    }
    if without_scheme.contains(['?', '#']) {
        return Some("contains `?` or `#`");
    }
    let host = without_scheme.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Some("contains a user name or a key, which must not be written into an address");
    }
    host.is_empty().then_some("has no host name")
}

/// Returns a pattern that matches the names of secret headers in upper and lower case. JSON Schema has no flag for
/// case-insensitive patterns.
fn secret_headers() -> String {
    let letter = |letter: char| match letter {
        '-' => "-".to_owned(),
        _ => format!("[{}{letter}]", letter.to_ascii_uppercase()),
    };
    let words = SECRET_HEADERS.map(|word| word.chars().map(letter).collect::<String>());
    format!("^({})$", words.join("|"))
}
