//! The types of a scenario file, which serde deserializes.

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

/// Default time limit of a scenario, in milliseconds.
const DEFAULT_TIME_LIMIT_MS: u64 = 60_000;

/// The content of a scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Description of the scenario for readers of the file.
    pub(crate) description: Option<String>,
    /// The plugins that the scenario uses. Each item is a plugin's name, or a path relative to the scenario file.
    #[serde(default)]
    pub(crate) plugins: Vec<Spanned<String>>,
    /// Configuration of the agent: a table with keys of agent.toml, or the path of an agent.toml.
    pub(crate) agent: Option<Spanned<AgentKey>>,
    /// Files to create in the scenario's folder. The keys are the paths of the files.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Spanned<FileContent>>,
    /// Values of environment variables that grants and secrets refer to. The keys are the names of the variables.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Name of the user who talks to the agent.
    #[serde(default = "default_user")]
    pub(crate) user: String,
    /// Context window of the scripted model, in tokens.
    pub(crate) window: Option<u32>,
    /// Maximum time of the whole scenario, in milliseconds.
    #[serde(default = "default_time_limit")]
    pub(crate) time_limit_ms: u64,
    /// Whether the transcript of the scenario is compared with a golden transcript.
    #[serde(default)]
    pub(crate) golden: bool,
    /// Recorded HTTP requests and their responses.
    #[serde(default)]
    pub(crate) http: Vec<Spanned<Exchange>>,
    /// Tool calls that the scenario makes without a model.
    #[serde(default)]
    pub(crate) calls: Vec<Spanned<DirectCall>>,
    /// The turns of the conversation.
    #[serde(default)]
    pub(crate) turns: Vec<Spanned<Turn>>,
    /// The model's replies to requests for a summary of messages that are evicted from the prompt.
    #[serde(default)]
    pub(crate) summaries: Vec<Spanned<ScriptedReply>>,
    /// The model's replies to requests of plugins.
    #[serde(default)]
    pub(crate) answers: Vec<Spanned<ScriptedReply>>,
    /// Expected files in the scenario's folder after the last turn. The keys are the paths of the files.
    #[serde(default)]
    pub(crate) files_after: BTreeMap<String, Spanned<Pattern>>,
    /// Paths of files that must not exist after the last turn.
    #[serde(default)]
    pub(crate) files_gone: Vec<Spanned<String>>,
}

fn default_user() -> String {
    "tester".to_owned()
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_MS
}

/// The value of the key `agent`.
#[derive(Clone, Debug)]
pub(crate) enum AgentKey {
    /// Path of an agent.toml, relative to the scenario file.
    File(String),
    /// A table with keys of agent.toml. The caller that creates the agent reads the keys of this table.
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

/// The content of a file to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileContent {
    Text(String),
    /// The file's bytes in base64.
    Base64(String),
    /// The path of a file or folder to copy, relative to the scenario file.
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

/// One turn of the conversation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// Text of the user's message, which starts the turn.
    pub(crate) say: String,
    /// The model's replies in this turn, in the order in which they are used.
    #[serde(default)]
    pub(crate) replies: Vec<Spanned<ScriptedReply>>,
    /// Files of the scenario's folder that are attached to the message.
    #[serde(default)]
    pub(crate) media: Vec<Spanned<String>>,
    /// All expected calls of the turn, in the expected order. `None` means that any calls are accepted.
    pub(crate) calls: Option<Vec<Spanned<ExpectedCall>>>,
    /// The user's answers to the approval requests of the turn.
    #[serde(default)]
    pub(crate) approvals: Vec<Spanned<ApprovalAnswer>>,
    /// The user's answers to the model's questions.
    #[serde(default)]
    pub(crate) questions: Vec<Spanned<QuestionAnswer>>,
    /// Answers of services to the requests of the turn's calls.
    #[serde(default)]
    pub(crate) services: Vec<Spanned<ServiceAnswer>>,
    /// The expected output of the turn.
    pub(crate) output: Option<Spanned<Pattern>>,
    /// The expected ending of the turn. `None` means that the turn must end without an error.
    pub(crate) ends: Option<Spanned<Ending>>,
    /// The message of the error with which the turn must end.
    pub(crate) error: Option<Spanned<Pattern>>,
}

/// The way in which a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Reason(EndReason),
    Suspended,
}

impl Ending {
    /// Returns the word that denotes this ending in scenario files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Ending::Suspended => "suspended",
            Ending::Reason(EndReason::Answered) => "answered",
            Ending::Reason(EndReason::Completed) => "completed",
            Ending::Reason(EndReason::Converse) => "converse",
            Ending::Reason(EndReason::QuestionExpired) => "asked",
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
            Word::Asked => EndReason::QuestionExpired,
            Word::Limit => EndReason::Limit,
            Word::Error => EndReason::Error,
            Word::Suspended => return Ok(Ending::Suspended),
        }))
    }
}

/// An expected call and its result.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedCall {
    /// Name of the tool as the plugin defines it.
    pub(crate) name: String,
    /// The exact arguments that the call must have.
    pub(crate) arguments: Option<Value>,
    pub(crate) arguments_like: Option<Spanned<Pattern>>,
    pub(crate) result: Option<Spanned<Pattern>>,
    #[serde(default)]
    pub(crate) fails: Fails,
}

/// Whether a call must fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// The call must succeed.
    #[default]
    No,
    /// The call must fail with an error of a tool that exists.
    Yes,
    /// The call must fail because the tool does not exist.
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

/// A tool call that is made without a model.
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

/// An answer to an approval request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalAnswer {
    /// Name of the tool whose call needs the approval.
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Reason for the denial, which the model receives.
    pub(crate) reason: Option<String>,
    /// Arguments that replace the model's arguments when the call runs. `None` means that the call runs with the
    /// model's arguments.
    pub(crate) arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Allow,
    Deny,
}

/// The user's answer to a question of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionAnswer {
    /// The expected question. `None` means that any question is accepted.
    pub(crate) question: Option<Pattern>,
    pub(crate) answer: String,
}

/// A service's answer to a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceAnswer {
    /// Name of the tool that sent the request.
    pub(crate) name: String,
    /// CloudEvent type of the answer.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) data: Option<Value>,
    /// The expected data of the tool's request.
    pub(crate) request: Option<Spanned<Pattern>>,
}

/// A recorded HTTP request and its response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// Method and URL of the request, such as `GET https://api.example.com/v1/items`.
    pub(crate) request: String,
    /// The expected body of the request.
    pub(crate) request_body: Option<Pattern>,
    /// Headers that the request must have.
    #[serde(default)]
    pub(crate) request_headers: BTreeMap<String, String>,
    #[serde(default = "status_ok")]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    pub(crate) json: Option<Value>,
    pub(crate) base64: Option<String>,
    /// Path of a file that contains the body of the response, relative to the scenario file.
    pub(crate) file: Option<String>,
    /// A network error that the plugin gets instead of a response.
    pub(crate) error: Option<Fault>,
    /// Time from the request to the response, in milliseconds.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// Number of times that the request must be sent. `None` means that the request must be sent at least once.
    pub(crate) times: Option<usize>,
}

fn status_ok() -> u16 {
    200
}

/// A network error with which a recorded request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    NoSuchName,
    Refused,
    Broken,
    Timeout,
}
