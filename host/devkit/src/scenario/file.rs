//! Reads a scenario file, and reports all problems that can be found without playing the scenario.

use super::pattern::Pattern;
use super::place::{Place, excerpt, position};
use super::script::{AgentKey, Exchange, FileContent, Script, Turn, Verdict};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Read;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use toml::Spanned;

/// Maximum size of a scenario file, in bytes.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// A parsed scenario file.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Path of the scenario file.
    pub path: PathBuf,
    /// Name of the scenario, such as `FOLDER/NAME`. The name is unique among the discovered scenarios.
    pub name: String,
    /// Text of the scenario file.
    pub text: String,
    pub(crate) script: Script,
}

/// The source of the configuration of a scenario's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// A separate agent.toml at the given path.
    File(PathBuf),
    /// The table `agent` in the scenario file.
    Below,
    /// The scenario contains no configuration, so the agent has the default configuration.
    Nothing,
}

/// The reason why a file is not a valid scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("the scenario {} cannot be read: {problem}", path.display())]
    Unreadable {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// Reason why the file cannot be read.
        problem: String,
    },
    /// The content of the file is invalid.
    #[error("{}", problems.join("\n"))]
    Invalid {
        /// All problems of the file, each with file, line and key.
        problems: Vec<String>,
    },
}

impl Scenario {
    /// Reads a scenario file. Unknown keys are errors. Each error contains the line and the key.
    pub fn read(path: &Path, name: &str) -> Result<Self, ScenarioError> {
        let unreadable =
            |problem: std::io::Error| ScenarioError::Unreadable { path: path.to_owned(), problem: problem.to_string() };
        let mut text = String::new();
        let file = agent_plugins::open_regular_file(path).map_err(unreadable)?;
        file.take(MAX_SIZE + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_SIZE {
            return Err(unreadable(std::io::Error::other(format!("the file is larger than {MAX_SIZE} bytes"))));
        }
        Self::parse(path, name, text)
    }

    /// Parses the text of the scenario file at `path`. Does not read the file at `path`, but checks the files that
    /// the scenario names.
    pub fn parse(path: &Path, name: &str, text: String) -> Result<Self, ScenarioError> {
        let script = deserialized(path, &text)?;
        let scenario = Self { path: path.to_owned(), name: name.to_owned(), text, script };
        let problems = Problems { scenario: &scenario, found: Vec::new() }.collect_all();
        if problems.is_empty() { Ok(scenario) } else { Err(ScenarioError::Invalid { problems }) }
    }

    /// Returns the description of the scenario, or None if the file has no description.
    pub fn description(&self) -> Option<&str> {
        self.script.description.as_deref()
    }

    /// Returns the folder that contains the scenario file.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Returns the plugins that are listed in the scenario file, each with its location in the file.
    pub fn plugins(&self) -> impl Iterator<Item = (Place, &str)> {
        let plugins = self.script.plugins.iter().enumerate();
        plugins
            .map(|(index, plugin)| (self.place(plugin.span(), format!("plugins[{index}]")), plugin.get_ref().as_str()))
    }

    /// Returns the source of the agent's configuration.
    pub fn agent(&self) -> AgentSource {
        match self.script.agent.as_ref().map(Spanned::get_ref) {
            None => AgentSource::Nothing,
            Some(AgentKey::Keys) => AgentSource::Below,
            Some(AgentKey::File(path)) => AgentSource::File(self.folder().join(path)),
        }
    }

    /// Returns the value of a variable in the scenario's environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.script.env.get(name).map(String::as_str)
    }

    /// Returns the name of the user who talks to the agent.
    pub fn user(&self) -> &str {
        &self.script.user
    }

    pub(crate) fn place(&self, span: Range<usize>, key: String) -> Place {
        Place { file: self.path.clone(), line: position(&self.text, span.start).0, key }
    }

    /// Returns the location of the whole file.
    pub(crate) fn top(&self) -> Place {
        Place { file: self.path.clone(), line: 1, key: String::new() }
    }
}

fn deserialized(path: &Path, text: &str) -> Result<Script, ScenarioError> {
    let parse_error = |key: &str, error: &toml::de::Error| {
        // For a value of the type `Spanned`, the parser adds the name of a private field to the key. Remove the name
        // of this field.
        let key = key.replace(".$__serde_spanned_private_value", "");
        let key = key.trim_matches('.');
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        let message = if key.is_empty() { message } else { format!("{key}: {message}") };
        ScenarioError::Invalid { problems: vec![excerpt(path, text, error.span().unwrap_or(0..0), &message)] }
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| parse_error("", &error))?;
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| parse_error(&error.path().to_string(), error.inner()))
}

/// Collects the problems of a parsed scenario that serde does not detect.
struct Problems<'s> {
    scenario: &'s Scenario,
    found: Vec<String>,
}

impl Problems<'_> {
    fn collect_all(mut self) -> Vec<String> {
        let script = &self.scenario.script;
        if script.turns.is_empty() && script.calls.is_empty() {
            self.add(
                0..0,
                "the scenario does nothing: add [[turns]] with `say` and `replies`, or [[calls]] with `name`",
            );
        }
        for (span, key, kind) in super::values::values_outside_json(&self.scenario.text) {
            self.add(
                span,
                &format!("{key} is {kind}, which JSON cannot express: write it as a string, or leave it out"),
            );
        }
        for (index, turn) in script.turns.iter().enumerate() {
            self.check_turn(&format!("turns[{index}]"), turn.get_ref());
        }
        for (index, call) in script.calls.iter().enumerate() {
            self.check_pattern(&format!("calls[{index}].result"), call.get_ref().result.as_ref());
        }
        for (key, replies) in [("summaries", &script.summaries), ("answers", &script.answers)] {
            self.check_replies(key, replies);
        }
        for (path, content) in &script.files {
            self.check_file(path, content);
        }
        for (path, pattern) in &script.files_after {
            let key = format!("files_after.{path:?}");
            self.check_inside_folder(path, pattern.span(), &key);
            self.check_pattern(&key, Some(pattern));
        }
        for path in &script.files_gone {
            self.check_inside_folder(path.get_ref(), path.span(), "files_gone");
        }
        for (index, exchange) in script.http.iter().enumerate() {
            self.check_exchange(&format!("http[{index}]"), exchange);
        }
        self.found
    }

    fn add(&mut self, span: Range<usize>, problem: &str) {
        self.found.push(excerpt(&self.scenario.path, &self.scenario.text, span, problem));
    }

    fn check_turn(&mut self, key: &str, turn: &Turn) {
        for (index, path) in turn.media.iter().enumerate() {
            self.check_inside_folder(path.get_ref(), path.span(), &format!("{key}.media[{index}]"));
        }
        self.check_replies(&format!("{key}.replies"), &turn.replies);
        for (index, call) in turn.calls.iter().flatten().enumerate() {
            let (key, call) = (format!("{key}.calls[{index}]"), call.get_ref());
            self.check_pattern(&format!("{key}.result"), call.result.as_ref());
            self.check_pattern(&format!("{key}.arguments_like"), call.arguments_like.as_ref());
        }
        for (index, approval) in turn.approvals.iter().enumerate() {
            let answer = approval.get_ref();
            let key = format!("{key}.approvals[{index}]");
            match answer.verdict {
                Verdict::Allow if answer.reason.is_some() => {
                    self.add(approval.span(), &format!("{key}: `reason` is allowed only with verdict = \"deny\""));
                }
                Verdict::Deny if answer.arguments.is_some() => {
                    self.add(approval.span(), &format!("{key}: `arguments` is allowed only with verdict = \"allow\""));
                }
                _ => {}
            }
        }
        for (index, question) in turn.questions.iter().enumerate() {
            if let Some(problem) = question.get_ref().question.as_ref().and_then(Pattern::problem) {
                self.add(question.span(), &format!("{key}.questions[{index}].question {problem}"));
            }
        }
        for (index, service) in turn.services.iter().enumerate() {
            self.check_pattern(&format!("{key}.services[{index}].request"), service.get_ref().request.as_ref());
        }
        self.check_pattern(&format!("{key}.output"), turn.output.as_ref());
        self.check_pattern(&format!("{key}.error"), turn.error.as_ref());
        if let (Some(error), Some(ends)) = (&turn.error, &turn.ends)
            && ends.get_ref().word() != "error"
        {
            self.add(error.span(), &format!("{key}: an `error` already means ends = \"error\"; remove `ends`"));
        }
        if let (Some(error), Some(_)) = (&turn.error, &turn.output) {
            self.add(error.span(), &format!("{key}: a turn has an `output` or an `error`, not both"));
        }
    }

    fn check_replies(&mut self, key: &str, replies: &[Spanned<agent_models::ScriptedReply>]) {
        for (index, reply) in replies.iter().enumerate() {
            if let Some(problem) = reply.get_ref().problem() {
                self.add(reply.span(), &format!("{key}[{index}] {problem}"));
            }
        }
    }

    fn check_pattern(&mut self, key: &str, pattern: Option<&Spanned<Pattern>>) {
        if let Some((pattern, problem)) = pattern.and_then(|pattern| Some((pattern, pattern.get_ref().problem()?))) {
            self.add(pattern.span(), &format!("{key} {problem}"));
        }
    }

    fn check_file(&mut self, path: &str, content: &Spanned<FileContent>) {
        let key = format!("files.{path:?}");
        self.check_inside_folder(path, content.span(), &key);
        match content.get_ref() {
            FileContent::Text(_) => {}
            FileContent::Base64(text) => {
                if let Err(error) = STANDARD.decode(text) {
                    self.add(content.span(), &format!("{key} is not valid base64: {error}"));
                }
            }
            FileContent::Copy(from) => {
                let from = self.scenario.folder().join(from);
                let problem = match std::fs::metadata(&from) {
                    Ok(metadata) if metadata.is_file() || metadata.is_dir() => return,
                    Ok(_) => "the path is neither a file nor a folder".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.add(content.span(), &format!("{key}: `{}` cannot be copied: {problem}", from.display()));
            }
        }
    }

    /// Reports a path that could lead to a file outside of the scenario's folder.
    fn check_inside_folder(&mut self, path: &str, span: Range<usize>, key: &str) {
        let is_inside = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(path).components().all(is_inside) {
            self.add(
                span,
                &format!("{key} is not a path inside the scenario's folder: write a relative path without `..`"),
            );
        }
    }

    fn check_exchange(&mut self, key: &str, exchange: &Spanned<Exchange>) {
        let (span, exchange) = (exchange.span(), exchange.get_ref());
        let answers =
            [exchange.body.is_some(), exchange.json.is_some(), exchange.base64.is_some(), exchange.file.is_some()];
        let answers = answers.into_iter().filter(|is_set| *is_set).count();
        if !super::http::is_request(&exchange.request) {
            self.add(
                span.clone(),
                &format!("{key}.request is not a request: write it like \"GET https://api.example.com/v1/items\""),
            );
        }
        if answers > 1 {
            self.add(
                span.clone(),
                &format!("{key} has several answers: keep one of `body`, `json`, `base64` and `file`"),
            );
        }
        if answers > 0 && exchange.error.is_some() {
            self.add(span.clone(), &format!("{key} has an answer and an `error`: keep one of them"));
        }
        if !(100..=599).contains(&exchange.status) {
            self.add(span.clone(), &format!("{key}.status is {}: a status is between 100 and 599", exchange.status));
        }
        if exchange.times == Some(0) {
            self.add(
                span.clone(),
                &format!("{key}.times is 0: remove the request instead; a request that is not recorded is denied"),
            );
        }
        if let Some(Err(error)) = exchange.base64.as_ref().map(|text| STANDARD.decode(text)) {
            self.add(span.clone(), &format!("{key}.base64 is not valid base64: {error}"));
        }
        if let Some(Err(error)) =
            exchange.file.as_ref().map(|file| std::fs::metadata(self.scenario.folder().join(file)))
        {
            self.add(span.clone(), &format!("{key}.file cannot be read: {error}"));
        }
        if let Some(problem) = exchange.request_body.as_ref().and_then(Pattern::problem) {
            self.add(span, &format!("{key}.request_body {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Scenario::parse(Path::new("a.scenario.toml"), "a", text.to_owned()).expect_err(text).to_string()
    }

    /// S4: an error contains file, line and key.
    #[test]
    fn s4_errors_contain_line_and_key() {
        let unknown = error("[[turns]]\nsay = \"hi\"\nreplys = []\n");
        assert!(unknown.starts_with("a.scenario.toml:3:1: turns[0]"), "{unknown}");
        assert!(unknown.contains("unknown field `replys`, expected one of `say`, `replies`"), "{unknown}");
        assert!(unknown.contains("  3 | replys = []\n    | ^^^^^^"), "{unknown}");
        let deep = error("[[turns]]\nsay = \"hi\"\nreplies = [\n  { txt = \"a\" },\n]\n");
        assert!(deep.starts_with("a.scenario.toml:4:5: turns[0].replies[0]"), "{deep}");
        let pattern = error("[[calls]]\nname = \"t\"\nresult = { contain = \"a\" }\n");
        assert!(pattern.starts_with("a.scenario.toml:3:12: calls[0].result"), "{pattern}");
        assert!(error("[[turns]\n").starts_with("a.scenario.toml:1:"), "{}", error("[[turns]\n"));
    }

    /// A single error reports all problems that serde does not detect, each with its line.
    #[test]
    fn reports_all_semantic_problems() {
        let text = "files = { \"../x\" = \"a\", \"b\" = { base64 = \"%\" } }\n\
            [[turns]]\nsay = \"hi\"\nreplies = [{ thinking = \"hm\" }]\noutput = { matches = \"(\" }\n\
            [[http]]\nrequest = \"api.example.com\"\nbody = \"a\"\njson = 1\n";
        let found = error(text);
        let expected = [
            "a.scenario.toml:4:12: turns[0].replies[0] is empty",
            "a.scenario.toml:5:10: turns[0].output is not a regular expression",
            "a.scenario.toml:1:20: files.\"../x\" is not a path inside",
            "files.\"b\" is not valid base64",
            "a.scenario.toml:6:1: http[0].request is not a request",
            "http[0] has several answers",
        ];
        for problem in expected {
            assert!(found.contains(problem), "{problem} is not in {found}");
        }
        assert!(error("description = \"none\"\n").contains("does nothing"));
    }

    /// Values that JSON cannot express are rejected, because tools, models and services receive values as JSON.
    #[test]
    fn reports_values_without_json_equivalent() {
        let found = error(
            "[agent.plugins.a.config]\nwhen = 2026-01-01\n[[calls]]\nname = \"t\"\narguments = { day = 2026-01-01, \
             list = [1.5, nan] }\nresult = { at = { \"/a\" = -inf } }\n",
        );
        let expected = [
            "a.scenario.toml:5:21: calls[0].arguments.day is a date",
            "a.scenario.toml:5:46: calls[0].arguments.list[1] is nan",
            "a.scenario.toml:6:26: calls[0].result.at.\"/a\" is -inf",
        ];
        for problem in expected {
            assert!(found.contains(problem), "{problem} is not in {found}");
        }
        assert!(!found.contains("when"), "the agent's keys are checked elsewhere: {found}");
    }

    /// Invalid patterns in the expected request of a service and in the expected question are reported.
    #[test]
    fn checks_patterns_of_answers() {
        let text = "[[turns]]\nsay = \"hi\"\nquestions = [{ question = { contains = \"\" }, answer = \"a\" }]\n\
            services = [{ name = \"a\", type = \"b\", request = { matches = \"\" } }]\n";
        let found = error(text);
        assert!(
            found.contains("a.scenario.toml:3:14: turns[0].questions[0].question has `contains = \"\"`"),
            "{found}"
        );
        assert!(found.contains("a.scenario.toml:4:49: turns[0].services[0].request has `matches = \"\"`"), "{found}");
    }
}
