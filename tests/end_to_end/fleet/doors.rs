//! Any door for any session: requests to one process reach a session that another process has open, and workers hand their
//! sessions over (F1, F2).

use super::{Fleet, effects};
use crate::serve::client::{Client, encoded};
use crate::serve::process::ServeProcess;
use crate::support::agent_host;
use agent_store::{SessionFilter, SessionIndex, SessionRequests};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn agents() -> [super::TestAgent<'static>; 5] {
    [
        (
            "talker",
            "[plugins.probe.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 8_000}}]},
                {"text": "First."},
                {"text": "Second."},
                {"text": "Third."},
            ]),
        ),
        (
            "payer",
            "[plugins.payer.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]},
                {"text": "Paid."},
            ]),
        ),
        ("brief", "", json!([{"text": "One."}, {"text": "Two."}, {"text": "Three."}])),
        (
            "long",
            "[plugins.probe.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 9_000}}]},
                {"text": "At last."},
            ]),
        ),
        (
            "slow",
            "[plugins.probe.grants]\nwrite = [\".\"]\n",
            json!([
                {"calls": [{"name": "probe.idempotent", "arguments": {"path": "effects.txt", "ms": 200}}]},
                {"chunks": ["It ", "goes ", "on ", "and ", "on."], "delay_ms": 1_000},
            ]),
        ),
    ]
}

async fn begin(client: &Client, agent: &str) -> String {
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Go."})).await;
    created.json(201)["session"].as_str().expect("an id").to_owned()
}

async fn shown(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{}", encoded(session))).await.json(200)
}

async fn until(client: &Client, session: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let found = shown(client, session).await;
        if is_reached(&found) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "the state is not reached: {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn turn_is(number: u64) -> impl Fn(&Value) -> bool {
    move |session| session["state"] == "idle" && session["turns"] == number
}

/// F2: a prompt, an approval, an undo, a cancellation and a deletion at another server reach the session.
#[tokio::test(flavor = "multi_thread")]
async fn f2_any_server_takes_requests_for_any_session() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let (first, second) = (fleet.start("serve", 0), fleet.start("serve", 1));
    use_both_doors(&fleet, &first.client(), &second.client()).await;
    drop(first);
    drop(second);
    let left = fleet.store().await.pending_requests(&["talker".to_owned()], 10).await;
    assert_eq!(left, Ok(Vec::new()), "no request stays behind");
}

/// F2: two servers that share a file have no announcements, and only need more time.
#[tokio::test(flavor = "multi_thread")]
async fn f2_requests_reach_their_session_without_announcements() {
    let Some(fleet) = Fleet::new(&agents(), 1) else { return };
    // An empty address selects the file in the data folder.
    let file = [("AGENT_HOST_STORE", "")];
    let (first, second) = (fleet.start_with("serve", 0, &file), fleet.start_with("serve", 0, &file));
    use_both_doors(&fleet, &first.client(), &second.client()).await;
}

/// F2, L17, L29: commands reach sessions that a server has open: an approval, the cancellation of a running turn, and an undo.
#[tokio::test(flavor = "multi_thread")]
async fn f2_commands_reach_sessions_of_a_server() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let address = fleet.address();
    for store in [&*address, ""] {
        let variables = [("AGENT_HOST_STORE", store)];
        let server = fleet.start_with("serve", 0, &variables);
        let run = |arguments: &[&str]| {
            let mut command = agent_host();
            command.args(arguments).args(["--data", "data-0"]).current_dir(fleet.folder.path()).envs(variables);
            let output = command.stdin(Stdio::null()).output().expect("the program starts");
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{arguments:?}: {printed}");
            printed
        };
        let client = server.client();
        let holder = format!("continues in process {}", server.id());
        let paid = effects(fleet.folder.path()).len();
        let session = begin(&client, "payer").await;
        until(&client, &session, |session| session["waits"][0]["cause"] == "approval").await;
        let approved = run(&["session", "approve", &session]);
        assert!(approved.contains(&holder), "{approved}");
        until(&client, &session, turn_is(1)).await;
        assert_eq!(effects(fleet.folder.path()).len(), paid + 1, "the call has run once");

        let undone = run(&["session", "undo", &session]);
        assert!(undone.contains("undid the last turn"), "{undone}");

        let session = begin(&client, "slow").await;
        until(&client, &session, |session| session["state"] == "running").await;
        let cancelled = run(&["session", "cancel", &session]);
        assert!(cancelled.contains("cancelled; to continue the session"), "{cancelled}");
        assert_eq!(shown(&client, &session).await["state"], "cancelled");
    }
}

/// Begins sessions at one server, and sends requests for them to another server.
async fn use_both_doors(fleet: &Fleet, owner: &Client, other: &Client) {
    // The call of the first turn runs at the first server, so the prompt of the second server is queued there.
    let session = begin(owner, "talker").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    until(other, &session, |session| session["state"] == "running").await;
    let begun = Instant::now();
    let queued = other.post(&format!("{path}/prompts"), json!({"prompt": "And then?"})).await;
    assert!(queued.status < 300, "{}", queued.body);
    assert!(begun.elapsed() < Duration::from_millis(7_500), "the prompt did not wait for the end of the turn");
    until(other, &session, turn_is(2)).await;

    // The session is idle, but still open at the first server.
    let started = other.post(&format!("{path}/prompts"), json!({"prompt": "Once more."})).await;
    assert!(started.status < 300, "{}", started.body);
    until(other, &session, turn_is(3)).await;
    let undone = other.post(&format!("{path}/undo"), json!({})).await;
    assert!(undone.status < 300, "{}", undone.body);
    assert_eq!(effects(fleet.folder.path()).len(), 1);

    let session = begin(owner, "payer").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    let waiting = until(other, &session, |session| session["waits"][0]["cause"] == "approval").await;
    let decisions = json!({"decisions": [{"call": waiting["waits"][0]["call"], "verdict": "granted"}]});
    let approved = other.post(&format!("{path}/approvals"), decisions).await;
    assert!(approved.status < 300, "{}", approved.body);
    until(other, &session, turn_is(1)).await;
    let deleted = other.delete(&path).await;
    assert!(deleted.status < 300, "{}", deleted.body);
    assert_eq!(owner.get(&path).await.status, 404);

    let session = begin(owner, "slow").await;
    let path = format!("/api/sessions/{}", encoded(&session));
    until(other, &session, |session| session["state"] == "running").await;
    assert_eq!(other.delete(&path).await.status, 409, "a session whose turn runs is not deleted");
    let cancelled = other.post(&format!("{path}/cancel"), json!({})).await;
    assert!(cancelled.status < 300, "{}", cancelled.body);
    assert_eq!(shown(owner, &session).await["state"], "cancelled");
}

/// F1: a worker that is told to stop hands its open turns over within a second, and the health of a worker is shown.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_worker_hands_its_sessions_over() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let (server, worker) = (fleet.start("serve", 0), fleet.start("worker", 1));
    let health = worker.anonymous();
    assert_eq!(health.get("/health").await.json(200)["status"], "ok");
    assert_eq!(health.get("/ready").await.json(200)["status"], "ok");
    assert_eq!(health.get("/metrics").await.status, 401, "the metrics need a token");
    assert_eq!(health.get("/api/sessions").await.status, 404, "a worker has no API");
    let session = begin(&server.client(), "slow").await;
    until(&server.client(), &session, |session| session["state"] == "running").await;

    server.signal(Signal::TERM);
    let begun = Instant::now();
    assert!(server.wait(), "the server ends without an error");
    // The worker opens the session before another server starts.
    let store = fleet.store().await;
    let is_open = async || {
        let found = store.sessions(SessionFilter::default(), 1).await.expect("the session is listed");
        found[0].open_in.is_some()
    };
    while !is_open().await {
        assert!(begun.elapsed() < PATIENCE, "nobody continues the session: {:?}", worker.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let server: ServeProcess = fleet.start("serve", 0);
    let ended = until(&server.client(), &session, turn_is(1)).await;
    assert_eq!(ended["turns"], 1);
    let holders = worker.log().into_iter().filter(|line| line.contains("lost")).count();
    assert_eq!(holders, 0, "{:?}", worker.log());
    assert_eq!(effects(fleet.folder.path()).values().sum::<usize>(), 1, "the call ran once");
    worker.signal(Signal::TERM);
    assert!(worker.wait());
}

/// F1: a server that was paused for longer than its lease stops the session that another process has taken over, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_paused_server_stops_the_sessions_that_it_has_lost() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let (paused, other) = (fleet.start("serve", 0), fleet.start("serve", 1));
    let session = begin(&paused.client(), "long").await;
    let begun = Instant::now();
    while effects(fleet.folder.path()).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the call does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let store = fleet.store().await;
    let holder = async || {
        let found = store.sessions(SessionFilter::default(), 1).await.expect("the session is listed");
        found[0].open_in.as_ref().and_then(agent_store::SessionHolder::process_id)
    };
    let first = holder().await;
    assert!(first.is_some());
    paused.signal(Signal::STOP);
    while holder().await.is_none_or(|holder| Some(holder) == first) {
        assert!(begun.elapsed() < PATIENCE, "nobody takes the session over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    paused.signal(Signal::CONT);
    let is_reported =
        || paused.log().iter().any(|line| line.contains("taken the session over") && line.contains(&session));
    while !is_reported() {
        assert!(begun.elapsed() < PATIENCE, "the loss is not reported: {:?}", paused.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Both servers show the end of the session, which has one output.
    for client in [other.client(), paused.client()] {
        until(&client, &session, turn_is(1)).await;
    }
    assert_eq!(effects(fleet.folder.path()).values().sum::<usize>(), 1, "the call had its effect once");
}

/// F2: a prompt whose process is killed after the commit of its turn begins one turn, and its sender gets the answer.
#[tokio::test(flavor = "multi_thread")]
async fn f2_a_prompt_is_carried_out_once_if_its_process_is_killed() {
    for point in ["after-commit:start:2", "before-commit:start:2"] {
        let Some(fleet) = Fleet::new(&agents(), 2) else { return };
        let owner = fleet.start_with("serve", 0, &[("AGENT_HOST_KILL_AT", point)]);
        let other = fleet.start("serve", 1);
        let session = begin(&owner.client(), "brief").await;
        until(&other.client(), &session, turn_is(1)).await;
        let path = format!("/api/sessions/{}", encoded(&session));
        let answer = other.client().post(&format!("{path}/prompts"), json!({"prompt": "And then?"})).await;
        assert!(answer.status < 300, "{point}: {}", answer.body);
        assert!(!owner.wait(), "{point}: the first server was killed");
        let ended = until(&other.client(), &session, turn_is(2)).await;
        assert_eq!(ended["turns"], 2, "{point}");
    }
}

/// F1: a server that does not have the plugins of an open turn leaves the turn to a server that has them.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_turn_waits_for_a_machine_that_has_its_plugins() {
    let Some(fleet) = Fleet::new(&agents(), 2) else { return };
    let first = fleet.start("serve", 0);
    let session = begin(&first.client(), "payer").await;
    let waiting = until(&first.client(), &session, |session| session["waits"][0]["cause"] == "approval").await;
    first.signal(Signal::TERM);
    assert!(first.wait());

    // The second server has never used this version of the plugin, and finds another one in the plugin folder: the same component
    // with a further custom section.
    let file = fleet.folder.path().join("plugins/payer.wasm");
    let mut component = std::fs::read(&file).expect("a component");
    component.extend(b"\x00\x05\x04note");
    std::fs::write(&file, component).expect("written");
    let second = fleet.start("serve", 1);
    let path = format!("/api/sessions/{}/approvals", encoded(&session));
    let decisions = json!({"decisions": [{"call": waiting["waits"][0]["call"], "verdict": "granted"}]});
    let refused = second.client().post(&path, decisions.clone()).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(shown(&second.client(), &session).await["state"], "suspended", "the turn has not ended");

    // The first machine kept a copy of the plugin when the turn began.
    let first = fleet.start("serve", 0);
    let approved = first.client().post(&path, decisions).await;
    assert!(approved.status < 300, "{}", approved.body);
    until(&second.client(), &session, turn_is(1)).await;
    assert_eq!(effects(fleet.folder.path()).len(), 1);
}

/// F2: servers with the same file of tokens accept the same tokens, and add none of their own. A revoked token is refused by all.
#[tokio::test(flavor = "multi_thread")]
async fn f2_servers_share_a_file_of_tokens() {
    let Some(fleet) = Fleet::new(&[("talker", "", json!([{"text": "Hello."}]))], 2) else { return };
    let file = fleet.folder.path().join("tokens.json").display().to_string();
    let token = |arguments: &[&str]| {
        let mut command = crate::support::agent_host();
        command.args(["--data", "data-admin", "token"]).args(arguments).args(["--tokens", &file]);
        let output = command.current_dir(fleet.folder.path()).output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    let shared = token(&["create", "reader", "--right", "read"]);
    let variables = [("AGENT_HOST_TOKENS", file.as_str())];
    let servers = [0, 1].map(|number| fleet.start_with("serve", number, &variables));
    for server in &servers {
        assert_eq!(server.client_with(&shared).get("/api/agents").await.status, 200);
        assert_eq!(server.token(), "", "the server creates no token");
    }
    token(&["revoke", "reader"]);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    for server in &servers {
        while server.client_with(&shared).get("/api/agents").await.status != 401 {
            assert!(std::time::Instant::now() < until, "a revoked token is refused within a second");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
