//! Reads event streams that are interrupted again and again.

use super::client::{Client, encoded};
use serde_json::json;

/// What a reader has received of a session's first turn.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The ids of the stored events, in the order of their arrival.
    pub(crate) stored: Vec<u64>,
    /// The text of the reply, from the pieces that were streamed.
    pub(crate) text: String,
    /// Number of connections that the reader has used.
    pub(crate) connections: usize,
}

/// Begins a session, and reads its events until the turn ends. The reader disconnects after `events_per_connection` events,
/// and continues after the last event that it has received.
pub(crate) async fn read_first_turn(client: &Client, agent: &str, events_per_connection: usize) -> Received {
    let created = client.post("/api/sessions", json!({"agent": agent, "prompt": "Go."})).await.json(201);
    let session = created["session"].as_str().expect("an id");
    let path = format!("/api/sessions/{}/events", encoded(session));
    let (mut received, mut last) = (Received::default(), "0".to_owned());
    loop {
        let mut stream = client.stream(&path, &last).await;
        received.connections += 1;
        for _ in 0..events_per_connection {
            let event = stream.next().await.expect("the stream goes on");
            last.clone_from(&event.id);
            if !event.id.contains('.') {
                received.stored.push(event.id.parse().expect("a number"));
            }
            match event.name.as_str() {
                "stream_token" => received.text.push_str(event.data["text"].as_str().expect("a text")),
                "reply" => event.data["text"].as_str().expect("a text").clone_into(&mut received.text),
                "loop_end" => return received,
                _ => {}
            }
        }
    }
}

impl Received {
    /// Checks that no stored event is lost or doubled, and that the text is complete.
    pub(crate) fn check(&self, text: &str) {
        let expected: Vec<u64> = (1..=self.stored.len() as u64).collect();
        assert_eq!(self.stored, expected, "each event arrives once, in order");
        assert_eq!(self.text, text);
    }
}
