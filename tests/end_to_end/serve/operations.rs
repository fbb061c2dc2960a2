//! Routes for operators: plugin versions and rollbacks, memories, usage, schedules and pending events (I3, P10, D4, O4).

use super::process::ServeProcess;
use super::{TestServer, clerk, encoded, new_token};
use crate::support::{TestHost, script, text_reply};
use crate::swap::{probe_version, write_atomically};
use agent_runtime::{
    AgentConfig, AnnouncedEvents, ContentMode, Emission, HttpSink, HttpSinkConfig, MissedRuns, Schedule, ScheduleTimes,
    Webhook, WebhookAuthentication,
};
use agent_serve::{NewToken, Right};
use agent_store::{Memories, Memory, MemoryKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn memory(user: &str, text: &str) -> Memory {
    Memory {
        user: user.to_owned(),
        kind: MemoryKind::Final,
        agent: "clerk".to_owned(),
        session: "clerk/1".to_owned(),
        turn: 1,
        text: text.to_owned(),
        project: None,
        written: None,
    }
}

/// D4, I3: memories are listed, searched and deleted for the user of the token only.
#[tokio::test(flavor = "multi_thread")]
async fn d4_memories_belong_to_a_user() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    for (id, user, text) in
        [("1/final", "ann", "the red crane"), ("2/final", "ann", "the ferry"), ("3/final", "bob", "the pier")]
    {
        test_host.store.add(id, memory(user, text)).await.expect("the memory is stored");
    }
    let rights = [Right::Read, Right::Administer];
    let of_ann = server.client_of(NewToken { rights: rights.into(), user: Some("ann".to_owned()), ..new_token() });
    let ids = |answer: Value| -> Vec<String> {
        let memories = answer["memories"].as_array().expect("a list").clone();
        memories.iter().map(|memory| memory["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(of_ann.get("/api/memories").await.json(200)), ["2/final", "1/final"]);
    assert_eq!(ids(of_ann.get("/api/memories?query=crane").await.json(200)), ["1/final"]);
    assert_eq!(ids(of_ann.get("/api/memories?limit=1&after=2%2Ffinal").await.json(200)), ["1/final"]);
    assert_eq!(of_ann.get("/api/memories?user=bob").await.status, 403);
    assert_eq!(of_ann.delete("/api/memories/3%2Ffinal").await.status, 404, "another user's memory");
    assert_eq!(of_ann.delete("/api/memories/1%2Ffinal").await.status, 204);
    assert_eq!(of_ann.delete("/api/memories/1%2Ffinal").await.status, 404);
    assert_eq!(of_ann.get("/api/memories?query=a&after=b").await.status, 422);
    assert_eq!(of_ann.get("/api/memories?limit=0").await.status, 422);
    let all = server.client(&rights);
    assert_eq!(all.get("/api/memories").await.status, 422, "a token for all users must name one");
    assert_eq!(ids(all.get("/api/memories?user=bob").await.json(200)), ["3/final"]);
    let of_agent =
        server.client_of(NewToken { rights: rights.into(), agents: vec!["clerk".to_owned()], ..new_token() });
    assert_eq!(of_agent.get("/api/memories?user=bob").await.status, 403, "memories come from all agents");
    server.stop().await;
}

/// O4, I3: usage is added up for each agent and user, for the agents and the user of the token.
#[tokio::test(flavor = "multi_thread")]
async fn o4_usage_is_reported_for_the_agents_of_the_token() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One."), text_reply("Two.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    for user in ["ann", "bob"] {
        let created =
            client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Go.", "user": user})).await.json(201);
        super::until_idle(&client, created["session"].as_str().expect("an id")).await;
    }
    let report = client.get("/api/usage").await.json(200);
    let users: Vec<_> =
        report["totals"].as_array().expect("a list").iter().map(|total| total["user"].clone()).collect();
    assert_eq!(users, [json!("ann"), json!("bob")]);
    assert!(report["totals"][0]["model_calls"].as_u64() == Some(1), "{report}");
    let of_bob = server.client_of(NewToken { user: Some("bob".to_owned()), ..new_token() });
    assert_eq!(of_bob.get("/api/usage").await.json(200)["totals"].as_array().map(Vec::len), Some(1));
    let stranger = server.client_of(NewToken { agents: vec!["other".to_owned()], ..new_token() });
    assert_eq!(stranger.get("/api/usage").await.json(200), json!({"totals": []}));
    let days = async |client: &super::Client, query: &str| {
        let path = format!("/api/usage/days{query}");
        client.get(&path).await.json(200)["days"].as_array().expect("a list").clone()
    };
    let all = days(&client, "").await;
    let users: Vec<_> = all.iter().map(|day| (&day["agent"], &day["user"])).collect();
    assert_eq!(users, [(&json!("clerk"), &json!("ann")), (&json!("clerk"), &json!("bob"))]);
    assert!(all.iter().all(|day| day["tokens"].as_u64() > Some(0)), "{all:?}");
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    assert_eq!(all[0]["day"].as_str().map(str::len), Some("2026-01-31".len()));
    let tomorrow = today.tomorrow().expect("a day");
    let here = days(&client, &format!("?since={today}&until={tomorrow}&time_zone=Pacific/Kiritimati")).await;
    assert_eq!(here.len(), 2, "the days of this time zone begin earlier: {here:?}");
    assert_eq!(days(&client, "?until=2001-01-01").await, [] as [Value; 0], "later days are not included");
    assert_eq!(days(&of_bob, "").await.len(), 1);
    assert_eq!(days(&stranger, "").await, [] as [Value; 0]);
    for query in ["?since=yesterday", "?time_zone=Mars", "?since=1900-01-01", "?days=3"] {
        assert_eq!(client.get(&format!("/api/usage/days{query}")).await.status, 422, "{query}");
    }
    server.stop().await;
}

/// D6, I3: pending events are listed with the reason, for the user of the token only. Schedules and webhooks are shown.
#[tokio::test(flavor = "multi_thread")]
async fn d6_pending_events_are_listed_with_their_reason() {
    let test_host = TestHost::new(&[]).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let sink = HttpSink::new(HttpSinkConfig {
        url: format!("http://{closed}/").parse().expect("an address"),
        mode: ContentMode::Structured,
        headers: BTreeMap::new(),
        secret_headers: BTreeMap::new(),
        signing_key: None,
        timeout: Duration::from_secs(5),
    });
    let mut config = AgentConfig::new("clerk");
    config.outbox.server = Some(Arc::new(sink.expect("a sink")));
    config.outbox.announced = AnnouncedEvents { completions: Emission::Emitted, approvals: Emission::Silent };
    let times = ScheduleTimes::parse("0 7 * * mon-fri", "Europe/Berlin").expect("valid times");
    let schedule = Schedule { times, prompt: "Go.".into(), missed: MissedRuns::Skip, user: None };
    config.schedules.insert("morning".to_owned(), schedule);
    let webhook = Webhook { prompt: None, authentication: WebhookAuthentication::Token, user: None };
    config.webhooks.insert("tickets".to_owned(), webhook);
    let agent = test_host.agent(config, script(&[text_reply("One.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let created =
        client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Go.", "user": "ann"})).await.json(201);
    let session = created["session"].as_str().expect("an id").to_owned();
    let failed = super::until(async || {
        let pending = client.get("/api/outbox").await.json(200);
        (pending["events"][0]["failed_attempts"].as_u64() > Some(0)).then_some(pending)
    })
    .await;
    let event = &failed["events"][0];
    assert_eq!((&event["event_type"], &event["session"]), (&json!("agent-host.turn.finished"), &json!(session)));
    assert!(event["problem"].as_str().is_some_and(|problem| problem.contains("cannot send the event")), "{event}");
    let of_bob = server.client_of(NewToken { user: Some("bob".to_owned()), ..new_token() });
    assert_eq!(of_bob.get("/api/outbox").await.json(200)["events"], json!([]));
    assert_eq!(client.get("/api/outbox?after=18446744073709551615").await.status, 422);
    let details = super::until(async || {
        let details = client.get("/api/agents/clerk").await.json(200);
        details["schedules"][0]["next"].is_string().then_some(details)
    })
    .await;
    assert_eq!(details["schedules"][0]["times"], "0 7 * * mon-fri Europe/Berlin");
    assert_eq!(
        details["webhooks"],
        json!([{"name": "tickets", "path": "/webhooks/clerk/tickets", "signed": false, "last": null, "last_session": null}])
    );
    assert_eq!(client.get(&format!("/api/sessions/{}", encoded(&session))).await.status, 200);
    server.stop().await;
}

/// P10, I3: versions are listed, and a rollback needs the right `administer` for all agents.
#[tokio::test(flavor = "multi_thread")]
async fn p10_plugin_versions_and_rollbacks_need_rights() {
    let test_host = TestHost::new(&["probe"]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let versions = "/api/agents/clerk/plugins/probe/versions";
    let listed = client.get(versions).await.json(200);
    assert!(listed["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{listed}");
    assert_eq!(client.get("/api/agents/clerk/plugins/none/versions").await.status, 404);
    assert_eq!(client.get("/api/agents/none/plugins/probe/versions").await.status, 404);
    let rollback = "/api/agents/clerk/plugins/probe/rollback";
    assert_eq!(client.post(rollback, json!({})).await.status, 409, "the versions of this plugin are not recorded");
    assert_eq!(client.delete(rollback).await.status, 409);
    assert_eq!(client.post(rollback, json!({"digest": 3})).await.status, 422);
    let talker = server.client(&[Right::Read, Right::Talk, Right::Approve]);
    assert_eq!(talker.post(rollback, json!({})).await.status, 403);
    let administer = [Right::Read, Right::Administer];
    let of_agent =
        server.client_of(NewToken { rights: administer.into(), agents: vec!["clerk".to_owned()], ..new_token() });
    assert_eq!(of_agent.post(rollback, json!({})).await.status, 403, "the plugin belongs to other agents too");
    server.stop().await;
}

/// P10, I3: a plugin is rolled back and forward again over HTTP, and the running server uses the other version.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_plugin_is_rolled_back_over_http() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = directory.path();
    std::fs::create_dir(folder.join("plugins")).expect("created");
    let digest = |number: u32| agent_plugins::digest_of(&probe_version(number)).to_string();
    write_atomically(&folder.join("plugins/probe.wasm"), &probe_version(1));
    let server = ServeProcess::start(folder, &["--plugins", "plugins", "--model", "offline"]);
    let client = server.client();
    let agents = client.get("/api/agents").await.json(200);
    let agent = format!("/api/agents/{}/plugins/probe", agents["agents"][0]["name"].as_str().expect("a name"));
    let uses = async |number: u32| {
        super::until(async || {
            let versions = client.get(&format!("{agent}/versions")).await.json(200);
            // The version is recorded a moment after the agent uses it.
            let is_recorded = versions["versions"][0]["digest"] == digest(number);
            (versions["digest"] == digest(number) && is_recorded).then_some(versions)
        })
        .await
    };
    uses(1).await;
    write_atomically(&folder.join("plugins/probe.wasm"), &probe_version(2));
    let versions = uses(2).await;
    assert_eq!(versions["versions"][1]["digest"], digest(1));
    let back = client.post(&format!("{agent}/rollback"), json!({})).await.json(200);
    assert_eq!(back, json!({"from": digest(2), "to": digest(1)}));
    assert_eq!(uses(1).await["instead_of"], digest(2));
    let twice = client.post(&format!("{agent}/rollback"), json!({"digest": &digest(2)[..20]})).await.json(409);
    let detail = twice["detail"].as_str().expect("a text");
    assert!(!detail.contains(&folder.display().to_string()), "{detail}");
    assert_eq!(client.delete(&format!("{agent}/rollback")).await.status, 200);
    uses(2).await;
    assert_eq!(client.delete(&format!("{agent}/rollback")).await.status, 409);
}
