//! Several processes share the sessions of a database, while some of them are killed with `kill -9`, paused for longer than their
//! lease, or cut off by a failing network. Every input has exactly one output, and no call that is not idempotent runs twice
//! (F1, F2, D3).
//!
//! The tests use few sessions, so that they end soon. `AGENT_HOST_FLEET_SESSIONS=500` uses as many as a fleet.

use super::{Fleet, LEASE_SECONDS, effects, histories};
use crate::nats_server::Cluster;
use crate::network::Fault;
use crate::serve::client::{Client, encoded};
use crate::serve::killed::answer_first_call;
use crate::serve::process::ServeProcess;
use agent_core::change::CallState;
use agent_core::event::EventKind;
use agent_store::{CallFilter, Integrity, PostgresStore, SessionFilter, SessionIndex, SessionLog, SessionSummary};
use futures::StreamExt;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of rounds. A process is killed or paused in each round.
const ROUNDS: usize = 5;
/// Number of sessions that all rounds together begin, unless the variable [`SESSIONS`] contains another number.
const DEFAULT_SESSIONS: usize = 25;
const SESSIONS: &str = "AGENT_HOST_FLEET_SESSIONS";
/// Number of requests that are sent at the same time.
const REQUESTS_AT_ONCE: usize = 5;
/// Maximum time until everything has ended after the last round, and the time that each session adds.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_PER_SESSION: Duration = Duration::from_secs(1);

/// Maximum number of sessions that are listed. It is larger than the number of sessions and their children.
const MAX_SESSIONS: usize = 1_000;

fn agents() -> [super::TestAgent<'static>; 6] {
    let effect = |tool: &str, ms: u32| json!({"name": tool, "arguments": {"path": "effects.txt", "ms": ms}});
    let turn =
        |number: u32| [json!({"calls": [effect("probe.count", 20)]}), json!({"text": format!("Turn {number}.")})];
    let probe = "[plugins.probe.grants]\nwrite = [\".\"]\n";
    [
        ("talker", probe, (1..40).flat_map(turn).collect()),
        (
            "runner",
            probe,
            json!([
                {"calls": [effect("probe.count", 15), effect("probe.idempotent", 300)]},
                {"calls": [effect("probe.count", 15)]},
                {"chunks": ["It ", "is ", "done."], "delay_ms": 100},
            ]),
        ),
        (
            "payer",
            "[plugins.payer.grants]\nwrite = [\".\"]\n[approval]\ndecide_within_ms = 6000\n",
            json!([
                {"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]},
                {"text": "Decided."},
            ]),
        ),
        (
            "asker",
            "finish = \"tool\"\nanswer_within_ms = 3000\n",
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

/// The prompts of one session that a server has acknowledged, and those whose fate is not known.
#[derive(Default)]
struct Prompts {
    acknowledged: u32,
    unknown: u32,
}

struct Run {
    fleet: Fleet,
    random: u64,
    prompts: BTreeMap<String, Prompts>,
    /// Two servers and a worker. `None` while a process is killed.
    processes: Vec<Option<ServeProcess>>,
    sessions_per_round: usize,
}

/// Which process does what.
const COMMANDS: [&str; 3] = ["serve", "serve", "worker"];

impl Run {
    /// Returns a random number below `end`.
    fn random(&mut self, end: u64) -> usize {
        // The constants are those of Knuth's MMIX generator.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.random >> 33) % end).expect("a small number")
    }

    fn client(&self, process: usize) -> Client {
        self.processes[process].as_ref().expect("the server runs").client()
    }

    /// Makes the NATS servers fail in a way that differs from round to round.
    async fn disturb_nats(&mut self, round: usize) {
        let Some(nats) = &mut self.fleet.nats else { return };
        match round {
            0 => nats.kill(0),
            1 => nats.signal(1, Signal::STOP),
            2 => nats.lose_everything(),
            // Without a majority, nothing is stored.
            3 => [0, 1].into_iter().for_each(|server| nats.kill(server)),
            _ => [0, 1, 2].into_iter().for_each(|server| nats.signal(server, Signal::STOP)),
        }
    }

    fn repair_nats(&mut self, round: usize) {
        let Some(nats) = &mut self.fleet.nats else { return };
        match round {
            0 => nats.start_server(0),
            1 => nats.signal(1, Signal::CONT),
            2 => {}
            3 => [0, 1].into_iter().for_each(|server| nats.start_server(server)),
            _ => [0, 1, 2].into_iter().for_each(|server| nats.signal(server, Signal::CONT)),
        }
    }

    /// Makes the networks fail in a way that differs from round to round: before NATS, before the process that is neither the door
    /// nor the victim, and a little before the door.
    fn disturb_networks(&self, round: usize, door: usize, victim: usize) {
        if self.fleet.networks.is_empty() {
            return;
        }
        let (before_nats, before_database) = [
            (Fault::Double, Fault::NoAnswers),
            // The rounds with odd numbers are longer than a lease.
            (Fault::Delay, Fault::Silence),
            (Fault::Cut, Fault::Delay),
            (Fault::Silence, Fault::Cut),
            (Fault::NoAnswers, Fault::NoRequests),
        ][round];
        let other =
            (0..COMMANDS.len()).find(|process| *process != door && *process != victim).expect("three processes");
        self.fleet.networks[other].set(before_database);
        self.fleet.networks[door].set(Fault::Delay);
        if let Some(nats) = &self.fleet.nats {
            nats.set_fault(before_nats);
        }
    }

    fn repair_networks(&self) {
        self.fleet.networks.iter().for_each(|network| network.set(Fault::None));
        if let Some(nats) = &self.fleet.nats {
            nats.set_fault(Fault::None);
        }
    }

    /// Publishes announcements as an attacker would: doubled, for sessions that are open or do not exist, and with forged text.
    async fn publish_doubled_and_forged(&self) {
        let Some(nats) = &self.fleet.nats else { return };
        let client = nats.jetstream().await.client();
        let sessions = self.prompts.keys().map(String::as_str).chain(["talker/missing", "unknown/1", "talker"]);
        let published = async {
            for session in sessions {
                let subject = session.replace('/', ".");
                for kind in ["work", "work", "answer", "watch", "live.events", "live.text", "retry", "dead", "other"] {
                    let forged = format!("tests.{subject}.{kind}");
                    client.publish(forged, "{\"events\": []}".into()).await.expect("published");
                }
            }
            client.flush().await.expect("sent");
        };
        // The servers may not answer at the moment.
        let _ = tokio::time::timeout(Duration::from_secs(2), published).await;
    }

    /// Begins sessions and sends prompts through a server that stays alive during this round.
    async fn use_server(&mut self, door: usize) {
        let client = &self.client(door);
        let begun = (0..self.sessions_per_round).map(async |number| {
            let agent = ["talker", "runner", "payer", "asker", "parent"][number % 5];
            let created =
                client.post("/api/sessions", json!({"agent": agent, "prompt": format!("Do {number}.")})).await;
            created.json(201)["session"].as_str().expect("an id").to_owned()
        });
        let begun: Vec<String> = futures::stream::iter(begun).buffer_unordered(REQUESTS_AT_ONCE).collect().await;
        for session in begun {
            self.prompts.entry(session).or_default().acknowledged += 1;
        }
    }

    /// Sends a prompt to every session of the agent `talker`, whichever process has it open.
    async fn send_prompts(&mut self, door: usize) {
        let client = self.client(door);
        let talkers = self.prompts.iter_mut().filter(|(session, _)| session.starts_with("talker/"));
        let sent = talkers.map(|(session, prompts)| {
            let (client, path) = (client.clone(), format!("/api/sessions/{}/prompts", encoded(session)));
            async move {
                let answer = client.post(&path, json!({"prompt": "Go on."})).await;
                match answer.status {
                    200..=299 => prompts.acknowledged += 1,
                    _ => prompts.unknown += 1,
                }
            }
        });
        futures::future::join_all(sent).await;
    }
}

/// Approves or answers the first call of every second session that waits.
async fn answer_some(client: &Client) {
    let waiting = client.get("/api/sessions?state=suspended&limit=500").await.json(200);
    let items = waiting["sessions"].as_array().expect("a list").iter().step_by(2);
    let sessions = items.map(|item| item["session"].as_str().expect("an id"));
    // The networks delay each answer, so the sessions do not wait for one another.
    futures::stream::iter(sessions)
        .for_each_concurrent(REQUESTS_AT_ONCE, |session| answer_first_call(client, session))
        .await;
}

/// Decides about calls whose outcome is unknown, as a person would who looks at the effects. Returns whether all sessions are
/// idle and have no more prompts.
async fn resolve_all(fleet: &Fleet, store: &PostgresStore, client: &Client) -> bool {
    let listed = store.sessions(SessionFilter::default(), MAX_SESSIONS).await.expect("sessions are listed");
    let mut is_idle = true;
    let may_be_busy = |item: &&SessionSummary| item.state.as_str() != "idle" || item.agent == "talker";
    for item in listed.iter().filter(may_be_busy) {
        let path = format!("/api/sessions/{}", encoded(&item.subject));
        let details = client.get(&path).await.json(200);
        is_idle &= details["state"] == "idle" && details["queued_prompts"] == 0;
        for wait in details["waits"].as_array().expect("a list") {
            if wait["cause"] == "outcome_unknown" {
                let call = wait["call"].as_str().expect("an id");
                let decision = match effects(fleet.folder.path()).contains_key(call) {
                    true => json!({"call": call, "decision": "result", "text": "It was done."}),
                    false => json!({"call": call, "decision": "retry"}),
                };
                client.post(&format!("{path}/resolutions"), decision).await;
            }
        }
    }
    is_idle
}

/// F1, F2, D3: after kills and pauses, everything ends, nothing is lost and nothing is done twice.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test harness captures the output, and shows the seed if the test fails")]
async fn f1_killed_and_paused_workers_lose_and_repeat_nothing() {
    let seed = u64::from(SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").subsec_nanos());
    println!("seed {seed}");
    if let Some(fleet) = Fleet::new(&agents(), COMMANDS.len()) {
        kill_and_pause(fleet, seed).await;
    }
}

/// F1, F2, D3: the same while NATS servers are killed and paused, lose everything, and deliver doubled and forged messages.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test harness captures the output, and shows the seed if the test fails")]
async fn f1_failures_of_nats_lose_and_repeat_nothing() {
    let seed = u64::from(SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").subsec_nanos());
    println!("seed {seed}");
    if let Some(fleet) = Fleet::with_nats(&agents(), COMMANDS.len(), Cluster::start(3)) {
        kill_and_pause(fleet, seed).await;
    }
}

/// F1, F2, D3: the same while the networks before the database and before NATS are late, silent, cut or closed in one direction,
/// and double messages.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test harness captures the output, and shows the seed if the test fails")]
async fn f1_failing_networks_lose_and_repeat_nothing() {
    let seed = u64::from(SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").subsec_nanos());
    println!("seed {seed}");
    if let Some(fleet) = Fleet::behind_networks(&agents(), COMMANDS.len()).await {
        kill_and_pause(fleet, seed).await;
    }
}

async fn kill_and_pause(fleet: Fleet, seed: u64) {
    let store = fleet.store().await;
    histories::record(&fleet).await;
    let sessions = std::env::var(SESSIONS).map_or(DEFAULT_SESSIONS, |number| number.parse().expect("a number"));
    let processes = COMMANDS.iter().enumerate().map(|(number, command)| Some(fleet.start(command, number))).collect();
    let mut run =
        Run { fleet, random: seed, prompts: BTreeMap::new(), processes, sessions_per_round: sessions.div_ceil(ROUNDS) };
    for round in 0..ROUNDS {
        // The door changes, and the victim is one of the other two processes.
        let door = round % 2;
        let victim = (door + 1 + run.random(2)) % COMMANDS.len();
        match run.fleet.networks.is_empty() {
            true => run.disturb_nats(round).await,
            false => run.disturb_networks(round, door, victim),
        }
        run.use_server(door).await;
        run.send_prompts(door).await;
        run.publish_doubled_and_forged().await;
        let pause = run.random(400) as u64;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if round % 2 == 0 {
            run.processes[victim].take().expect("the process runs").kill();
            answer_some(&run.client(door)).await;
            run.send_prompts(door).await;
            run.processes[victim] = Some(run.fleet.start(COMMANDS[victim], victim));
        } else {
            run.processes[victim].as_ref().expect("the process runs").signal(Signal::STOP);
            answer_some(&run.client(door)).await;
            tokio::join!(
                run.send_prompts(door),
                tokio::time::sleep(Duration::from_secs(LEASE_SECONDS) + Duration::from_millis(500))
            );
            run.processes[victim].as_ref().expect("the process runs").signal(Signal::CONT);
        }
        match run.fleet.networks.is_empty() {
            true => run.repair_nats(round),
            false => run.repair_networks(),
        }
    }
    let client = run.client(0);
    let ended = async {
        while !resolve_all(&run.fleet, &store, &client).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let patience = PATIENCE + PATIENCE_PER_SESSION * u32::try_from(sessions).expect("a small number");
    if tokio::time::timeout(patience, ended).await.is_err() {
        let open = client.get("/api/sessions?state=suspended&limit=500").await.body;
        let running = client.get("/api/sessions?state=running&limit=500").await.body;
        let logs: Vec<_> = run.processes.iter().flatten().flat_map(ServeProcess::log).collect();
        panic!("turns do not end by themselves: {open} {running}\n{}", logs.join("\n"));
    }
    run.processes.clear();
    check(&run, &store).await;
    assert!(histories::check(&run.fleet).await > 4 * sessions, "all commits were written down");
}

/// Checks the stored sessions.
async fn check(run: &Run, store: &PostgresStore) {
    store.integrity_check().await.expect("the content is intact");
    let sessions = store.sessions(SessionFilter::default(), MAX_SESSIONS).await.expect("sessions are listed");
    let subjects: Vec<_> = sessions.iter().map(|session| session.subject.clone()).collect();
    let lost: Vec<_> = run.prompts.keys().filter(|session| !subjects.contains(session)).collect();
    assert!(lost.is_empty(), "acknowledged sessions are lost: {lost:?}");
    let effects = effects(run.fleet.folder.path());
    for session in &sessions {
        let subject = &session.subject;
        assert_eq!(session.state.as_str(), "idle", "{subject}");
        let Prompts { acknowledged, unknown } =
            run.prompts.get(subject).unwrap_or(&Prompts { acknowledged: 1, unknown: 0 });
        let expected = *acknowledged..=acknowledged + unknown;
        assert!(expected.contains(&session.turns), "{subject}: {} turns, but {expected:?} prompts", session.turns);
        let events = store.events(subject, 0, 10_000).await.expect("events are read");
        for (index, timed) in events.iter().enumerate() {
            assert_eq!(timed.event.sequence, index as u64 + 1, "{subject}: no event is lost or doubled");
        }
        let is_end = |kind: &EventKind| matches!(kind, EventKind::LoopEnd { .. });
        let ends = events.iter().filter(|timed| is_end(&timed.event.kind)).count();
        assert_eq!(ends, session.turns as usize, "{subject}: each turn ends once");
        for turn in 1..=session.turns {
            check_calls(subject, &store.calls(subject, CallFilter::Turn(turn)).await.expect("calls"), &effects);
        }
    }
}

fn check_calls(subject: &str, calls: &[agent_core::change::CallRecord], effects: &BTreeMap<String, usize>) {
    for call in calls {
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
