//! Responses (I3): ids, continuation, approvals, cancellation and deletion.

use super::{call_reply, encoded, events, session_of};
use crate::serve::{TestServer, clerk, new_token};
use crate::support::{TestHost, script, text_reply, with_tree_grant};
use agent_serve::{NewToken, Right};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";

fn request(input: impl Into<Value>) -> Value {
    json!({"model": "clerk", "input": input.into()})
}

/// I3: a response is continued once, also after a restart of the server. A response that is not the last one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn i3_a_response_is_continued_after_a_restart() {
    let test_host = TestHost::new(&[]).await;
    let second = json!({"text": "Two.", "expect": {"messages": 3}});
    let agent = clerk(&test_host, &[text_reply("One."), second, text_reply("Three.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let answer = client.post(RESPONSES, request("First?")).await;
    let (first, session) = (answer.json(200), session_of(&answer));
    server.stop().await;

    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client_with_all_rights();
    let id = first["id"].as_str().unwrap();
    let read = client.get(&format!("{RESPONSES}/{id}")).await.json(200);
    assert_eq!(
        (&read["output"], &read["usage"], &read["status"]),
        (&first["output"], &first["usage"], &json!("completed"))
    );
    let next = |previous: &Value| {
        let mut request = request("Next?");
        request["previous_response_id"] = previous.clone();
        request
    };
    let answer = client.post(RESPONSES, next(&first["id"])).await;
    let second = answer.json(200);
    assert_eq!((second["output"][0]["content"][0]["text"].as_str(), session_of(&answer)), (Some("Two."), session));
    let refused = client.post(RESPONSES, next(&first["id"])).await.json(409);
    assert_eq!(refused["error"]["code"], "response_superseded");
    let conflict = client.delete(&format!("{RESPONSES}/{id}")).await.json(409);
    assert!(conflict["error"]["message"].as_str().unwrap().contains("more turns"), "{conflict}");
    let mut unstored = next(&second["id"]);
    unstored["store"] = json!(false);
    let unstored = client.post(RESPONSES, unstored).await.json(200);
    assert_eq!(unstored["store"], false);
    assert_eq!(client.get(&format!("{RESPONSES}/{}", unstored["id"].as_str().unwrap())).await.status, 404);
    server.stop().await;
}

/// I3, L17: a request for an approval is an item. Only a token with the right `approve` answers it, exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn i3_l17_an_approval_is_answered_by_an_item() {
    for approve in [true, false] {
        let test_host = TestHost::new(&["payer"]).await;
        let pay = call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))]);
        let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&[pay, text_reply("Done.")])).await;
        let server = TestServer::start(&test_host, &[&agent]).await;
        let client = server.client(&[Right::Read, Right::Talk]);
        let approver = server.client(&[Right::Read, Right::Talk, Right::Approve]);
        let waiting = client.post(RESPONSES, json!({"model": "test", "input": "Pay."})).await.json(200);
        assert_eq!(
            (&waiting["status"], &waiting["incomplete_details"]["reason"]),
            (&json!("incomplete"), &json!("approval_required"))
        );
        let asked = waiting["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_approval_request");
        let asked = asked.unwrap_or_else(|| panic!("{waiting}"));
        assert_eq!((&asked["name"], &asked["arguments"]), (&json!("payer.pay"), &json!(r#"{"to":"ann","amount":3}"#)));
        let read = client.get(&format!("{RESPONSES}/{}", waiting["id"].as_str().unwrap())).await.json(200);
        assert_eq!((&read["output"], &read["status"]), (&waiting["output"], &waiting["status"]));
        let decide = |id: &Value, input: Value| json!({"model": "test", "previous_response_id": id, "input": input});
        let decision =
            json!([{"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve}]);
        let forged = json!([{"type": "mcp_approval_response", "approval_request_id": "mcpr_call_9", "approve": true}]);
        let words = client.post(RESPONSES, decide(&waiting["id"], json!("Yes, approved."))).await;
        assert_eq!(words.json(409)["error"]["code"], "turn_waits", "words are not a decision");
        let powerless = client.post(RESPONSES, decide(&waiting["id"], decision.clone())).await;
        assert_eq!(powerless.json(403)["error"]["type"], "permission_error");
        assert_eq!(approver.post(RESPONSES, decide(&waiting["id"], forged)).await.status, 409);
        assert!(!test_host.tree().join("ledger.txt").exists());
        let done = approver.post(RESPONSES, decide(&waiting["id"], decision.clone())).await.json(200);
        assert_eq!(done["status"], "completed", "{done}");
        assert!(done["output"].to_string().contains("Done."), "{done}");
        assert_eq!(test_host.tree().join("ledger.txt").exists(), approve);
        let again = approver.post(RESPONSES, decide(&waiting["id"], decision)).await.json(409);
        assert_eq!(again["error"]["code"], "response_superseded");
        let read = client.get(&format!("{RESPONSES}/{}", done["id"].as_str().unwrap())).await.json(200);
        assert_eq!(read["output"], done["output"]);
        server.stop().await;
    }
}

/// I3: the agent's own calls are items of a server that the API calls itself, also in a stream.
#[tokio::test(flavor = "multi_thread")]
async fn i3_calls_of_the_agent_are_items() {
    let test_host = TestHost::new(&["probe"]).await;
    let calls = json!({
        "text": "Let me see.",
        "calls": [
            {"name": "probe.echo", "arguments": {"text": "a"}},
            {"name": "nothing.here", "arguments": {}},
        ],
    });
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[calls, text_reply("Done.")]).await]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let mut body = request("Go.");
    body["stream"] = json!(true);
    let streamed = events(&client.post(RESPONSES, body).await);
    let numbers: Vec<_> = streamed.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..streamed.len() as u64).collect::<Vec<_>>());
    let response = &streamed.last().unwrap()["response"];
    let kinds: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "mcp_call", "message"], "{response}");
    let [text, call, last] = &response["output"].as_array().unwrap()[..] else { unreachable!() };
    assert_eq!((&text["phase"], &last["phase"]), (&json!("commentary"), &json!("final_answer")));
    assert_eq!(
        (&call["name"], &call["status"], &call["arguments"]),
        (&json!("probe.echo"), &json!("completed"), &json!(r#"{"text":"a"}"#))
    );
    let path = format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
    assert_eq!(client.get(&path).await.json(200)["output"], response["output"]);
    let again = events(&client.get(&format!("{path}?stream=true")).await);
    assert_eq!(again.last().unwrap()["response"]["output"], response["output"], "the response is streamed again");
    server.stop().await;
}

/// I3, L29: a response in the background is read while it works, cancelled and deleted.
#[tokio::test(flavor = "multi_thread")]
async fn i3_l29_a_response_in_the_background_is_cancelled_and_deleted() {
    let test_host = TestHost::new(&[]).await;
    let slow = json!({"chunks": vec!["word "; 600], "delay_ms": 100});
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[slow]).await]).await;
    let client = server.client_with_all_rights();
    let mut body = request("Go.");
    body["background"] = json!(true);
    let begun = client.post(RESPONSES, body).await.json(200);
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().unwrap());
    assert_eq!(
        (&begun["status"], &client.get(&path).await.json(200)["status"]),
        (&json!("in_progress"), &json!("in_progress"))
    );
    let following = {
        let (client, path) = (client.clone(), format!("{path}?stream=true"));
        tokio::spawn(async move { events(&client.get(&path).await) })
    };
    assert_eq!(client.get(&format!("{path}?stream=true&starting_after=3")).await.status, 400);
    let mut next = request("Next?");
    next["previous_response_id"] = begun["id"].clone();
    assert_eq!(client.post(RESPONSES, next).await.json(409)["error"]["code"], "response_in_progress");
    assert_eq!(client.delete(&path).await.status, 409, "the turn is open");
    let talker = server.client(&[Right::Read]);
    assert_eq!(talker.post(&format!("{path}/cancel"), json!({})).await.status, 403);
    assert_eq!(client.post(&format!("{path}/cancel"), json!({})).await.json(200)["status"], "cancelled");
    assert_eq!(client.post(&format!("{path}/cancel"), json!({})).await.json(200)["status"], "cancelled");
    let followed = following.await.expect("the stream ends");
    assert_eq!(followed[0]["type"], "response.created");
    let end = followed.iter().find(|event| event["type"] == "response.failed");
    assert_eq!(end.unwrap_or_else(|| panic!("{followed:?}"))["response"]["status"], "cancelled");
    assert_eq!(server.client(&[Right::Read, Right::Talk]).delete(&path).await.status, 403);
    assert_eq!(client.delete(&path).await.json(200)["deleted"], true);
    assert_eq!(client.get(&path).await.status, 404);
    server.stop().await;
}

/// I3: the ids of another user's and another agent's responses, and forged ids, are not found.
#[tokio::test(flavor = "multi_thread")]
async fn i3_foreign_and_forged_ids_are_not_found() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("Secret."), text_reply("More.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let rights = || [Right::Read, Right::Talk, Right::Administer].into();
    let of_user = |user: &str| NewToken { user: Some(user.to_owned()), rights: rights(), ..new_token() };
    let (ann, bob) = (server.client_of(of_user("ann")), server.client_of(of_user("bob")));
    let other = server.client_of(NewToken { agents: vec!["other".to_owned()], rights: rights(), ..new_token() });
    let answer = ann.post(RESPONSES, request("Tell me.")).await;
    let (own, session) = (answer.json(200), session_of(&answer));
    let id = own["id"].as_str().unwrap().to_owned();
    let (turn, first) = ("1", "1");
    let encode = |text: String| {
        use base64::Engine;
        format!("resp_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text))
    };
    assert_eq!(encode(format!("{turn}.{first}.{session}")), id);
    let forged =
        [encode(format!("2.1.{session}")), encode(format!("1.999.{session}")), encode("1.1.clerk/x".to_owned())];
    for (client, id) in [(&bob, &id), (&other, &id)].into_iter().chain(forged.iter().map(|id| (&ann, id))) {
        let path = format!("{RESPONSES}/{id}");
        for answer in [
            client.get(&path).await,
            client.delete(&path).await,
            client.post(&format!("{path}/cancel"), json!({})).await,
        ] {
            assert_eq!(answer.json(404)["error"]["code"], "response_not_found");
            assert!(!answer.body.contains("Secret"), "{}", answer.body);
        }
        let mut next = request("And?");
        next["previous_response_id"] = json!(id);
        assert_eq!(client.post(RESPONSES, next).await.status, 404);
    }
    for client in [&bob, &other] {
        let answer = super::post_in(client, &session, RESPONSES, request("And?")).await;
        assert_eq!(answer.status, 404, "another token's session is not found by its header");
    }
    let messages = ann.get(&format!("/api/sessions/{}/messages", encoded(&session))).await.json(200);
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2, "nobody has added a message");
    server.stop().await;
}
