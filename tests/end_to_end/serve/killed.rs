//! `kill -9` of a server with many sessions that run, wait, delegate or were begun by schedules and webhooks. After the
//! restarts, everything that was acknowledged is there and everything ends by itself (D2, D3, I9, row 27).

use super::client::{Client, encoded};
use super::process::ServeProcess;
use crate::support::components;
use agent_core::change::CallState;
use agent_core::event::EventKind;
use agent_store::{
    CallFilter, Integrity, Options, Outbox, OutboxFilter, ScheduleState, Schedules, SessionFilter, SessionIndex,
    SessionLog, SqliteStore,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Number of times that the server is killed.
const KILLS: u32 = 6;
/// Number of sessions that each round begins.
const SESSIONS_PER_ROUND: usize = 8;
/// Maximum time until everything has ended after the last start.
const PATIENCE: Duration = Duration::from_secs(90);
/// The years at whose beginning the schedule was missed.
const MISSED_SINCE: &str = "2023-01-01T00:00:00Z";

/// The agents, with their configuration and the replies of their models.
fn agents() -> [(&'static str, &'static str, Value); 6] {
    let effect = |tool: &str| json!({"name": tool, "arguments": {"path": "effects.txt", "ms": 15}});
    let words: Vec<String> = (0..20).map(|word| format!("word{word} ")).collect();
    [
        (
            "runner",
            "[plugins.probe.grants]\nwrite = [\".\"]\n[webhooks.tickets]\n\
             [schedules.yearly]\ntimes = \"0 0 1 1 *\"\nprompt = \"Report.\"\nmissed = \"all\"\n",
            json!([
                {"calls": [effect("probe.count"), effect("probe.idempotent")]},
                {"calls": [effect("probe.count")]},
                {"chunks": words, "delay_ms": 20},
            ]),
        ),
        (
            "payer",
            "[plugins.payer.grants]\nwrite = [\".\"]\n[approval]\ndecide_within_ms = 2000\n",
            json!([
                {"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]},
                {"text": "Decided."},
            ]),
        ),
        (
            "buyer",
            "[services.supply]\ntype = \"com.example.supply\"\nanswer_within_ms = 2000\n[outbox]\ndirectory = \"out\"\n",
            json!([{"calls": [{"name": "supply", "arguments": {}}]}, {"text": "Supplied or not."}]),
        ),
        (
            "asker",
            "finish = \"tool\"\nanswer_within_ms = 2000\n",
            json!([
                {"calls": [{"name": "ask_question", "arguments": {"question": "Which pier?"}}]},
                {"calls": [{"name": "task_completion", "arguments": {"result": "Done."}}]},
            ]),
        ),
        (
            "parent",
            "[agents.child]\nagent = \"child.toml\"\ndescription = \"Works slowly.\"\n",
            json!([{"calls": [{"name": "child", "arguments": {"task": "Work."}}]}, {"text": "The child has worked."}]),
        ),
        ("child", "", json!([{"chunks": ["I ", "work ", "slowly."], "delay_ms": 200}])),
    ]
}

/// The server's folder, and what the clients know about their sessions.
struct Target {
    folder: TempDir,
    /// State of the generator of random numbers.
    random: u64,
    /// Sessions whose creation was acknowledged.
    acknowledged: BTreeSet<String>,
    /// Sessions by the ids of the webhook requests that were acknowledged.
    webhooks: BTreeMap<String, String>,
}

impl Target {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["plugins", "out"] {
            std::fs::create_dir(folder.path().join(name)).expect("created");
        }
        for plugin in ["probe.wasm", "payer.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).expect("copied");
        }
        for (name, more, replies) in agents() {
            let configuration =
                format!("name = \"{name}\"\nmodel = \"scripted:{name}.json\"\nplugin_directory = \"plugins\"\n");
            // Top-level keys come before tables.
            std::fs::write(folder.path().join(format!("{name}.toml")), format!("{configuration}{more}"))
                .expect("written");
            std::fs::write(folder.path().join(format!("{name}.json")), json!({"replies": replies}).to_string())
                .expect("written");
        }
        Self { folder, random: seed, acknowledged: BTreeSet::new(), webhooks: BTreeMap::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a random number below `end`.
    fn random(&mut self, end: u64) -> u64 {
        // The constants are those of Knuth's MMIX generator.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn start(&self) -> ServeProcess {
        let files = ["runner.toml", "payer.toml", "buyer.toml", "asker.toml", "parent.toml"];
        let arguments: Vec<_> = files.into_iter().flat_map(|file| ["--agent", file]).collect();
        ServeProcess::start(self.folder.path(), &arguments)
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Begins sessions and answers some of the calls that wait, until the server is killed.
    async fn use_server(&mut self, client: &Client, round: u32) {
        let names = ["runner", "payer", "buyer", "asker", "parent"];
        for number in 0..SESSIONS_PER_ROUND {
            let agent = names[usize::try_from(self.random(5)).expect("a small number")];
            let body = json!({"agent": agent, "prompt": format!("Round {round}, number {number}.")});
            let created = client.post("/api/sessions", body).await;
            self.acknowledged.insert(created.json(201)["session"].as_str().expect("an id").to_owned());
        }
        // The request of the round before is repeated, as a sender does that has not received the answer.
        for number in [round.saturating_sub(1), round] {
            let (id, body) = (format!("request-{number}"), json!({"number": number}).to_string());
            let headers = [("webhook-id".to_owned(), id.clone())];
            let begun = client.send("POST", "/webhooks/runner/tickets", "application/json", &headers, body).await;
            let session = begun.json(202)["session"].as_str().expect("an id").to_owned();
            let known = self.webhooks.entry(id).or_insert_with(|| session.clone());
            assert_eq!(*known, session, "a repeated request begins no second session");
        }
        answer_some(client).await;
    }
}

/// Decides about the first call of every second session that waits.
async fn answer_some(client: &Client) {
    let waiting = client.get("/api/sessions?state=suspended&limit=500").await.json(200);
    for item in waiting["sessions"].as_array().expect("a list").iter().step_by(2) {
        answer_first_call(client, item["session"].as_str().expect("an id")).await;
    }
}

/// Approves, answers or responds to the first call that a session waits for, if any.
pub(crate) async fn answer_first_call(client: &Client, session: &str) {
    let path = format!("/api/sessions/{}", encoded(session));
    let details = client.get(&path).await.json(200);
    let Some(wait) = details["waits"].get(0) else { return };
    let call = &wait["call"];
    // The turn may have continued in the meantime, so every answer may be refused.
    match wait["cause"].as_str() {
        Some("approval") => {
            let decisions = json!({"decisions": [{"call": call, "verdict": "granted"}]});
            client.post(&format!("{path}/approvals"), decisions).await;
        }
        Some("answer") => {
            client.post(&format!("{path}/answers"), json!({"call": call, "text": "Pier 3."})).await;
        }
        Some("service") => {
            let event = json!({
                "specversion": "1.0", "id": format!("answer to {call}"), "source": "/supplier", "type": "supplied",
                "parentid": call, "subject": session, "data": {},
            });
            client.send("POST", "/api/events", "application/cloudevents+json", &[], event.to_string()).await;
        }
        _ => {}
    }
}

/// Decides about the calls whose outcome is unknown, as a person would who looks at the effects, until no turn is open
/// and every event is delivered.
async fn until_all_ended(target: &Target, client: &Client) {
    let ended = async {
        while !has_all_ended(target, client).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, ended).await.is_err() {
        let open = client.get("/api/sessions?state=suspended&limit=500").await.body;
        let running = client.get("/api/sessions?state=running&limit=500").await.body;
        let pending = target.store().outbox(None, OutboxFilter::Pending, 0, 100).await;
        panic!("turns do not end by themselves: {open} {running} {pending:?}");
    }
}

async fn has_all_ended(target: &Target, client: &Client) -> bool {
    // One request lists the sessions of every state. With one request per state, a session that changes its state between
    // the requests would be in none of the lists.
    let listed = client.get("/api/sessions?limit=500").await.json(200);
    let mut is_idle = true;
    for item in listed["sessions"].as_array().expect("a list").iter().filter(|item| item["state"] != "idle") {
        is_idle = false;
        resolve(target, client, item["session"].as_str().expect("an id")).await;
    }
    let store = target.store();
    let schedules = store.schedules("runner").await.expect("schedules are read");
    let is_ahead = schedules[0].due > i64::try_from(now().as_millis()).expect("a time");
    // The server delivers the last events of a turn after the turn has ended.
    let pending = store.outbox(None, OutboxFilter::Pending, 0, 1).await.expect("the outbox is read");
    is_idle && is_ahead && pending.is_empty()
}

async fn resolve(target: &Target, client: &Client, session: &str) {
    let path = format!("/api/sessions/{}", encoded(session));
    let details = client.get(&path).await.json(200);
    for wait in details["waits"].as_array().expect("a list") {
        if wait["cause"] == "outcome_unknown" {
            let call = wait["call"].as_str().expect("an id");
            let decision = match effects(target.folder.path()).contains_key(call) {
                true => json!({"call": call, "decision": "result", "text": "It was done."}),
                false => json!({"call": call, "decision": "retry"}),
            };
            client.post(&format!("{path}/resolutions"), decision).await;
        }
    }
}

/// Returns how often each call has had its effect.
fn effects(folder: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in ["effects.txt", "ledger.txt"] {
        for line in std::fs::read_to_string(folder.join(file)).unwrap_or_default().lines() {
            *counts.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time")
}

/// D2, D3, I9, row 27: after several kills at random moments, everything ends, nothing is lost and nothing is done twice.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test harness captures the output, and shows the seed if the test fails")]
async fn row_27_killed_servers_lose_and_repeat_nothing() {
    let seed = u64::from(now().subsec_nanos());
    println!("seed {seed}");
    let mut target = Target::new(seed);
    let due: jiff::Timestamp = MISSED_SINCE.parse().expect("a time");
    let state = ScheduleState {
        agent: "runner".to_owned(),
        name: "yearly".to_owned(),
        definition: "0 0 1 1 * UTC".to_owned(),
        due: due.as_millisecond(),
        ..ScheduleState::default()
    };
    std::fs::DirBuilder::new().mode(0o700).create(target.path("data")).expect("created");
    target.store().set_schedule(state).await.expect("the schedule is stored");
    for round in 0..KILLS {
        let server = target.start();
        target.use_server(&server.client(), round).await;
        let pause = target.random(1_200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.kill();
    }
    let server = target.start();
    until_all_ended(&target, &server.client()).await;
    drop(server);
    check(&target).await;
}

/// Checks the stored sessions.
async fn check(target: &Target) {
    let store = target.store();
    store.integrity_check().await.expect("the database is intact");
    let sessions = store.sessions(SessionFilter::default(), 1_000).await.expect("sessions are listed");
    let subjects: BTreeSet<_> = sessions.iter().map(|session| session.subject.clone()).collect();
    let lost: Vec<_> = target.acknowledged.iter().filter(|session| !subjects.contains(*session)).collect();
    assert!(lost.is_empty(), "acknowledged sessions are lost: {lost:?}");
    let begun_by = |kind: &str| subjects.iter().filter(|subject| subject.contains(kind)).count();
    assert_eq!(begun_by("/webhook-"), target.webhooks.len(), "each request has one session");
    let years = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year() - 2022;
    assert_eq!(begun_by("/schedule-"), usize::try_from(years).expect("a number"), "each time has one session");
    let effects = effects(target.folder.path());
    for session in &sessions {
        let subject = &session.subject;
        assert_eq!((session.state.as_str(), session.turns), ("idle", 1), "{subject}");
        let events = store.events(subject, 0, 1_000).await.expect("events are read");
        for (index, timed) in events.iter().enumerate() {
            assert_eq!(timed.event.sequence, index as u64 + 1, "{subject}: no event is lost or doubled");
        }
        let ends = events.iter().filter(|timed| matches!(timed.event.kind, EventKind::LoopEnd { .. })).count();
        assert_eq!(ends, 1, "{subject}: the turn ends once");
        for call in store.calls(subject, CallFilter::Turn(1)).await.expect("calls are read") {
            assert_eq!(call.state, CallState::Finished, "{subject}/{}", call.id);
            let result = call.result.as_ref().unwrap_or_else(|| panic!("{subject}/{} has no result", call.id));
            let times = effects.get(&call.id.0).copied().unwrap_or_default();
            match call.name.as_str() {
                "probe.count" | "probe.idempotent" => {
                    assert_eq!((times, result.is_error), (1, false), "{subject}/{}: {result:?}", call.id);
                }
                // A call that nobody allowed in time does not run.
                "payer.pay" => assert_eq!(times, usize::from(!result.is_error), "{subject}/{}: {result:?}", call.id),
                "child" => assert!(!result.is_error, "{subject}/{}: the child has worked: {result:?}", call.id),
                _ => assert_eq!(times, 0),
            }
        }
    }
    let pending = store.outbox(None, OutboxFilter::Pending, 0, 100).await.expect("the outbox is read");
    assert!(pending.is_empty(), "all events are delivered: {pending:?}");
}
