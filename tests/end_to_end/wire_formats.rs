//! Whole conversations in each wire format, with tools, images, thinking, evictions and fallbacks (M1, M3, P4, L27).
//! The requests of each conversation are rebuilt from the store (D1).

mod documented;
mod requests;
mod server;

use crate::support::{TestHost, events, run_turn, with_tree_grant};
use agent_core::event::EventKind;
use agent_core::run::LoopConfig;
use agent_core::text_dialect::ToolDialect;
use agent_models::{Protocol, Provider, RetryPolicy};
use agent_runtime::replay::{SentRequestError, sent_request};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use requests::{check_pairs, check_prefix, messages, result_count};
use serde_json::json;
use server::{FormatServer, Received, ScriptedReply, model_name};
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

/// Number of turns in a long conversation.
const TURNS: usize = 8;
/// Number of model calls in each turn of a long conversation.
const STEPS: usize = 5;

fn expect_finished(result: TurnResult) -> String {
    match result {
        TurnResult::Finished(output) => output.data.as_str().expect("a text").to_owned(),
        other => panic!("the turn did not finish: {other:?}"),
    }
}

fn policy(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::ChatCompletions | Protocol::Responses => "mask-openai",
        Protocol::Anthropic => "mask-anthropic",
        Protocol::Gemini => "mask-gemini",
    }
}

fn model(server: &FormatServer, protocol: Protocol, window: Option<u32>) -> Arc<dyn Provider> {
    let name = format!("{protocol}/{}", model_name(protocol));
    server.providers(window).model(&name, Path::new(".")).expect("a model")
}

/// Opens a session of an agent with tools, images and the media policies of all providers.
async fn open(test_host: &TestHost, config: AgentConfig, models: Models) -> Session {
    let agent = Agent::new(config, models, test_host.generation().await).unwrap();
    Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

async fn new_host() -> TestHost {
    let plugins = ["probe", "image", "mask-openai", "mask-anthropic", "mask-gemini", "stateful-builder"];
    let test_host = TestHost::new(&plugins).await;
    let mut picture = Cursor::new(Vec::new());
    let pixels = image::RgbImage::from_fn(400, 300, |x, y| image::Rgb([x as u8, y as u8, 7]));
    pixels.write_to(&mut picture, image::ImageFormat::Png).unwrap();
    std::fs::write(test_host.tree().join("plan.png"), picture.into_inner()).unwrap();
    test_host
}

fn config(test_host: &TestHost) -> AgentConfig {
    // If all tools are offered, the tools are the same in all turns.
    let mut config = AgentConfig { offered_tools: 100, ..with_tree_grant(test_host, "image") };
    for protocol in Protocol::ALL {
        config.media_policies.insert(protocol.to_string(), policy(protocol).to_owned());
    }
    config
}

fn is_summary_request(request: &Received) -> bool {
    request.text().contains("Write only the record")
}

/// The reply to a request of a long conversation. The last reply of each turn is a text. Every third reply contains
/// thinking, and some replies contain several calls or open an image.
fn reply_of_long_conversation(request: &Received, number: usize) -> ScriptedReply {
    if is_summary_request(request) {
        return ScriptedReply { text: "The user counted turns.".to_owned(), ..ScriptedReply::default() };
    }
    let echo = |name: &str| ("probe_echo", json!({"text": format!("{name} {number} {}", "and so on ".repeat(150))}));
    let calls = match number % STEPS {
        1 => vec![("image_open", json!({"path": "plan.png"}))],
        2 => vec![echo("first"), echo("second")],
        last if last == STEPS - 1 => Vec::new(),
        _ => vec![echo("only")],
    };
    ScriptedReply {
        thinking: if number.is_multiple_of(3) { "Let me see." } else { "" },
        signature: signature(request.protocol, number),
        text: format!("Reply {number}."),
        calls,
        error: None,
    }
}

fn signature(protocol: Protocol, number: usize) -> String {
    format!("c2lnbmF0dXJl-{protocol}-{number}-")
}

/// Returns the number of requests to which the server replied. Requests for summaries are not counted.
fn reply_count(received: &[Received]) -> usize {
    received.iter().filter(|request| !is_summary_request(request)).count()
}

/// M1, P4, L27, D1: In each wire format, a conversation of 40 steps with tools, images, thinking and evictions sends
/// complete pairs of calls and results, keeps the beginning of the prompt, sends back what the provider needs, and can
/// be rebuilt from the store byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn m1_long_conversations_are_complete_in_each_format() {
    let test_host = new_host().await;
    for protocol in Protocol::ALL {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let server = FormatServer::start(move |_, request| {
            let is_summary = is_summary_request(request);
            let number = count.fetch_add(usize::from(!is_summary), std::sync::atomic::Ordering::SeqCst);
            reply_of_long_conversation(request, number)
        })
        .await;
        let models = Models::from(model(&server, protocol, Some(16_000)));
        let mut session = open(&test_host, config(&test_host), models).await;
        for turn in 0..TURNS {
            let answer = expect_finished(run_turn(&mut session, &format!("This is turn {turn}.")).await);
            assert_eq!(answer, format!("Reply {}.", (turn + 1) * STEPS - 1), "{protocol}");
        }
        let received = server.received();
        assert_eq!(reply_count(&received), TURNS * STEPS, "{protocol}");
        check_conversation(&test_host, &session, &received).await;
        check_rebuilt_requests(&test_host, &session, &received).await;
        session.close().await.unwrap();
    }
}

async fn check_conversation(test_host: &TestHost, session: &Session, received: &[Received]) {
    let protocol = received[0].protocol;
    let events = events(test_host, session).await;
    let evictions = events.iter().filter(|event| matches!(event.kind, EventKind::Evicted { .. })).count();
    let failures = events.iter().filter(|event| matches!(event.kind, EventKind::ToolResultError { .. })).count();
    assert!(evictions > 0 && failures == 0, "{protocol}: {evictions} evictions, {failures} failures");
    received.iter().for_each(check_pairs);
    let requests: Vec<&Received> = received.iter().filter(|request| !is_summary_request(request)).collect();
    let (mut shorter, mut masked) = (0, 0);
    for (number, pair) in requests.windows(2).enumerate() {
        let (earlier, later) = (pair[0], pair[1]);
        if messages(later).len() < messages(earlier).len() {
            shorter += 1;
            continue;
        }
        masked += check_prefix(earlier, later);
        let new_results = [1, 1, 2, 1, 0][number % STEPS];
        assert_eq!(result_count(later), result_count(earlier) + new_results, "{protocol}, request {number}");
        // Chat Completions has no signatures.
        if number.is_multiple_of(3) && protocol != Protocol::ChatCompletions && number % STEPS != STEPS - 1 {
            assert!(later.text().contains(&signature(protocol, number)), "{protocol}, request {number}");
        }
    }
    assert_eq!(shorter, evictions, "{protocol}: only an eviction shortens the prompt");
    assert!(masked > 0, "{protocol}: seen images are masked");
}

/// Checks that the request of each model call can be rebuilt from the store exactly as the server received it.
async fn check_rebuilt_requests(test_host: &TestHost, session: &Session, received: &[Received]) {
    let subject = session.subject();
    let mut requests = received.iter().filter(|request| !is_summary_request(request));
    for turn in 1..=session.state().turns {
        for step in 1.. {
            let rebuilt = match sent_request(&*test_host.store, subject, turn, Some(step)).await {
                Ok(rebuilt) => rebuilt,
                Err(SentRequestError::NoRecord { .. }) => break,
                Err(error) => panic!("request {turn}.{step}: {error}"),
            };
            let received = requests.next().expect("each recorded call was received");
            let body = rebuilt.body.expect("the model was called over HTTP");
            assert_eq!(String::from_utf8_lossy(&body.bytes), received.text(), "request {turn}.{step}");
            assert!(body.is_exact, "request {turn}.{step}");
        }
    }
    assert!(requests.next().is_none(), "each received request was recorded");
}

/// D1, L2, L4, L20: A request is rebuilt exactly if it contains sections of a context builder, the notice of the last
/// call, or tools and calls as text.
#[tokio::test(flavor = "multi_thread")]
async fn d1_requests_with_additional_text_are_rebuilt() {
    let test_host = new_host().await;
    for dialect in [ToolDialect::Native, ToolDialect::Text] {
        let server = FormatServer::start(move |number, request| {
            let is_last =
                request.text().contains(&serde_json::to_string(agent_core::prompt::LAST_CALL).unwrap()[1..40]);
            let echo = json!({"text": format!("step {number}")});
            match dialect {
                _ if is_last => ScriptedReply { text: "The end.".to_owned(), ..ScriptedReply::default() },
                ToolDialect::Native => ScriptedReply { calls: vec![("probe_echo", echo)], ..ScriptedReply::default() },
                ToolDialect::Text => {
                    let call = json!({"server_name": "local", "tool_name": "probe.echo", "arguments": echo});
                    ScriptedReply { text: format!("<tool>{call}</tool>"), ..ScriptedReply::default() }
                }
            }
        })
        .await;
        let config = AgentConfig {
            context_builder: Some("stateful-builder".to_owned()),
            tool_dialect: dialect,
            bounds: LoopConfig { max_interactions: 2, ..LoopConfig::default() },
            ..config(&test_host)
        };
        let models = Models::from(model(&server, Protocol::ChatCompletions, None));
        let mut session = open(&test_host, config, models).await;
        for prompt in ["Count.", "Count again."] {
            assert_eq!(expect_finished(run_turn(&mut session, prompt).await), "The end.");
        }
        let received = server.received();
        assert_eq!(received.len(), 6);
        if dialect == ToolDialect::Text {
            assert!(received.iter().all(|request| request.json().get("tools").is_none()));
        }
        check_rebuilt_requests(&test_host, &session, &received).await;
    }
}

/// M3, D1: In the middle of a turn, a provider can be replaced by a provider with any other wire format. The new
/// provider receives complete pairs of calls and results, and none of the data that belongs to the old provider.
#[tokio::test(flavor = "multi_thread")]
async fn m3_a_turn_continues_with_a_provider_of_any_other_format() {
    let test_host = new_host().await;
    for first in Protocol::ALL {
        for second in Protocol::ALL.into_iter().filter(|second| *second != first) {
            let server = FormatServer::start(move |number, request| {
                let reply = reply_of_long_conversation(request, number);
                match number {
                    3 => ScriptedReply { error: Some(404), ..ScriptedReply::default() },
                    4 => ScriptedReply { calls: vec![("probe_echo", json!({"text": "four"}))], ..reply },
                    5 | 6 => ScriptedReply { calls: Vec::new(), thinking: "Done.", ..reply },
                    _ => ScriptedReply { thinking: "Let me see.", ..reply },
                }
            })
            .await;
            let mut models = Models::new(model(&server, first, None), [model(&server, second, None)]);
            models.retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
            let mut session = open(&test_host, config(&test_host), models).await;
            assert_eq!(expect_finished(run_turn(&mut session, "Begin.").await), "Reply 5.");
            assert_eq!(expect_finished(run_turn(&mut session, "Go on.").await), "Reply 6.");
            let received = server.received();
            let expected = [first, first, first, first, second, second, first];
            assert_eq!(received.iter().map(|request| request.protocol).collect::<Vec<_>>(), expected);
            received.iter().for_each(check_pairs);
            assert_eq!(
                received.iter().map(result_count).collect::<Vec<_>>(),
                [0, 1, 2, 4, 4, 5, 5],
                "{first}, {second}"
            );
            for request in &received {
                let other = if request.protocol == first { second } else { first };
                assert!(!request.text().contains(&format!("c2lnbmF0dXJl-{other}-")), "{}", request.text());
            }
            // The request contains the texts of the other provider's replies.
            assert!(received[4].text().contains("Reply 0.") && received[6].text().contains("Reply 5."));
            // The fourth request failed, and the fifth request is the next attempt of the same step.
            let answered = [&received[..3], &received[4..]].concat();
            check_rebuilt_requests(&test_host, &session, &answered).await;
        }
    }
}
