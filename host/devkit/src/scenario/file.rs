//! A scenario's file: read, and checked as far as can be without playing it.

use super::pattern::Pattern;
use super::place::{Place, excerpt, position};
use super::script::{AgentKey, Exchange, FileContent, Script, Turn, Verdict};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Read;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use toml::Spanned;

/// Largest file in bytes.
const SIZE_LIMIT: u64 = 4 * 1024 * 1024;

/// A scenario as its file says it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its file.
    pub path: PathBuf,
    /// Its name, unique in what was looked for: `FOLDER/NAME`.
    pub name: String,
    /// The file's text.
    pub text: String,
    pub(crate) script: Script,
}

/// Where the agent's keys stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// In an agent.toml of its own.
    File(PathBuf),
    /// In the scenario, below `agent`.
    Below,
    /// Nowhere.
    Nothing,
}

/// A file that is no scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("the scenario {} cannot be read: {problem}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// It holds something wrong.
    #[error("{}", problems.join("\n"))]
    Invalid {
        /// Each with its place and its line.
        problems: Vec<String>,
    },
}

impl Scenario {
    /// Reads the file. Unknown keys are refused, each error names line and key.
    pub fn read(path: &Path, name: &str) -> Result<Self, ScenarioError> {
        let unreadable =
            |problem: std::io::Error| ScenarioError::Unreadable { path: path.to_owned(), problem: problem.to_string() };
        let mut text = String::new();
        let file = agent_plugins::open_regular_file(path).map_err(unreadable)?;
        file.take(SIZE_LIMIT + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > SIZE_LIMIT {
            return Err(unreadable(std::io::Error::other(format!("it is larger than {SIZE_LIMIT} bytes"))));
        }
        Self::parse(path, name, text)
    }

    /// Reads the text of the file at `path`.
    pub fn parse(path: &Path, name: &str, text: String) -> Result<Self, ScenarioError> {
        let script = deserialized(path, &text)?;
        let scenario = Self { path: path.to_owned(), name: name.to_owned(), text, script };
        let problems = Problems { scenario: &scenario, found: Vec::new() }.all();
        if problems.is_empty() { Ok(scenario) } else { Err(ScenarioError::Invalid { problems }) }
    }

    /// What it is about, for people.
    pub fn description(&self) -> Option<&str> {
        self.script.description.as_deref()
    }

    /// The folder of its file.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Its plugins as they are written, each with its place.
    pub fn plugins(&self) -> impl Iterator<Item = (Place, &str)> {
        let plugins = self.script.plugins.iter().enumerate();
        plugins
            .map(|(index, plugin)| (self.place(plugin.span(), format!("plugins[{index}]")), plugin.get_ref().as_str()))
    }

    /// Which agent plays it.
    pub fn agent(&self) -> AgentSource {
        match self.script.agent.as_ref().map(Spanned::get_ref) {
            None => AgentSource::Nothing,
            Some(AgentKey::Keys) => AgentSource::Below,
            Some(AgentKey::File(path)) => AgentSource::File(self.folder().join(path)),
        }
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.script.env.get(name).map(String::as_str)
    }

    /// Who asks.
    pub fn user(&self) -> &str {
        &self.script.user
    }

    pub(crate) fn place(&self, span: Range<usize>, key: String) -> Place {
        Place { file: self.path.clone(), line: position(&self.text, span.start).0, key }
    }

    /// The file as a whole.
    pub(crate) fn top(&self) -> Place {
        Place { file: self.path.clone(), line: 1, key: String::new() }
    }
}

fn deserialized(path: &Path, text: &str) -> Result<Script, ScenarioError> {
    let shown = |key: &str, error: &toml::de::Error| {
        // What knows its place in the file is wrapped, and the wrapping is nobody's key.
        let key = key.replace(".$__serde_spanned_private_value", "");
        let key = key.trim_matches('.');
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        let message = if key.is_empty() { message } else { format!("{key}: {message}") };
        ScenarioError::Invalid { problems: vec![excerpt(path, text, error.span().unwrap_or(0..0), &message)] }
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| shown("", &error))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| shown(&error.path().to_string(), error.inner()))
}

/// Gathers what serde does not see.
struct Problems<'s> {
    scenario: &'s Scenario,
    found: Vec<String>,
}

impl Problems<'_> {
    fn all(mut self) -> Vec<String> {
        let script = &self.scenario.script;
        if script.turns.is_empty() && script.calls.is_empty() {
            self.add(
                0..0,
                "it says nothing to do: give it [[turns]] with `say` and `replies`, or [[calls]] with `name`",
            );
        }
        for (span, key, what) in super::values::without_json(&self.scenario.text) {
            self.add(
                span,
                &format!("{key} is {what}, which JSON has no word for: write it as a text, or leave it out"),
            );
        }
        for (index, turn) in script.turns.iter().enumerate() {
            self.turn(&format!("turns[{index}]"), turn.get_ref());
        }
        for (index, call) in script.calls.iter().enumerate() {
            self.pattern(&format!("calls[{index}].result"), call.get_ref().result.as_ref());
        }
        for (key, replies) in [("summaries", &script.summaries), ("answers", &script.answers)] {
            self.replies(key, replies);
        }
        for (path, content) in &script.files {
            self.file(path, content);
        }
        for (path, pattern) in &script.files_after {
            let key = format!("files_after.{path:?}");
            self.inside(path, pattern.span(), &key);
            self.pattern(&key, Some(pattern));
        }
        for path in &script.files_gone {
            self.inside(path.get_ref(), path.span(), "files_gone");
        }
        for (index, exchange) in script.http.iter().enumerate() {
            self.exchange(&format!("http[{index}]"), exchange);
        }
        self.found
    }

    fn add(&mut self, span: Range<usize>, problem: &str) {
        self.found.push(excerpt(&self.scenario.path, &self.scenario.text, span, problem));
    }

    fn turn(&mut self, key: &str, turn: &Turn) {
        for (index, path) in turn.media.iter().enumerate() {
            self.inside(path.get_ref(), path.span(), &format!("{key}.media[{index}]"));
        }
        self.replies(&format!("{key}.replies"), &turn.replies);
        for (index, call) in turn.calls.iter().flatten().enumerate() {
            let (key, call) = (format!("{key}.calls[{index}]"), call.get_ref());
            self.pattern(&format!("{key}.result"), call.result.as_ref());
            self.pattern(&format!("{key}.arguments_like"), call.arguments_like.as_ref());
        }
        for (index, approval) in turn.approvals.iter().enumerate() {
            let answer = approval.get_ref();
            let key = format!("{key}.approvals[{index}]");
            match answer.verdict {
                Verdict::Allow if answer.reason.is_some() => {
                    self.add(approval.span(), &format!("{key}: `reason` goes with verdict = \"deny\""));
                }
                Verdict::Deny if answer.arguments.is_some() => {
                    self.add(approval.span(), &format!("{key}: `arguments` go with verdict = \"allow\""));
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
            self.pattern(&format!("{key}.services[{index}].request"), service.get_ref().request.as_ref());
        }
        self.pattern(&format!("{key}.output"), turn.output.as_ref());
        self.pattern(&format!("{key}.error"), turn.error.as_ref());
        if let (Some(error), Some(ends)) = (&turn.error, &turn.ends)
            && ends.get_ref().word() != "error"
        {
            self.add(error.span(), &format!("{key}: an `error` goes with ends = \"error\", which it means already"));
        }
        if let (Some(error), Some(_)) = (&turn.error, &turn.output) {
            self.add(error.span(), &format!("{key}: a turn has an `output` or an `error`, never both"));
        }
    }

    fn replies(&mut self, key: &str, replies: &[Spanned<agent_models::ScriptedReply>]) {
        for (index, reply) in replies.iter().enumerate() {
            if let Some(problem) = reply.get_ref().problem() {
                self.add(reply.span(), &format!("{key}[{index}] {problem}"));
            }
        }
    }

    fn pattern(&mut self, key: &str, pattern: Option<&Spanned<Pattern>>) {
        if let Some((pattern, problem)) = pattern.and_then(|pattern| Some((pattern, pattern.get_ref().problem()?))) {
            self.add(pattern.span(), &format!("{key} {problem}"));
        }
    }

    fn file(&mut self, path: &str, content: &Spanned<FileContent>) {
        let key = format!("files.{path:?}");
        self.inside(path, content.span(), &key);
        match content.get_ref() {
            FileContent::Text(_) => {}
            FileContent::Base64(text) => {
                if let Err(error) = STANDARD.decode(text) {
                    self.add(content.span(), &format!("{key} is no base64: {error}"));
                }
            }
            FileContent::Copy(from) => {
                let from = self.scenario.folder().join(from);
                let problem = match std::fs::metadata(&from) {
                    Ok(there) if there.is_file() || there.is_dir() => return,
                    Ok(_) => "it is neither a file nor a folder".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.add(content.span(), &format!("{key}: `{}` cannot be copied: {problem}", from.display()));
            }
        }
    }

    /// What a scenario writes and looks at lies in its own folder.
    fn inside(&mut self, path: &str, span: Range<usize>, key: &str) {
        let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(path).components().all(plain) {
            self.add(span, &format!("{key} is no path below the scenario's folder: write it relative, without `..`"));
        }
    }

    fn exchange(&mut self, key: &str, exchange: &Spanned<Exchange>) {
        let (span, exchange) = (exchange.span(), exchange.get_ref());
        let answers =
            [exchange.body.is_some(), exchange.json.is_some(), exchange.base64.is_some(), exchange.file.is_some()];
        let answers = answers.into_iter().filter(|given| *given).count();
        if !super::http::is_request(&exchange.request) {
            self.add(
                span.clone(),
                &format!("{key}.request is no request: write it as \"GET https://api.example.com/v1/items\""),
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
            self.add(span.clone(), &format!("{key}.status is {}: a status is from 100 to 599", exchange.status));
        }
        if exchange.times == Some(0) {
            self.add(span.clone(), &format!("{key}.times is 0: leave the request out, so that it is denied"));
        }
        if let Some(Err(error)) = exchange.base64.as_ref().map(|text| STANDARD.decode(text)) {
            self.add(span.clone(), &format!("{key}.base64 is none: {error}"));
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

    /// S4: an unknown key is refused with file, line and key.
    #[test]
    fn slips_are_named_with_their_line() {
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

    /// All that serde does not see is said at once, each with its line.
    #[test]
    fn what_cannot_hold_is_named() {
        let text = "files = { \"../x\" = \"a\", \"b\" = { base64 = \"%\" } }\n\
            [[turns]]\nsay = \"hi\"\nreplies = [{ thinking = \"hm\" }]\noutput = { matches = \"(\" }\n\
            [[http]]\nrequest = \"api.example.com\"\nbody = \"a\"\njson = 1\n";
        let found = error(text);
        let expected = [
            "a.scenario.toml:4:12: turns[0].replies[0] says nothing",
            "a.scenario.toml:5:10: turns[0].output is no regular expression",
            "a.scenario.toml:1:20: files.\"../x\" is no path below",
            "files.\"b\" is no base64",
            "a.scenario.toml:6:1: http[0].request is no request",
            "http[0] has several answers",
        ];
        for problem in expected {
            assert!(found.contains(problem), "{problem} is not in {found}");
        }
        assert!(error("description = \"none\"\n").contains("says nothing to do"));
    }

    /// Tools, models and services speak JSON: what it has no word for would become something else on the way.
    #[test]
    fn values_that_json_has_no_word_for() {
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
        assert!(!found.contains("when"), "what an agent's keys may be is said elsewhere: {found}");
    }

    /// What is expected of a service's request, and of a question, is a pattern like others.
    #[test]
    fn patterns_of_answers_are_checked() {
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
