//! Plays a scenario: lays its folder, has its agent made, lets turn after turn run, and says what does not hold.

use super::answers::{Answers, Requests};
use super::check::{Counts, Played, text_of};
use super::file::Scenario;
use super::golden::{Golden, GoldenMode, settle};
use super::http::Recorded;
use super::model::{Asked, Complaint, StagedModel};
use super::report::{Failure, Report, Verdict};
use super::script::{self, ExpectedCall, Turn};
use super::transcript::{self, Normal};
use super::{attached, folder, pattern};
use agent_core::change::OutboxEffect;
use agent_core::event::{Event, EventKind};
use agent_core::message::TurnInput;
use agent_models::{Provider, ScriptedReply};
use agent_plugins::Sandbox;
use agent_runtime::{Agent, Downscaler, Host, OpenSession, Session, SessionError, TurnResult};
use agent_store::{CallFilter, MAX_PAGE, Options, OutboxFilter, SqliteStore, Store, Synchronous};
use async_trait::async_trait;
use serde_json::json;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Makes the agent of a scenario: who reads agent.toml does.
#[async_trait]
pub trait Casting: Send + Sync {
    /// The agent, or why there is none.
    async fn agent(&self, scenario: &Scenario, setting: &Setting) -> Result<Made, String>;
}

/// An agent that was made for a scenario.
pub struct Made {
    /// Itself, without MCP servers.
    pub agent: Arc<Agent>,
    /// The MCP servers that its file names: none is started.
    pub servers: Vec<String>,
    /// Those of the agents below it, in words.
    pub servers_below: Vec<String>,
}

impl Made {
    /// What of its file does not hold in a scenario.
    fn notes(&self) -> Vec<String> {
        let servers: Vec<_> = self.servers.iter().chain(&self.servers_below).map(String::as_str).collect();
        let note = format!("a scenario starts no MCP server, so the tools of {} are not there", servers.join(", "));
        if servers.is_empty() { Vec::new() } else { vec![note] }
    }
}

/// What came of playing.
struct Outcome {
    failures: Vec<Failure>,
    golden: Golden,
    notes: Vec<String>,
}

/// What an agent is made for.
pub struct Setting {
    /// Whatever is granted relative to the agent's file is here.
    pub folder: PathBuf,
    /// Says what the scenario says. None: the agent's own models do.
    pub model: Option<Arc<dyn Provider>>,
}

/// Plays scenarios on one sandbox.
pub struct Player {
    /// Where plugins run.
    pub sandbox: Sandbox,
    /// Who makes agents.
    pub casting: Arc<dyn Casting>,
    /// Whether transcripts are compared or written.
    pub golden: GoldenMode,
}

impl Player {
    /// Plays one scenario to its end. Nothing outside of a temporary folder is changed but its golden transcript, where
    /// that is asked for.
    pub async fn play(&self, scenario: &Scenario) -> Report {
        let began = Instant::now();
        let (verdict, golden, notes) = match self.played(scenario).await {
            Ok(Outcome { failures, golden, notes }) if failures.is_empty() => (Verdict::Passed, golden, notes),
            Ok(Outcome { failures, golden, notes }) => (Verdict::Failed(failures), golden, notes),
            Err(reason) => (Verdict::NotPlayed(reason), Golden::None, Vec::new()),
        };
        let (name, path) = (scenario.name.clone(), scenario.path.clone());
        Report { name, path, verdict, golden, notes, time: began.elapsed() }
    }

    async fn played(&self, scenario: &Scenario) -> Result<Outcome, String> {
        let of_io = |error: std::io::Error| format!("the scenario's folder cannot be made: {error}");
        let place = tempfile::tempdir().map_err(of_io)?;
        let folder = place.path().canonicalize().map_err(of_io)?.join("files");
        std::fs::create_dir(&folder).map_err(of_io)?;
        folder::lay(scenario, &folder)?;
        let recorded = Arc::new(Recorded::read(scenario)?);
        let acts = acts(scenario);
        let is_scripted = acts.iter().any(|act| !act.turn.replies.is_empty());
        let replies = acts.iter().map(|act| act.turn.replies.iter().map(|reply| reply.get_ref().clone()).collect());
        let model = is_scripted.then(|| Arc::new(StagedModel::new(scenario, replies.collect())));
        let setting = Setting { folder: folder.clone(), model: model.clone().map(|model| model as Arc<dyn Provider>) };
        let made = self.casting.agent(scenario, &setting).await?;
        let notes = made.notes();
        let options = Options { synchronous: Synchronous::Off, ..Options::default() };
        let store =
            SqliteStore::open(place.path().join("agent-host.db"), options).map_err(|error| error.to_string())?;
        let store: Arc<dyn Store> = Arc::new(store);
        let host = Host {
            store: store.clone(),
            sandbox: self.sandbox.clone(),
            downscaler: Downscaler::default(),
            checkpoint: None,
            first_uses: None,
            http: Some(recorded.clone()),
            leaving: Default::default(),
        };
        let session =
            Session::open(&host, made.agent.clone(), OpenSession::New).await.map_err(|error| error.to_string())?;
        let stage = Stage { scenario, store, session, model, recorded, folder, servers: made.servers };
        let (failures, golden) = stage.perform(&acts, self.golden).await?;
        Ok(Outcome { failures, golden, notes })
    }
}

/// A turn as it is played: of the file, or around a tool that is called directly.
struct Act {
    turn: Turn,
    key: String,
    span: Range<usize>,
    counts: Counts,
}

fn acts(scenario: &Scenario) -> Vec<Act> {
    let script = &scenario.script;
    let calls = script.calls.iter().enumerate().map(|(index, call)| Act {
        turn: around(call),
        key: format!("calls[{index}]"),
        span: call.span(),
        counts: Counts::ItsCall,
    });
    let turns = script.turns.iter().enumerate().map(|(index, turn)| Act {
        turn: turn.get_ref().clone(),
        key: format!("turns[{index}]"),
        span: turn.span(),
        counts: Counts::All,
    });
    calls.chain(turns).collect()
}

/// A turn in which the model makes this one call, and then says nothing.
fn around(call: &toml::Spanned<script::DirectCall>) -> Turn {
    let (span, call) = (call.span(), call.get_ref());
    let reply = |reply: serde_json::Value| -> toml::Spanned<ScriptedReply> {
        toml::Spanned::new(span.clone(), serde_json::from_value(reply).expect("replies are made of these keys"))
    };
    let expected = ExpectedCall {
        name: call.name.clone(),
        result: call.result.clone(),
        fails: call.fails,
        ..ExpectedCall::default()
    };
    Turn {
        say: transcript::called(&call.name, &call.arguments.clone().into()),
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
struct Stage<'s> {
    scenario: &'s Scenario,
    store: Arc<dyn Store>,
    session: Session,
    model: Option<Arc<StagedModel>>,
    recorded: Arc<Recorded>,
    folder: PathBuf,
    /// MCP servers that are not started.
    servers: Vec<String>,
}

impl Stage<'_> {
    async fn perform(mut self, acts: &[Act], mode: GoldenMode) -> Result<(Vec<Failure>, Golden), String> {
        let limit = Duration::from_millis(self.scenario.script.time_limit_ms);
        let (mut failures, mut text, end) = (Vec::new(), String::new(), Instant::now() + limit);
        let normal = Normal::new(self.session.subject(), &self.folder);
        let mut is_stopped = false;
        for (index, act) in acts.iter().enumerate() {
            let place = || self.scenario.place(act.span.clone(), act.key.clone());
            let input = attached::input(&self.session, &act.turn, &self.folder).await;
            let input = input.map_err(|problem| format!("{}: {problem}", place()))?;
            let cancel = CancellationToken::new();
            let left = end.saturating_duration_since(Instant::now());
            let alarm = tokio::spawn({
                let cancel = cancel.clone();
                async move {
                    tokio::time::sleep(left).await;
                    cancel.cancel();
                }
            });
            let played = self.act((index, act), input, &cancel).await;
            alarm.abort();
            let (played, transcript) = played.map_err(|error| error.to_string())?;
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&transcript);
            if cancel.is_cancelled() {
                is_stopped = true;
                let found = "it was stopped then".to_owned();
                let expected = format!("the scenario to be over in {} ms", limit.as_millis());
                failures.push(
                    Failure::at(place(), &expected, found).advising("raise `time_limit_ms` if it may take longer"),
                );
                break;
            }
            failures.extend(played.failures(self.scenario).into_iter().map(|failure| normalised(failure, &normal)));
            if matches!(played.result, TurnResult::Suspended(_)) && index + 1 < acts.len() {
                let place = self.scenario.place(acts[index + 1].span.clone(), acts[index + 1].key.clone());
                failures.push(Failure::at(place, "a turn that can begin", "the one before it still waits".to_owned()));
                break;
            }
        }
        if !is_stopped {
            failures.extend(self.besides());
        }
        failures.extend(self.requests());
        failures.extend(folder::differences(self.scenario, &self.folder));
        let Self { scenario, session, .. } = self;
        session.close().await.map_err(|error| error.to_string())?;
        if !scenario.script.golden {
            return Ok((failures, Golden::None));
        }
        // What does not hold is not what somebody shall read and commit.
        let mode = match mode {
            GoldenMode::Update if !failures.is_empty() => GoldenMode::Keep,
            mode => mode,
        };
        let (golden, failure) = settle(scenario, &normal.text(&text), mode);
        failures.extend(failure);
        Ok((failures, golden))
    }

    /// Plays one turn, and answers what it waits for.
    async fn act<'a>(
        &mut self,
        (index, act): (usize, &'a Act),
        input: TurnInput,
        cancel: &CancellationToken,
    ) -> Result<(Played<'a>, String), SessionError> {
        if let Some(model) = &self.model {
            model.begin(index, self.session.state().model_calls);
        }
        let mut answers = Answers::of(self.scenario, (&act.key, &act.turn));
        let begin = self.last_event().await?;
        let mut result = self.session.run(Some(input), cancel.clone()).await?;
        while let TurnResult::Suspended(suspension) = &result {
            let asked = self.services().await?;
            if !answers.give(&mut self.session, suspension, &asked).await? {
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
        let requests = self.recorded.told();
        let output = output.as_deref().filter(|_| act.counts == Counts::All);
        let besides = transcript::Besides { requests: &requests, services: &self.services().await?, output };
        let text = transcript::turn(&attached::said(&act.turn), &events, &besides);
        let unknown = events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolNotFound { call, .. } => Some(call.clone()),
            _ => None,
        });
        let unknown = unknown.collect();
        let (replies, complaints) = self.model.as_ref().map(|model| model.end()).unwrap_or_default();
        let (turn, key, span, counts) = (&act.turn, act.key.clone(), act.span.clone(), act.counts);
        let answers = answers.failures();
        let servers = self.servers.clone();
        let played = Played { turn, key, span, result, calls, replies, complaints, unknown, servers, counts, answers };
        Ok((played, format!("turn {number}\n{text}")))
    }

    /// The session's durable events behind this one.
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
        // Few scenarios have more than a page of them, and those that have read on.
        let mut last = 0;
        loop {
            let page = self.store.events(self.session.subject(), last, MAX_PAGE).await?;
            match page.last() {
                Some(event) => last = event.event.sequence,
                None => return Ok(last),
            }
        }
    }

    /// What services were asked so far.
    async fn services(&self) -> Result<Requests, SessionError> {
        let (mut requests, mut last) = (Requests::new(), 0);
        loop {
            let page = self.store.outbox(Some(self.session.subject()), OutboxFilter::All, last, MAX_PAGE).await?;
            let Some(end) = page.last() else { return Ok(requests) };
            last = end.number;
            for stored in page {
                // The deed's id is the call's.
                if let OutboxEffect::Event(event) = stored.item.effect {
                    requests.insert(stored.item.id, event.into_inner().data.unwrap_or_default());
                }
            }
        }
    }

    /// Summaries and answers that nobody asked for, or that were asked for otherwise.
    fn besides(&self) -> Vec<Failure> {
        let script = &self.scenario.script;
        let besides = self.model.as_ref().map(|model| model.besides()).unwrap_or_default();
        let lists =
            [("summaries", &script.summaries, besides.summaries), ("answers", &script.answers, besides.answers)];
        let mut failures = Vec::new();
        for (key, replies, Asked { replies: asked, complaints }) in lists {
            let place = |index: usize| {
                let span = replies.get(index).map_or(0..0, toml::Spanned::span);
                self.scenario.place(span, format!("{key}[{index}]"))
            };
            let complaint = |complaint: &Complaint| {
                Failure::at(place(complaint.reply), "the request that this reply expects", complaint.problem.clone())
            };
            failures.extend(complaints.iter().map(complaint));
            if asked < replies.len() {
                let found = match asked {
                    0 => "none of them was".to_owned(),
                    asked => format!("{asked} of {} were", replies.len()),
                };
                failures.push(Failure::at(place(asked), "this reply to be asked for", found));
            }
        }
        failures
    }

    fn requests(&self) -> Vec<Failure> {
        let unrecorded = self.recorded.unrecorded().into_iter().map(|question| {
            let asked = format!("{} {}", question.method, question.url);
            let body = String::from_utf8_lossy(&question.body).into_owned();
            let body =
                if body.is_empty() { String::new() } else { format!(" with the body {}", pattern::quoted(&body)) };
            let found = format!("`{}` asked {asked}{body}, which was denied", question.plugin);
            let advice = format!("record it:\n[[http]]\nrequest = {asked:?}\nbody = \"…\"");
            Failure::at(self.scenario.top(), "only requests that are recorded under `http`", found).advising(advice)
        });
        unrecorded.chain(self.recorded.left(self.scenario)).collect()
    }
}

fn normalised(failure: Failure, normal: &Normal) -> Failure {
    Failure { found: normal.text(&failure.found), diff: failure.diff.map(|diff| normal.text(&diff)), ..failure }
}
