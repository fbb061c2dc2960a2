//! Turn outputs that contain all messages of the session (L13).

use crate::support::{TestHost, run_turn, text_reply};
use agent_core::change::OutboxEffect;
use agent_core::cloud_event::CloudEvent;
use agent_core::message::Message;
use agent_core::run::Output;
use agent_runtime::{AgentConfig, Emission, Session, SummaryWriter, TurnResult};
use agent_store::{Outbox, OutboxFilter};
use serde_json::json;

/// Creates a text of about 2,500 tokens that begins with the given word.
fn long_text(word: &str) -> String {
    format!("{word} {}", "and so on ".repeat(1_000))
}

async fn run_for_output(session: &mut Session, prompt: &str) -> Output {
    match run_turn(session, prompt).await {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// Returns the first word and the seen count of each message in the output.
fn first_words(output: &Output) -> Vec<String> {
    let messages = output.messages.as_deref().expect("the output contains the messages");
    let word = |message: &Message| message.plain_text().split(' ').next().unwrap_or_default().to_owned();
    messages.iter().map(|message| format!("{} {}", word(message), message.seen_count)).collect()
}

async fn last_event(test_host: &TestHost, session: &Session) -> CloudEvent {
    let items = test_host.store.outbox(Some(session.subject()), OutboxFilter::All, 0, 99).await.unwrap();
    let mut events = items.into_iter().filter_map(|item| match item.item.effect {
        OutboxEffect::Event(event) => Some(event.into_inner()),
        _ => None,
    });
    events.next_back().expect("an event")
}

/// L13, L27, D5: The output contains all messages of the session in order. Messages of earlier turns and evicted
/// messages are included, but messages of undone turns are not. The event that reports the end of the turn contains the
/// same output.
#[tokio::test(flavor = "multi_thread")]
async fn l13_the_output_contains_the_whole_conversation() {
    let test_host = TestHost::new(&[]).await;
    let replies = [text_reply("Noted."), text_reply("Seen."), text_reply("Gone."), text_reply("Known.")];
    let mut config = AgentConfig {
        offered_tools: 100,
        include_history: true,
        summary: SummaryWriter::Extract,
        ..AgentConfig::new("test")
    };
    config.outbox.announced.completions = Emission::Emitted;
    let mut session = test_host.session(config, json!({"window": 8_000, "replies": replies})).await;
    assert_eq!(first_words(&run_for_output(&mut session, &long_text("walrus")).await), ["walrus 1", "Noted. 1"]);
    let second = run_for_output(&mut session, &long_text("otter")).await;
    assert_eq!(session.state().view.len(), 2, "the first turn is evicted from the prompt");
    assert_eq!(first_words(&second), ["walrus 1", "Noted. 1", "otter 1", "Seen. 1"]);
    assert_eq!(last_event(&test_host, &session).await.data, Some(json!(second)), "the event contains the same output");
    run_for_output(&mut session, "Forget this.").await;
    session.undo().await.unwrap();
    let last = run_for_output(&mut session, "And now?").await;
    assert_eq!(first_words(&last), ["walrus 1", "Noted. 1", "otter 3", "Seen. 3", "And 1", "Known. 1"]);
    assert_eq!(last_event(&test_host, &session).await.data, Some(json!(last)));
}
