//! Readers that come while a turn runs (L30).

use crate::support::{House, script};
use agent_core::event::{Event, EventKind};
use agent_core::message::TurnInput;
use agent_runtime::{AgentConfig, SoFar, Watched};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The text that is streamed from here on, until the reply is complete.
async fn rest(watched: &mut Watched) -> String {
    let mut text = String::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watched.events.recv()).await;
        match event.expect("the reply goes on").expect("no event is missed").kind {
            EventKind::StreamToken { text: token } => text.push_str(&token),
            EventKind::StreamComplete { .. } => return text,
            _ => {}
        }
    }
}

/// L30, L21: who comes in the middle of a reply gets what is written so far, thinking too, and from there on every piece once.
#[tokio::test(flavor = "multi_thread")]
async fn l30_a_second_reader_in_the_middle_of_a_reply() {
    let house = House::new(&[]).await;
    let words = ["The ", "harbour ", "is ", "open."];
    let reply = json!({"thinking": "Hm.", "chunks": words, "delay_ms": 150});
    let mut session = house.session(AgentConfig::new("test"), script(&[reply])).await;
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
    let SoFar::Reply(reply) = second.so_far.clone() else { panic!("{:?}", second.so_far) };
    assert!(reply.text.starts_with("The harbour"), "{reply:?}");
    assert_eq!((reply.thinking.as_str(), reply.turn), ("Hm.", 1));
    let place = last.as_ref().map(|event| (event.sequence, event.provisional.unwrap()));
    assert!(Some((reply.place.sequence, reply.place.provisional)) >= place, "{reply:?} {last:?}");
    let (seen_first, seen_second) = tokio::join!(rest(&mut first), rest(&mut second));
    assert_eq!(format!("{}{seen_second}", reply.text), words.concat());
    assert_eq!(format!("The harbour {seen_first}"), words.concat());
    let (session, result) = running.await.unwrap();
    result.unwrap();
    drop(session);
    assert_eq!(watch.subscribe().so_far, SoFar::Nothing, "what is complete stands in the store");
}
