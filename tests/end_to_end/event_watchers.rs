//! Watchers that subscribe while a turn runs (L30).

use crate::support::{TestHost, script};
use agent_core::event::{Event, EventKind};
use agent_core::message::TurnInput;
use agent_runtime::{AgentConfig, MissedReply, Subscription};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Returns the text that the watcher receives until the reply is complete.
async fn rest_of_reply(watched: &mut Subscription) -> String {
    let mut text = String::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watched.events.recv()).await;
        match event.expect("the reply continues").expect("no event is missed").kind {
            EventKind::StreamToken { text: token } => text.push_str(&token),
            EventKind::StreamComplete { .. } => return text,
            _ => {}
        }
    }
}

/// L30, L21: If a watcher subscribes while a reply is streamed, it receives the text and thinking that were already
/// streamed, and then every further chunk once.
#[tokio::test(flavor = "multi_thread")]
async fn l30_a_watcher_can_subscribe_during_a_reply() {
    let test_host = TestHost::new(&[]).await;
    let chunks = ["The ", "harbour ", "is ", "open."];
    let reply = json!({"thinking": "Hm.", "chunks": chunks, "delay_ms": 150});
    let mut session = test_host.session(AgentConfig::new("test"), script(&[reply])).await;
    let watch = session.watch();
    let mut first = watch.subscribe();
    let running = tokio::spawn(async move {
        let input = Some(TurnInput::Text("Is it open?".to_owned()));
        let result = session.run(input, CancellationToken::new()).await;
        (session, result)
    });
    let mut last: Option<Event> = None;
    while !matches!(&last, Some(Event { kind: EventKind::StreamToken { text }, .. }) if text.starts_with("harbour")) {
        last = Some(tokio::time::timeout(Duration::from_secs(60), first.events.recv()).await.unwrap().unwrap());
    }
    let mut second = watch.clone().subscribe();
    let MissedReply::Reply(reply) = second.missed.clone() else { panic!("{:?}", second.missed) };
    assert!(reply.text.starts_with("The harbour"), "{reply:?}");
    assert_eq!((reply.thinking.as_str(), reply.turn), ("Hm.", 1));
    let position = last.as_ref().map(|event| (event.sequence, event.provisional.unwrap()));
    assert!(Some((reply.place.sequence, reply.place.provisional)) >= position, "{reply:?} {last:?}");
    let (seen_first, seen_second) = tokio::join!(rest_of_reply(&mut first), rest_of_reply(&mut second));
    assert_eq!(format!("{}{seen_second}", reply.text), chunks.concat());
    assert_eq!(format!("The harbour {seen_first}"), chunks.concat());
    let (session, result) = running.await.unwrap();
    result.unwrap();
    drop(session);
    assert_eq!(watch.subscribe().missed, MissedReply::Nothing, "complete messages are in the store");
}
