//! Plays a scenario: creates its folder and its agent, runs its turns, and collects a failure for each expectation that
//! is not met.

use super::answers::{Answers, Requests};
use super::check::{PlayedTurn, Scope, text_of};
use super::file::Scenario;
use super::golden::{GoldenMode, GoldenResult, compare_or_update};
use super::http::{NearMiss, RecordedHttp, Unrecorded};
use super::model::{ReplyUse, RequestProblem, ScenarioModel};
use super::report::{Failure, Report, Verdict};
use super::script::{self, ExpectedCall, Turn};
use super::transcript::{self, Normalizer};
use super::{attached, folder, pattern};
use agent_core::change::OutboxEffect;
use agent_core::event::{Event, EventKind};
use agent_core::message::TurnInput;
use agent_models::{Provider, ScriptedReply};
use agent_plugins::Sandbox;
use agent_runtime::{Agent, Host, OpenSession, Session, SessionError, TurnResult};
use agent_store::{CallFilter, MAX_PAGE, Options, OutboxFilter, SqliteStore, Store, Synchronous};
use async_trait::async_trait;
use serde_json::json;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Creates the agent of a scenario. This crate does not read agent.toml, so its callers implement this trait.
#[async_trait]
pub trait AgentFactory: Send + Sync {
    /// Creates the agent. The text of an error is the reason why the agent cannot be created.
    async fn agent(&self, scenario: &Scenario, setup: &AgentSetup) -> Result<ScenarioAgent, String>;
}

/// An agent that was created for a scenario.
pub struct ScenarioAgent {
    /// The agent, which runs without its MCP servers.
    pub agent: Arc<Agent>,
    /// Names of the MCP servers in the agent's configuration. A scenario does not start these MCP servers.
    pub servers: Vec<String>,
    /// Descriptions of the MCP servers that are configured for the agents to which this agent delegates work. A
    /// scenario does not start these MCP servers.
    pub delegate_servers: Vec<String>,
}

impl ScenarioAgent {
    /// Returns notes about parts of the agent's configuration that have no effect in a scenario.
    fn notes(&self) -> Vec<String> {
        let servers: Vec<_> = self.servers.iter().chain(&self.delegate_servers).map(String::as_str).collect();
        let note = format!("scenarios do not start MCP servers, so the tools of {} are missing", servers.join(", "));
        let mut notes = if servers.is_empty() { Vec::new() } else { vec![note] };
        for (name, setup) in self.agent.setups() {
            for missing in setup.plugin().missing_secrets(setup.grants()) {
                notes.push(format!(
                    "`{name}` asks for {}, which the scenario's agent does not grant, so its requests are sent without it: {}",
                    missing.thing,
                    missing.advice.short()
                ));
            }
        }
        notes
    }
}

/// The results of playing a scenario.
struct Outcome {
    failures: Vec<Failure>,
    golden: GoldenResult,
    notes: Vec<String>,
}

/// The folder and the model that the agent of a scenario uses.
pub struct AgentSetup {
    /// The folder to which relative paths in the agent's grants refer.
    pub folder: PathBuf,
    /// The model with the scenario's replies. `None` means that the scenario has no replies, and the agent's own models
    /// are used.
    pub model: Option<Arc<dyn Provider>>,
}

/// Plays scenarios in a sandbox.
pub struct Player {
    /// The sandbox that runs the plugins.
    pub sandbox: Sandbox,
    /// Creates the agents of the scenarios.
    pub agents: Arc<dyn AgentFactory>,
    /// The action for a golden transcript that differs from the new transcript.
    pub golden: GoldenMode,
}

impl Player {
    /// Plays a scenario. Writes only to a temporary folder, and to the golden transcript if [`GoldenMode::Update`] is
    /// set.
    pub async fn play(&self, scenario: &Scenario) -> Report {
        let began = Instant::now();
        let (verdict, golden, notes) = match self.outcome(scenario).await {
            Ok(Outcome { failures, golden, notes }) if failures.is_empty() => (Verdict::Passed, golden, notes),
            Ok(Outcome { failures, golden, notes }) => (Verdict::Failed(failures), golden, notes),
            Err(reason) => (Verdict::NotPlayed(reason), GoldenResult::None, Vec::new()),
        };
        let (name, path) = (scenario.name.clone(), scenario.path.clone());
        Report { name, path, verdict, golden, notes, time: began.elapsed() }
    }

    async fn outcome(&self, scenario: &Scenario) -> Result<Outcome, String> {
        let folder_error = |error: std::io::Error| format!("the scenario's folder cannot be created: {error}");
        let directory = tempfile::tempdir().map_err(folder_error)?;
        let folder = directory.path().canonicalize().map_err(folder_error)?.join("files");
        std::fs::create_dir(&folder).map_err(folder_error)?;
        folder::create_files(scenario, &folder)?;
        let recorded = Arc::new(RecordedHttp::read(scenario)?);
        let turns = planned_turns(scenario);
        let is_scripted = turns.iter().any(|planned| !planned.turn.replies.is_empty());
        let replies =
            turns.iter().map(|planned| planned.turn.replies.iter().map(|reply| reply.get_ref().clone()).collect());
        let model = is_scripted.then(|| Arc::new(ScenarioModel::new(scenario, replies.collect())));
        let setup = AgentSetup { folder: folder.clone(), model: model.clone().map(|model| model as Arc<dyn Provider>) };
        let created = self.agents.agent(scenario, &setup).await?;
        let notes = created.notes();
        let options = Options { synchronous: Synchronous::Off, ..Options::default() };
        let store =
            SqliteStore::open(directory.path().join("agent-host.db"), options).map_err(|error| error.to_string())?;
        let store: Arc<dyn Store> = Arc::new(store);
        let host = Host { http: Some(recorded.clone()), ..Host::new(store.clone(), self.sandbox.clone()) };
        let session =
            Session::open(&host, created.agent.clone(), OpenSession::New).await.map_err(|error| error.to_string())?;
        let run = ScenarioRun { scenario, store, session, model, recorded, folder, servers: created.servers };
        let (failures, golden) = run.play_turns(&turns, self.golden).await?;
        Ok(Outcome { failures, golden, notes })
    }
}

/// A turn to play: a turn of the file, or a turn generated for a direct call.
struct PlannedTurn {
    turn: Turn,
    key: String,
    span: Range<usize>,
    scope: Scope,
}

fn planned_turns(scenario: &Scenario) -> Vec<PlannedTurn> {
    let script = &scenario.script;
    let calls = script.calls.iter().enumerate().map(|(index, call)| PlannedTurn {
        turn: turn_of_call(call),
        key: format!("calls[{index}]"),
        span: call.span(),
        scope: Scope::DirectCall,
    });
    let turns = script.turns.iter().enumerate().map(|(index, turn)| PlannedTurn {
        turn: turn.get_ref().clone(),
        key: format!("turns[{index}]"),
        span: turn.span(),
        scope: Scope::All,
    });
    calls.chain(turns).collect()
}

/// Returns a turn in which the model makes a single call and then finishes.
fn turn_of_call(call: &toml::Spanned<script::DirectCall>) -> Turn {
    let (span, call) = (call.span(), call.get_ref());
    let reply = |reply: serde_json::Value| -> toml::Spanned<ScriptedReply> {
        toml::Spanned::new(span.clone(), serde_json::from_value(reply).expect("a reply accepts these keys"))
    };
    let expected = ExpectedCall {
        name: call.name.clone(),
        result: call.result.clone(),
        fails: call.fails,
        ..ExpectedCall::default()
    };
    Turn {
        say: transcript::call_line(&call.name, &call.arguments.clone().into()),
        media: Vec::new(),
        replies: vec![
            reply(json!({"calls": [{"name": call.name, "arguments": call.arguments}]})),
            reply(json!({"text": "done"})),
        ],
        calls: Some(vec![toml::Spanned::new(span.clone(), expected)]),
        approvals: Vec::new(),
        questions: Vec::new(),
        services: Vec::new(),
        output: None,
        ends: None,
        error: None,
    }
}

/// A scenario that is being played.
struct ScenarioRun<'s> {
    scenario: &'s Scenario,
    store: Arc<dyn Store>,
    session: Session,
    model: Option<Arc<ScenarioModel>>,
    recorded: Arc<RecordedHttp>,
    folder: PathBuf,
    /// Names of the agent's MCP servers, which are not started.
    servers: Vec<String>,
}

impl ScenarioRun<'_> {
    async fn play_turns(
        mut self,
        turns: &[PlannedTurn],
        mode: GoldenMode,
    ) -> Result<(Vec<Failure>, GoldenResult), String> {
        let limit = Duration::from_millis(self.scenario.script.time_limit_ms);
        let (mut failures, mut text, end) = (Vec::new(), String::new(), Instant::now() + limit);
        let normalizer = Normalizer::new(self.session.subject(), &self.folder);
        let mut is_stopped = false;
        for (index, planned) in turns.iter().enumerate() {
            let place = || self.scenario.place(planned.span.clone(), planned.key.clone());
            let input = attached::input(&self.session, &planned.turn, &self.folder).await;
            let input = input.map_err(|problem| format!("{}: {problem}", place()))?;
            let cancel = CancellationToken::new();
            let remaining = end.saturating_duration_since(Instant::now());
            let timer = tokio::spawn({
                let cancel = cancel.clone();
                async move {
                    tokio::time::sleep(remaining).await;
                    cancel.cancel();
                }
            });
            let played = self.play_turn((index, planned), input, &cancel).await;
            timer.abort();
            let (played, transcript) = played.map_err(|error| error.to_string())?;
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&transcript);
            if cancel.is_cancelled() {
                is_stopped = true;
                let found = "it was stopped".to_owned();
                let expected = format!("the scenario to finish in {} ms", limit.as_millis());
                failures.push(
                    Failure::at(place(), &expected, found)
                        .advising("raise `time_limit_ms` if the scenario may take longer"),
                );
                break;
            }
            failures.extend(played.failures(self.scenario).into_iter().map(|failure| normalized(failure, &normalizer)));
            if matches!(played.result, TurnResult::Suspended(_)) && index + 1 < turns.len() {
                let place = self.scenario.place(turns[index + 1].span.clone(), turns[index + 1].key.clone());
                failures.push(Failure::at(
                    place,
                    "a turn that can start",
                    "the previous turn is still suspended".to_owned(),
                ));
                break;
            }
        }
        if !is_stopped {
            failures.extend(self.side_reply_failures());
        }
        failures.extend(self.http_failures());
        failures.extend(folder::differences(self.scenario, &self.folder));
        let Self { scenario, session, .. } = self;
        session.close().await.map_err(|error| error.to_string())?;
        if !scenario.script.golden {
            return Ok((failures, GoldenResult::None));
        }
        // The transcript of a failed scenario is not written, so that a wrong transcript is not committed by mistake.
        let mode = match mode {
            GoldenMode::Update if !failures.is_empty() => GoldenMode::Keep,
            mode => mode,
        };
        let (golden, failure) = compare_or_update(scenario, &normalizer.text(&text), mode);
        failures.extend(failure);
        Ok((failures, golden))
    }

    /// Plays one turn. When the turn waits for answers, passes the scenario's answers to the session.
    async fn play_turn<'a>(
        &mut self,
        (index, planned): (usize, &'a PlannedTurn),
        input: TurnInput,
        cancel: &CancellationToken,
    ) -> Result<(PlayedTurn<'a>, String), SessionError> {
        if let Some(model) = &self.model {
            model.begin(index, self.session.state().model_calls);
        }
        let mut answers = Answers::of(self.scenario, (&planned.key, &planned.turn));
        let begin = self.last_event().await?;
        let mut result = self.session.run(Some(input), cancel.clone()).await?;
        while let TurnResult::Suspended(suspension) = &result {
            let service_requests = self.service_requests().await?;
            if !answers.pass_answers(&mut self.session, suspension, &service_requests).await? {
                break;
            }
            result = self.session.run(None, cancel.clone()).await?;
        }
        let number = self.session.state().turns;
        let calls = self.store.calls(self.session.subject(), CallFilter::Turn(number)).await?;
        let events = self.events_after(begin).await?;
        let output = match &result {
            TurnResult::Finished(output) => Some(text_of(&output.data).0),
            _ => None,
        };
        let requests = self.recorded.take_new_lines();
        let output = output.as_deref().filter(|_| planned.scope == Scope::All);
        let extras = transcript::TurnExtras { requests: &requests, services: &self.service_requests().await?, output };
        let text = transcript::turn(&attached::input_text(&planned.turn), &events, &extras);
        let unknown = events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolNotFound { call, .. } => Some(call.clone()),
            _ => None,
        });
        let unknown = unknown.collect();
        let (replies, request_problems) = self.model.as_ref().map(|model| model.end()).unwrap_or_default();
        let (turn, key, span, scope) = (&planned.turn, planned.key.clone(), planned.span.clone(), planned.scope);
        let answers = answers.failures();
        let servers = self.servers.clone();
        let played =
            PlayedTurn { turn, key, span, result, calls, replies, request_problems, unknown, servers, scope, answers };
        Ok((played, format!("turn {number}\n{text}")))
    }

    /// Returns the session's stored events after the event with the sequence number `begin`.
    async fn events_after(&self, begin: u64) -> Result<Vec<Event>, agent_store::StoreError> {
        let (mut events, mut after): (Vec<Event>, u64) = (Vec::new(), begin);
        loop {
            let page = self.store.events(self.session.subject(), after, MAX_PAGE).await?;
            let Some(last) = page.last() else { return Ok(events) };
            after = last.event.sequence;
            events.extend(page.into_iter().map(|timed| timed.event));
        }
    }

    async fn last_event(&self) -> Result<u64, SessionError> {
        // The events are read from the start, because most scenarios have less than one page of events.
        let mut last = 0;
        loop {
            let page = self.store.events(self.session.subject(), last, MAX_PAGE).await?;
            match page.last() {
                Some(event) => last = event.event.sequence,
                None => return Ok(last),
            }
        }
    }

    /// Returns the data of all service requests that the session has sent so far.
    async fn service_requests(&self) -> Result<Requests, SessionError> {
        let (mut requests, mut last) = (Requests::new(), 0);
        loop {
            let page = self.store.outbox(Some(self.session.subject()), OutboxFilter::All, last, MAX_PAGE).await?;
            let Some(end) = page.last() else { return Ok(requests) };
            last = end.number;
            for stored in page {
                // In the outbox, an effect has the id of the call that requested it.
                if let OutboxEffect::Event(event) = stored.item.effect {
                    requests.insert(stored.item.id, event.into_inner().data.unwrap_or_default());
                }
            }
        }
    }

    /// Returns the failures of the requests outside of turns: replies that were not used, and requests that did not
    /// match the expectations of their replies.
    fn side_reply_failures(&self) -> Vec<Failure> {
        let script = &self.scenario.script;
        let uses = self.model.as_ref().map(|model| model.side_replies()).unwrap_or_default();
        let lists = [("summaries", &script.summaries, uses.summaries), ("answers", &script.answers, uses.answers)];
        let mut failures = Vec::new();
        for (key, replies, ReplyUse { used, problems }) in lists {
            let place = |index: usize| {
                let span = replies.get(index).map_or(0..0, toml::Spanned::span);
                self.scenario.place(span, format!("{key}[{index}]"))
            };
            let failure = |problem: &RequestProblem| {
                Failure::at(
                    place(problem.reply),
                    "a request that matches `expect` of this reply",
                    problem.problem.clone(),
                )
            };
            failures.extend(problems.iter().map(failure));
            if used < replies.len() {
                let found = match used {
                    0 => "none of the replies was used".to_owned(),
                    used => format!("{used} of {} replies were used", replies.len()),
                };
                failures.push(Failure::at(place(used), "this reply to be used", found));
            }
        }
        failures
    }

    fn http_failures(&self) -> Vec<Failure> {
        let unrecorded = self.recorded.unrecorded().into_iter().map(|Unrecorded { question, near_miss }| {
            let request = format!("{} {}", question.method, question.url);
            let body = String::from_utf8_lossy(&question.body).into_owned();
            let body =
                if body.is_empty() { String::new() } else { format!(" with the body {}", pattern::quoted(&body)) };
            if let Some(NearMiss { index, difference }) = near_miss {
                let place = self.scenario.place(self.scenario.script.http[index].span(), format!("http[{index}]"));
                let found = format!("`{}` sent {request} {difference}, so it was denied", question.plugin);
                return Failure::at(place, "a request that matches this recorded request", found);
            }
            let found = format!("`{}` sent {request}{body}, which was denied", question.plugin);
            let advice = format!("record the request:\n[[http]]\nrequest = {request:?}\nbody = \"…\"");
            Failure::at(self.scenario.top(), "only requests that are recorded under `http`", found).advising(advice)
        });
        unrecorded.chain(self.recorded.wrong_count_failures(self.scenario)).collect()
    }
}

fn normalized(failure: Failure, normalizer: &Normalizer) -> Failure {
    Failure { found: normalizer.text(&failure.found), diff: failure.diff.map(|diff| normalizer.text(&diff)), ..failure }
}
