//! What a text of agent.toml must look like: one rule for the reader, in words for people, and as a pattern for editors.

use agent_core::event_type::{ServiceEventType, is_reserved};
use agent_core::message::Digest;
use agent_plugins::HttpPattern;
use agent_registry::{LOCAL, PublicKey};

/// Headers that hold secrets, which do not stand in a file.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];
/// A secret's other usual names.
const SECRETS: [&str; 5] = ["key", "api_key", "apikey", "token", "secret"];
/// Behind the base URL, and added by the host.
const CHAT_PATH: &str = "/chat/completions";

/// The form of one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Not empty.
    Filled,
    /// Not empty, in one line.
    Line,
    /// An agent's or a provider's name.
    Name,
    /// The address of a provider.
    Url,
    /// The name of an MCP server.
    Server,
    /// The address of an MCP server.
    ServerUrl,
    /// The name of an environment variable.
    Variable,
    /// The name of a header.
    Header,
    /// The name of a header that holds no secret.
    PlainHeader,
    /// The value of a header.
    HeaderValue,
    /// The key of a plugin's configuration value.
    ConfigKey,
    /// Whether a tool may run.
    Policy,
    /// The name of a tool.
    Tool,
    /// A folder that is granted.
    Tree,
    /// Requests that are granted.
    Requests,
    /// The type of a service's event.
    EventType,
    /// The beginning of references.
    NameSpace,
    /// Public keys of minisign.
    PublicKeys,
    /// A plugin's name, or the digest of its component.
    PluginOrDigest,
}

impl Form {
    /// What is wrong with the text, as the end of a sentence; nothing where it has the form.
    pub(super) fn problem(self, text: &str) -> Option<&'static str> {
        if text.trim().is_empty() {
            return Some("is empty");
        }
        let fits = match self {
            Form::Filled => true,
            Form::Line => !text.contains(char::is_control),
            Form::Name => text.chars().count() <= 64 && text.chars().all(in_name),
            Form::Url => return url_problem(text),
            Form::Server => {
                text.len() <= 64
                    && text.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character))
            }
            Form::ServerUrl => return address_problem(text),
            Form::Variable => in_variable(text),
            Form::Header => text.chars().all(in_header),
            Form::PlainHeader if is_secret_header(text) => {
                return Some("holds a secret, which does not stand in a file");
            }
            Form::PlainHeader => text.chars().all(in_header),
            Form::HeaderValue => text.chars().all(|character| matches!(character, ' '..='~')),
            Form::ConfigKey => !text.contains('='),
            Form::Policy => matches!(text, "allow" | "ask" | "deny"),
            Form::Tool => text.len() <= 128 && text.chars().all(in_tool),
            Form::Tree => !text.split('/').any(|step| step == ".."),
            Form::Requests => text.parse::<HttpPattern>().is_ok(),
            Form::EventType if is_reserved(text) => return Some("is reserved for the host"),
            Form::EventType => ServiceEventType::parse(text).is_ok(),
            Form::NameSpace => is_name_space(text),
            Form::PublicKeys => text.split_whitespace().all(|key| PublicKey::parse(key).is_ok()),
            Form::PluginOrDigest => {
                let is_name = text.len() <= 64 && text.chars().all(in_tool);
                is_name || Digest::parse(text).is_ok()
            }
        };
        (!fits).then_some(match self {
            Form::Name | Form::Server | Form::Tool => "is no name",
            Form::Variable => "is no name of a variable",
            Form::Header | Form::PlainHeader => "is no name of a header",
            Form::HeaderValue => "is no value of a header",
            Form::ConfigKey => "has a `=` in it",
            Form::Policy => "has an unknown value",
            Form::Tree => "climbs with `..`",
            Form::Requests => "is no pattern of requests",
            Form::EventType => "is no event type",
            Form::NameSpace => "is no beginning of a reference",
            Form::PublicKeys => "is no public key",
            Form::PluginOrDigest => "is neither the name of a plugin nor a digest",
            _ => "has a line break or a control character in it",
        })
    }

    /// What is allowed.
    pub(super) fn words(self) -> &'static str {
        match self {
            Form::Filled => "a text in quotes",
            Form::Line => "a text of one line, in quotes",
            Form::Name => "1 to 64 letters, digits, `-`, `_` or `.`, in quotes",
            Form::Url => {
                "an address such as \"http://127.0.0.1:8000/v1\": http or https, without `/chat/completions`, \
                          key, `?` and `#`"
            }
            Form::Server => "1 to 64 letters from a to z, digits, `-` or `_`, in quotes",
            Form::ServerUrl => {
                "an address such as \"https://mcp.example.com/mcp\": http or https, without key, `?` and `#`"
            }
            Form::Variable => "the name of an environment variable, such as \"OPENAI_API_KEY\"",
            Form::Header => "the name of a header, such as \"X-Team-Key\"",
            Form::PlainHeader => {
                "the name of a header that holds no secret; for those, \
                                  `header_env = { \"NAME\" = \"VARIABLE\" }` reads the value from the environment"
            }
            Form::HeaderValue => "printable ASCII characters, in quotes",
            Form::ConfigKey => "a key without `=`",
            Form::Policy => "\"allow\", \"ask\" or \"deny\"",
            Form::Tool => "1 to 128 letters, digits, `_`, `-` or `.`",
            Form::Tree => {
                "a folder without `..`, since plugins name it as you write it; one that is elsewhere by its whole path"
            }
            Form::Requests => {
                "`[private ][METHOD[,METHOD] ]SCHEME://HOST[:PORT][/PREFIX]`, such as \"GET https://api.example.com/v1/\", \
                 without user, key, `?` and `#`"
            }
            Form::EventType => {
                "an event type such as \"com.example.payment.requested\": 1 to 256 letters, digits and `.-_/:~+@#` of ASCII; \
                 types that begin with `agent-host.`, or look like it, are the host's own"
            }
            Form::NameSpace => {
                "a host, and as much of a path as shall fit: \"registry.example/team\", without `https://`; or \"local\""
            }
            Form::PluginOrDigest => "a plugin's name, or the digest of its component (`sha256:` and 64 digits)",
            Form::PublicKeys => {
                "public keys of minisign, separated by spaces: each is the second line of a `.pub` file, and begins with `RW`"
            }
        }
    }

    /// The same as regular expressions of JSON Schema: one that matches, and one that must not.
    pub(super) fn patterns(self) -> (String, Option<String>) {
        let filled = r"\S".to_owned();
        match self {
            Form::Filled => (filled, None),
            Form::Line => (filled, Some(r"[\u0000-\u001f\u007f-\u009f]".to_owned())),
            Form::Name => (r"^[\p{L}\p{N}_.-]{1,64}$".to_owned(), None),
            Form::Url => (ADDRESS.to_owned(), Some(format!("{CHAT_PATH}/*$"))),
            Form::Server => (r"^[A-Za-z0-9_-]{1,64}$".to_owned(), None),
            Form::ServerUrl => (ADDRESS.to_owned(), None),
            Form::Variable => (r"^[^=\s\u0000-\u001f\u007f]+$".to_owned(), None),
            Form::Header => (HEADER.to_owned(), None),
            Form::PlainHeader => (HEADER.to_owned(), Some(secret_headers())),
            Form::HeaderValue => (r"^[ -~]*[!-~][ -~]*$".to_owned(), None),
            Form::ConfigKey => (filled, Some("=".to_owned())),
            Form::Policy => ("^(allow|ask|deny)$".to_owned(), None),
            Form::Tool => (r"^[A-Za-z0-9_.-]{1,128}$".to_owned(), None),
            Form::Tree => (filled, Some(r"(^|/)\.\.(/|$)".to_owned())),
            Form::Requests => (REQUESTS.to_owned(), None),
            Form::EventType => (EVENT_TYPE.to_owned(), Some(RESERVED_TYPE.to_owned())),
            Form::NameSpace => (NAME_SPACE.to_owned(), Some("://".to_owned())),
            Form::PublicKeys => (PUBLIC_KEYS.to_owned(), None),
            Form::PluginOrDigest => (PLUGIN_OR_DIGEST.to_owned(), None),
        }
    }
}

const ADDRESS: &str = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$";
const REQUESTS: &str = r"^\s*(private +)?([A-Z]+(,[A-Z]+)* +)?https?://[^\s/?#@]+(/[^?#]*)?$";
const EVENT_TYPE: &str = r"^[A-Za-z0-9._/:~+@#-]{1,256}$";
/// Editors are told of the plain forms; the host itself also refuses look-alikes.
const RESERVED_TYPE: &str = r"^[^A-Za-z0-9]*[Aa][Gg][Ee][Nn][Tt][^A-Za-z0-9]*[Hh][Oo][Ss][Tt]";
const NAME_SPACE: &str = r"^(([^\s/@]*[.:][^\s/@]*|localhost)(/[^\s@]*)?|local)$";
const PUBLIC_KEYS: &str = r"^\s*RW[Q-T][A-Za-z0-9+/]{53}(\s+RW[Q-T][A-Za-z0-9+/]{53})*\s*$";
const PLUGIN_OR_DIGEST: &str = r"^([A-Za-z0-9_.-]{1,64}|sha256:[0-9a-f]{64})$";
const HEADER: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

fn in_name(character: char) -> bool {
    character.is_alphanumeric() || "-_.".contains(character)
}

fn in_tool(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

fn in_variable(text: &str) -> bool {
    !text.contains(|character: char| character == '=' || character.is_whitespace() || character.is_control())
}

fn in_header(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&'*+.^_`|~-".contains(character)
}

fn is_name_space(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let is_host = host.contains(['.', ':']) || host == "localhost" || text == LOCAL;
    is_host && !text.contains("://") && !text.contains(|character: char| character.is_whitespace() || character == '@')
}

fn is_secret_header(header: &str) -> bool {
    SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(header))
}

/// Whether a key or a header of that name holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    is_secret_header(name) || SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

/// The address of a provider, wherever it is written.
pub(crate) fn url_problem(text: &str) -> Option<&'static str> {
    let ends_with_path = || text.trim_end_matches('/').ends_with(CHAT_PATH);
    address_problem(text).or_else(|| ends_with_path().then_some("ends with `/chat/completions`, which the host adds"))
}

fn address_problem(text: &str) -> Option<&'static str> {
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return Some(match text.contains("://") {
            true => "is an address of another kind than `http://` and `https://`",
            false => "is no address: it begins with neither `http://` nor `https://`",
        });
    };
    if text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Some("has white space in it");
    }
    if rest.contains(['?', '#']) {
        return Some("has a `?` or `#` in it");
    }
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Some("has a user or a key in it, which does not stand in an address");
    }
    host.is_empty().then_some("names no host")
}

/// JSON Schema has no mark for "in any case".
fn secret_headers() -> String {
    let letter = |letter: char| match letter {
        '-' => "-".to_owned(),
        _ => format!("[{}{letter}]", letter.to_ascii_uppercase()),
    };
    let words = SECRET_HEADERS.map(|word| word.chars().map(letter).collect::<String>());
    format!("^({})$", words.join("|"))
}
