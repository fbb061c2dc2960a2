//! Outputs that carry the conversation (L13).

use crate::support::{House, saying, turn};
use agent_core::change::OutboxEffect;
use agent_core::cloud_event::CloudEvent;
use agent_core::message::Message;
use agent_core::run::Output;
use agent_runtime::{AgentConfig, Emission, Session, SummaryWriter, TurnResult};
use agent_store::{Outbox, OutboxFilter};
use serde_json::json;

/// About 2,500 tokens with a word of their own.
fn long(word: &str) -> String {
    format!("{word} {}", "and so on ".repeat(1_000))
}

async fn output(session: &mut Session, prompt: &str) -> Output {
    match turn(session, prompt).await {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// The first word of each message, with its seen count.
fn words(output: &Output) -> Vec<String> {
    let messages = output.messages.as_deref().expect("the output carries the messages");
    let word = |message: &Message| message.plain_text().split(' ').next().unwrap_or_default().to_owned();
    messages.iter().map(|message| format!("{} {}", word(message), message.seen_count)).collect()
}

async fn last_event(house: &House, session: &Session) -> CloudEvent {
    let items = house.store.outbox(Some(session.subject()), OutboxFilter::All, 0, 99).await.unwrap();
    let mut events = items.into_iter().filter_map(|item| match item.item.effect {
        OutboxEffect::Event(event) => Some(event.into_inner()),
        _ => None,
    });
    events.next_back().expect("an event")
}

/// L13, L27, D5: all messages of the session, those of earlier turns and those that have left the prompt, too, in order; not
/// those that were taken back. The event that says how the turn has ended carries the same.
#[tokio::test(flavor = "multi_thread")]
async fn l13_the_output_carries_the_whole_conversation() {
    let house = House::new(&[]).await;
    let replies = [saying("Noted."), saying("Seen."), saying("Gone."), saying("Known.")];
    let mut config = AgentConfig {
        offered_tools: 100,
        include_history: true,
        summary: SummaryWriter::Extract,
        ..AgentConfig::new("test")
    };
    config.outbox.announced.completions = Emission::Emitted;
    let mut session = house.session(config, json!({"window": 8_000, "replies": replies})).await;
    assert_eq!(words(&output(&mut session, &long("walrus")).await), ["walrus 1", "Noted. 1"]);
    let second = output(&mut session, &long("otter")).await;
    assert_eq!(session.state().view.len(), 2, "the first turn has left the prompt");
    assert_eq!(words(&second), ["walrus 1", "Noted. 1", "otter 1", "Seen. 1"]);
    assert_eq!(last_event(&house, &session).await.data, Some(json!(second)), "before its commit it is the same");
    output(&mut session, "Forget this.").await;
    session.undo().await.unwrap();
    let last = output(&mut session, "And now?").await;
    assert_eq!(words(&last), ["walrus 1", "Noted. 1", "otter 3", "Seen. 3", "And 1", "Known. 1"]);
    assert_eq!(last_event(&house, &session).await.data, Some(json!(last)));
}
