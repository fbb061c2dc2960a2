//! The keys of a scenario's file, as serde reads them.

use super::pattern::Pattern;
use agent_core::event::EndReason;
use agent_models::ScriptedReply;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// How long a scenario may take unless it says so itself, in milliseconds.
const TIME_LIMIT_MS: u64 = 60_000;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// For people.
    pub(crate) description: Option<String>,
    /// Plugins by name, or by path relative to the file.
    #[serde(default)]
    pub(crate) plugins: Vec<Spanned<String>>,
    /// What agent.toml says: the keys themselves, or the file.
    pub(crate) agent: Option<Spanned<AgentKey>>,
    /// What stands in the scenario's folder, by path.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Spanned<FileContent>>,
    /// The environment that grants and secrets are read from.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Who asks.
    #[serde(default = "default_user")]
    pub(crate) user: String,
    /// Of the scripted model, in tokens.
    pub(crate) window: Option<u32>,
    #[serde(default = "default_time_limit")]
    pub(crate) time_limit_ms: u64,
    /// Whether a transcript stands beside it.
    #[serde(default)]
    pub(crate) golden: bool,
    /// Recorded requests.
    #[serde(default)]
    pub(crate) http: Vec<Spanned<Exchange>>,
    /// Tools called without a model.
    #[serde(default)]
    pub(crate) calls: Vec<Spanned<DirectCall>>,
    /// What is said to the agent.
    #[serde(default)]
    pub(crate) turns: Vec<Spanned<Turn>>,
    /// The model's summaries of what leaves the prompt.
    #[serde(default)]
    pub(crate) summaries: Vec<Spanned<ScriptedReply>>,
    /// The model's answers to plugins.
    #[serde(default)]
    pub(crate) answers: Vec<Spanned<ScriptedReply>>,
    /// What must stand in the folder at the end.
    #[serde(default)]
    pub(crate) files_after: BTreeMap<String, Spanned<Pattern>>,
    /// What must not.
    #[serde(default)]
    pub(crate) files_gone: Vec<Spanned<String>>,
}

fn default_user() -> String {
    "tester".to_owned()
}

fn default_time_limit() -> u64 {
    TIME_LIMIT_MS
}

/// Which agent.
#[derive(Clone, Debug)]
pub(crate) enum AgentKey {
    /// A file, relative to the scenario's.
    File(String),
    /// Keys of agent.toml, which are read elsewhere.
    Keys,
}

impl<'de> Deserialize<'de> for AgentKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FileOrKeys;
        impl<'de> Visitor<'de> for FileOrKeys {
            type Value = AgentKey;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the path of an agent.toml, or a table with keys of agent.toml")
            }
            fn visit_str<E>(self, path: &str) -> Result<AgentKey, E> {
                Ok(AgentKey::File(path.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AgentKey, A::Error> {
                serde::de::IgnoredAny::deserialize(MapAccessDeserializer::new(map)).map(|_| AgentKey::Keys)
            }
        }
        deserializer.deserialize_any(FileOrKeys)
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileContent {
    Text(String),
    /// Bytes in base64.
    Base64(String),
    /// Those of another file, relative to the scenario's; also a whole folder.
    Copy(String),
}

impl<'de> Deserialize<'de> for FileContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        enum Other {
            #[serde(rename = "base64")]
            Base64(String),
            #[serde(rename = "copy")]
            Copy(String),
        }
        struct TextOrOther;
        impl<'de> Visitor<'de> for TextOrOther {
            type Value = FileContent;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the file's text, { base64 = \"…\" }, or { copy = \"PATH\" }")
            }
            fn visit_str<E>(self, text: &str) -> Result<FileContent, E> {
                Ok(FileContent::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileContent, A::Error> {
                Ok(match Other::deserialize(MapAccessDeserializer::new(map))? {
                    Other::Base64(text) => FileContent::Base64(text),
                    Other::Copy(path) => FileContent::Copy(path),
                })
            }
        }
        deserializer.deserialize_any(TextOrOther)
    }
}

/// One turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// What the user says.
    pub(crate) say: String,
    /// What the model replies, in order.
    #[serde(default)]
    pub(crate) replies: Vec<Spanned<ScriptedReply>>,
    /// Files of the scenario's folder that go with what is said.
    #[serde(default)]
    pub(crate) media: Vec<Spanned<String>>,
    /// All calls of the turn, in order. None: any.
    pub(crate) calls: Option<Vec<Spanned<ExpectedCall>>>,
    /// What is said of calls that must be allowed.
    #[serde(default)]
    pub(crate) approvals: Vec<Spanned<ApprovalAnswer>>,
    /// What the user answers to the model's questions.
    #[serde(default)]
    pub(crate) questions: Vec<Spanned<QuestionAnswer>>,
    /// What services answer.
    #[serde(default)]
    pub(crate) services: Vec<Spanned<ServiceAnswer>>,
    pub(crate) output: Option<Spanned<Pattern>>,
    /// How it ends.
    pub(crate) ends: Option<Spanned<Ending>>,
    /// The error that it ends with.
    pub(crate) error: Option<Spanned<Pattern>>,
}

/// How a turn is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Reason(EndReason),
    Suspended,
}

impl Ending {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Ending::Suspended => "suspended",
            Ending::Reason(EndReason::Answered) => "answered",
            Ending::Reason(EndReason::Completed) => "completed",
            Ending::Reason(EndReason::Converse) => "converse",
            Ending::Reason(EndReason::Asked) => "asked",
            Ending::Reason(EndReason::Limit) => "limit",
            Ending::Reason(EndReason::Cancelled) => "cancelled",
            Ending::Reason(EndReason::Error) => "error",
        }
    }
}

impl<'de> Deserialize<'de> for Ending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Word {
            Answered,
            Completed,
            Converse,
            Asked,
            Limit,
            Error,
            Suspended,
        }
        Ok(Ending::Reason(match Word::deserialize(deserializer)? {
            Word::Answered => EndReason::Answered,
            Word::Completed => EndReason::Completed,
            Word::Converse => EndReason::Converse,
            Word::Asked => EndReason::Asked,
            Word::Limit => EndReason::Limit,
            Word::Error => EndReason::Error,
            Word::Suspended => return Ok(Ending::Suspended),
        }))
    }
}

/// A call that must be made, and what it must bring.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedCall {
    /// As its author wrote it.
    pub(crate) name: String,
    /// Exactly.
    pub(crate) arguments: Option<Value>,
    pub(crate) arguments_like: Option<Spanned<Pattern>>,
    pub(crate) result: Option<Spanned<Pattern>>,
    #[serde(default)]
    pub(crate) fails: Fails,
}

/// Whether a call must fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// It must succeed.
    #[default]
    No,
    /// It must bring an error of a tool that is there.
    Yes,
    /// There must be no such tool.
    NoSuchTool,
}

impl<'de> Deserialize<'de> for Fails {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoolOrWord;
        impl Visitor<'_> for BoolOrWord {
            type Value = Fails;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("true, false, or \"no_such_tool\"")
            }
            fn visit_bool<E>(self, fails: bool) -> Result<Fails, E> {
                Ok(if fails { Fails::Yes } else { Fails::No })
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Fails, E> {
                match word {
                    "no_such_tool" => Ok(Fails::NoSuchTool),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(BoolOrWord)
    }
}

/// A tool called without a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectCall {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
    pub(crate) result: Option<Spanned<Pattern>>,
    #[serde(default)]
    pub(crate) fails: Fails,
}

/// What somebody says of a call that must be allowed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalAnswer {
    /// Of the tool.
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Of a denial, for the model.
    pub(crate) reason: Option<String>,
    /// Instead of the model's.
    pub(crate) arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Allow,
    Deny,
}

/// What the user answers to a question of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionAnswer {
    /// What must be asked. None: anything.
    pub(crate) question: Option<Pattern>,
    pub(crate) answer: String,
}

/// What a service answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceAnswer {
    /// Of the tool.
    pub(crate) name: String,
    /// CloudEvent type of the answer.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) data: Option<Value>,
    /// What the service must be asked: the data of the request.
    pub(crate) request: Option<Spanned<Pattern>>,
}

/// A recorded request with its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// `METHOD URL`.
    pub(crate) request: String,
    /// What the request must send.
    pub(crate) request_body: Option<Pattern>,
    /// Headers that it must have.
    #[serde(default)]
    pub(crate) request_headers: BTreeMap<String, String>,
    #[serde(default = "ok")]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    pub(crate) json: Option<Value>,
    pub(crate) base64: Option<String>,
    /// A file, relative to the scenario's.
    pub(crate) file: Option<String>,
    /// Instead of an answer.
    pub(crate) error: Option<Fault>,
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// How often it answers. None: as often as it is asked, at least once.
    pub(crate) times: Option<usize>,
}

fn ok() -> u16 {
    200
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    NoSuchName,
    Refused,
    Broken,
    Timeout,
}
