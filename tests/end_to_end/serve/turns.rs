//! The turns of a session over HTTP: their steps and times, what each model call was sent, replays, and direct calls (D1, S6).

use super::process::ServeProcess;
use super::{TestServer, clerk, encoded, new_token, until_idle};
use crate::support::{TestHost, call_reply, components, script, text_reply, with_tree_grant};
use crate::swap::write_atomically;
use agent_runtime::AgentConfig;
use agent_serve::{NewToken, Right};
use serde_json::{Value, json};

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// D1, I3: a turn is shown with its steps, its calls and the time of each part, and each prompt with what is new in it. A prompt
/// contains the instructions of the agent, so it needs the right `administer`.
#[tokio::test(flavor = "multi_thread")]
async fn d1_a_turn_is_shown_step_by_step() {
    let test_host = TestHost::new(&["text"]).await;
    let mut config = AgentConfig::new("clerk");
    config.prompt.instructions = Some("You count words.".to_owned());
    let replies = [call_reply(&[("text.count", json!({"text": "one two"}))]), text_reply("Two."), text_reply("Three.")];
    let agent = test_host.agent(config, script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Count."})).await.json(201);
    let session = created["session"].as_str().expect("an id");
    until_idle(&client, session).await;
    let path = format!("/api/sessions/{}", encoded(session));
    client.post(&format!("{path}/prompts"), json!({"prompt": "Again."})).await.json(202);
    super::until(async || {
        let turns = client.get(&format!("{path}/turns")).await.json(200);
        (list(&turns["turns"]).len() == 2 && turns["turns"][0]["ended"].is_string()).then_some(())
    })
    .await;

    let turns = client.get(&format!("{path}/turns?limit=1")).await.json(200);
    assert_eq!((&turns["turns"][0]["turn"], &turns["next"]), (&json!(2), &json!(2)));
    let turns = client.get(&format!("{path}/turns?limit=1&before=2")).await.json(200);
    let first = &turns["turns"][0];
    assert_eq!((&first["turn"], &first["reason"], &turns["next"]), (&json!(1), &json!("answered"), &Value::Null));

    let reader = server.client(&[Right::Read]);
    let turn = reader.get(&format!("{path}/turns/1")).await.json(200);
    let steps = list(&turn["steps"]);
    assert_eq!(
        (steps.len(), &steps[1]["reply"], &steps[0]["usage"]["prompt_tokens"]),
        (2, &json!("Two."), &json!(100))
    );
    assert_eq!(steps[0]["ended"], steps[1]["started"]);
    assert!(steps[0]["budget"]["total"].as_u64() > Some(0), "{turn}");
    let call = &list(&turn["calls"])[0];
    assert_eq!((&call["name"], &call["state"], &call["step"]), (&json!("text.count"), &json!("finished"), &json!(1)));
    assert!(call["result"]["cost"]["wall_us"].as_u64() > Some(0), "{call}");
    let parts: Vec<(&str, &Value, bool)> = list(&turn["activities"])
        .iter()
        .map(|part| (part["kind"].as_str().expect("a kind"), &part["step"], part["took_us"].is_u64()))
        .collect();
    for expected in [("model", &json!(1), true), ("tool", &json!(1), true), ("model", &json!(2), true)] {
        assert!(parts.contains(&expected), "{expected:?} in {parts:?}");
    }

    let prompt_path = format!("{path}/turns/1/steps/2/prompt");
    assert_eq!(reader.get(&prompt_path).await.status, 403);
    let prompt = client.get(&prompt_path).await.json(200);
    assert_eq!(prompt["previous"], json!({"turn": 1, "step": 1}));
    let changes: Vec<_> = list(&prompt["blocks"]).iter().map(|block| (&block["kind"], &block["change"])).collect();
    let (tool, system, message) = (json!("tool"), json!("system"), json!("message"));
    let (same, added) = (json!("same"), json!("added"));
    assert!(changes.contains(&(&tool, &same)) && changes.contains(&(&system, &same)), "{changes:?}");
    assert_eq!(&changes[changes.len() - 3..], [(&message, &same), (&message, &added), (&message, &added)]);
    let text = list(&prompt["blocks"]).iter().find(|block| block["kind"] == "system").expect("a section");
    assert!(text["text"].as_str().is_some_and(|text| text.contains("You count words.")), "{text}");
    let (size, reused) = (prompt["size"]["tokens"].as_u64(), prompt["reused"]["tokens"].as_u64());
    assert!(Some(0) < reused && reused < size, "{prompt}");
    let page = client.get(&format!("{prompt_path}?after=1&limit=1")).await.json(200);
    assert_eq!((list(&page["blocks"]).len(), &page["blocks"][0]["index"], &page["next"]), (1, &json!(1), &json!(2)));
    let next_turn = client.get(&format!("{path}/turns/2/steps/1/prompt")).await.json(200);
    assert_eq!(next_turn["previous"], json!({"turn": 1, "step": 2}));
    let request = client.get(&format!("{path}/turns/1/steps/2/request")).await;
    assert!(request.head.contains("content-disposition: attachment"), "{}", request.head);
    assert_eq!(list(&request.json(200)["messages"]).len(), 3);

    for missing in ["turns/0", "turns/9", "turns/1/steps/9/prompt", "turns/9/steps/1/request"] {
        assert_eq!(client.get(&format!("{path}/{missing}")).await.status, 404, "{missing}");
    }
    for wrong in
        ["turns/x", "turns?limit=0", "turns?limit=51", "turns/1/steps/1/prompt?limit=0", "turns/1/steps/1/prompt?x=1"]
    {
        assert_eq!(client.get(&format!("{path}/{wrong}")).await.status, 422, "{wrong}");
    }
    server.stop().await;
}

/// I3: a token for another user or another agent sees neither turns nor prompts of a session, and cannot replay it.
#[tokio::test(flavor = "multi_thread")]
async fn i3_turns_belong_to_the_agent_and_the_user_of_the_token() {
    let test_host = TestHost::new(&["text"]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client_with_all_rights();
    let new = json!({"agent": "clerk", "prompt": "Go.", "user": "ann"});
    let created = client.post("/api/sessions", new).await.json(201);
    let session = created["session"].as_str().expect("an id");
    until_idle(&client, session).await;
    let path = format!("/api/sessions/{}", encoded(session));
    let rights = || [Right::Read, Right::Talk, Right::Approve, Right::Administer].into();
    let of_bob = server.client_of(NewToken { rights: rights(), user: Some("bob".to_owned()), ..new_token() });
    let of_other = server.client_of(NewToken { rights: rights(), agents: vec!["other".to_owned()], ..new_token() });
    for stranger in [of_bob, of_other] {
        for hidden in ["turns", "turns/1", "turns/1/steps/1/prompt", "turns/1/steps/1/request"] {
            assert_eq!(stranger.get(&format!("{path}/{hidden}")).await.status, 404, "{hidden}");
        }
        let replay = stranger.post(&format!("{path}/turns/1/replays"), json!({"plugin": "text"})).await;
        assert_eq!(replay.status, 404);
    }
    let of_ann = server.client_of(NewToken { rights: rights(), user: Some("ann".to_owned()), ..new_token() });
    assert_eq!(of_ann.get(&format!("{path}/turns/1")).await.status, 200);
    assert_eq!(of_ann.get("/api/agents/clerk/configuration").await.status, 403, "a file belongs to no user");
    server.stop().await;
}

/// D1, L17: while a call waits for an approval, its turn shows a part that has not ended.
#[tokio::test(flavor = "multi_thread")]
async fn d1_an_open_turn_shows_what_has_not_ended() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay, text_reply("Paid.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let created = client.post("/api/sessions", json!({"agent": "test", "prompt": "Pay."})).await.json(201);
    let path = format!("/api/sessions/{}/turns/1", encoded(created["session"].as_str().expect("an id")));
    let turn = super::until(async || {
        let answer = client.get(&path).await;
        let turn: Value = serde_json::from_str(&answer.body).ok()?;
        // The calls are read after the events, and may be newer.
        let is_requested = turn["events"].as_array()?.iter().any(|event| event["type"] == "approval_requested");
        (is_requested && turn["calls"][0]["state"] == "asking").then_some(turn)
    })
    .await;
    assert_eq!((&turn["ended"], &turn["reason"]), (&Value::Null, &Value::Null));
    let open: Vec<_> = list(&turn["activities"]).iter().filter(|part| part["outcome"] == "open").collect();
    assert_eq!((open.len(), &open[0]["name"], &open[0]["took_us"]), (1, &json!("approve payer.pay"), &Value::Null));
    assert!(list(&turn["events"]).iter().any(|event| event["type"] == "approval_requested"), "{turn}");
    server.stop().await;
}

/// I4: a program calls a tool without a model. The call has the grants and limits of the agent, and its session shows it.
#[tokio::test(flavor = "multi_thread")]
async fn i4_a_tool_is_called_over_http() {
    let test_host = TestHost::new(&["text", "payer"]).await;
    let config = AgentConfig { name: "clerk".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let server =
        TestServer::start(&test_host, &[&test_host.agent(config, script(&[text_reply("Not asked for.")])).await]).await;
    let client = server.client_with_all_rights();
    let calls = "/api/agents/clerk/calls";
    let call = json!({"tool": "text.count", "arguments": {"text": "one two three"}});
    assert_eq!(server.client(&[Right::Read, Right::Administer]).post(calls, call.clone()).await.status, 403);
    let created = client.post(calls, call).await.json(201);
    let session = created["session"].as_str().expect("an id");
    until_idle(&client, session).await;
    let turn = client.get(&format!("/api/sessions/{}/turns/1", encoded(session))).await.json(200);
    assert!(turn["calls"][0]["result"]["text"]["text"].as_str().is_some_and(|text| text.contains('3')), "{turn}");

    let wrong = client.post(calls, json!({"tool": "text.count", "arguments": {"text": 3}})).await.json(422);
    assert!(wrong["detail"].as_str().is_some_and(|detail| detail.contains("/text")), "{wrong}");
    assert_eq!(client.post(calls, json!({"tool": "text.none", "arguments": {}})).await.status, 404);
    assert_eq!(client.post(calls, json!({"tool": "memory_search", "arguments": {"query": "a"}})).await.status, 404);
    assert_eq!(client.post(calls, json!({"tool": "text.count", "arguments": "{}"})).await.status, 422);
    assert_eq!(client.post("/api/agents/none/calls", json!({"tool": "a", "arguments": {}})).await.status, 404);

    // A tool that needs an approval waits for one, although no model has called it.
    let pay = json!({"tool": "payer.pay", "arguments": {"to": "ann", "amount": 3}});
    let created = client.post(calls, pay).await.json(201);
    let path = format!("/api/sessions/{}", encoded(created["session"].as_str().expect("an id")));
    super::until(async || {
        let details = client.get(&path).await.json(200);
        (details["waits"][0]["cause"] == "approval").then_some(())
    })
    .await;
    server.stop().await;
}

/// P6, P5, I3: the plugins of an agent are listed with their tools and what they have used. What a plugin may do names folders of
/// the host, so it needs the right `administer`.
#[tokio::test(flavor = "multi_thread")]
async fn p6_plugins_are_shown_with_what_they_may_do() {
    let test_host = TestHost::new(&["text", "payer"]).await;
    let config = AgentConfig { name: "clerk".to_owned(), ..with_tree_grant(&test_host, "payer") };
    let replies = [call_reply(&[("text.count", json!({"text": "one"}))]), text_reply("One.")];
    let agent = test_host.agent(config, script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Count."})).await.json(201);
    until_idle(&client, created["session"].as_str().expect("an id")).await;
    let reader = server.client(&[Right::Read]);
    let found = reader.get("/api/agents/clerk/plugins").await.json(200);
    let text = list(&found["plugins"]).iter().find(|plugin| plugin["name"] == "text").expect("the plugin");
    assert_eq!(
        (&text["health"], &text["used"]["calls"], &text["used"]["failed"]),
        (&json!("in use"), &json!(1), &json!(0))
    );
    assert!(text["used"]["memory_peak"].as_u64() > Some(0) && text["used"]["wall_us"].as_u64() > Some(0), "{text}");
    assert!(list(&text["tools"]).iter().any(|tool| tool["name"] == "text.count"), "{text}");
    let authority = "/api/agents/clerk/plugins/payer/authority";
    assert_eq!(reader.get(authority).await.status, 403);
    let payer = client.get(authority).await.json(200);
    assert!(
        list(&payer["gets"]).iter().any(|line| line.as_str().is_some_and(|line| line.starts_with("reading"))),
        "{payer}"
    );
    assert_eq!(client.get("/api/agents/clerk/plugins/none/authority").await.status, 404);
    assert_eq!(client.get("/api/agents/none/plugins").await.status, 404);
    let of_bob = server.client_of(NewToken { user: Some("bob".to_owned()), ..new_token() });
    let found = of_bob.get("/api/agents/clerk/plugins").await.json(200);
    assert_eq!((&found["counted_sessions"], &found["plugins"][1]["used"]["calls"]), (&json!(0), &json!(0)));
    server.stop().await;
}

/// S6, P10: a turn is replayed with the recorded version and with another version of a plugin that the folder has used. Nothing
/// else can be replayed, and the replay needs the right `administer`.
#[tokio::test(flavor = "multi_thread")]
async fn s6_a_turn_is_replayed_with_another_version() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = directory.path();
    std::fs::create_dir(folder.join("plugins")).expect("created");
    let version = |text: &str| {
        let manifest = agent_plugins::Manifest { name: "text".into(), version: text.into(), ..Default::default() };
        let component = std::fs::read(components().join("text.wasm")).expect("the component");
        agent_plugins::with_manifest(&component, &manifest).expect("a component with a manifest")
    };
    let digest = |bytes: &[u8]| agent_plugins::digest_of(bytes).to_string();
    let (one, two) = (version("1.0.0"), version("2.0.0"));
    write_atomically(&folder.join("plugins/text.wasm"), &one);
    std::fs::write(
        folder.join("agent.toml"),
        "name = \"clerk\"\nmodel = \"offline\"\nplugin_directory = \"plugins\"\n",
    )
    .expect("written");
    let server = ServeProcess::start(folder, &["--agent", "agent.toml"]);
    let client = server.client();
    let call = json!({"tool": "text.count", "arguments": {"text": "one two"}});
    let created = client.post("/api/agents/clerk/calls", call).await.json(201);
    let session = created["session"].as_str().expect("an id");
    until_idle(&client, session).await;
    write_atomically(&folder.join("plugins/text.wasm"), &two);
    super::until(async || {
        let found = client.get("/api/agents/clerk/plugins/text/versions").await.json(200);
        (found["digest"] == digest(&two)).then_some(())
    })
    .await;
    let replays = format!("/api/sessions/{}/turns/1/replays", encoded(session));
    let now = client.post(&replays, json!({"plugin": "text"})).await.json(200);
    assert_eq!(
        (&now["digest"], &now["same"], &now["difference_count"]),
        (&json!(digest(&two)), &json!(1), &json!(0)),
        "{now}"
    );
    let before = client.post(&replays, json!({"plugin": "text", "digest": &digest(&one)[..20]})).await.json(200);
    assert_eq!((&before["digest"], &before["same"]), (&json!(digest(&one)), &json!(1)), "{before}");
    let unknown = json!({"plugin": "text", "digest": digest(b"another component")});
    assert_eq!(client.post(&replays, unknown).await.status, 404);
    assert_eq!(client.post(&replays, json!({"plugin": "none"})).await.status, 404);
    assert_eq!(client.post(&replays, json!({"plugin": "text", "digest": ""})).await.status, 422);
}
