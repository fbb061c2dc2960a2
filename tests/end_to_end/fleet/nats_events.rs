//! Events over NATS whose sessions are busy, and events that were delivered often (I6), with real servers.

use super::Fleet;
use super::nats::{agents, begin, messages_in, publish, until, until_ended};
use crate::nats_server::Cluster;
use agent_store::{OpenMode, SessionFilter, SessionIndex, SessionLog, SessionMeta, SessionSummary};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{AckKind, Context};
use futures::StreamExt;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::HashMap;

async fn create_streams(nats: &Context) {
    for (name, subjects) in [("SHOP", "shop.>"), ("OUT", "out.>")] {
        let config = Config { name: name.to_owned(), subjects: vec![subjects.to_owned()], ..Config::default() };
        nats.create_stream(config).await.expect("created");
    }
}

async fn until_confirmed(nats: &Context, consumer: &str) {
    until("all events are confirmed", async || {
        let stream = nats.get_stream("SHOP").await.expect("the stream");
        let consumer = stream.consumer_info(consumer).await.expect("the consumer");
        consumer.num_pending == 0 && consumer.num_ack_pending == 0
    })
    .await;
}

async fn sessions_of(fleet: &Fleet, agent: &str) -> Vec<SessionSummary> {
    let filter = SessionFilter { agent: Some(agent.to_owned()), ..SessionFilter::default() };
    fleet.store().await.sessions(filter, 100).await.expect("listed")
}

/// I6: many answers to a session that another program keeps open do not keep the other events of their table waiting, and none of
/// them becomes a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn i6_answers_to_a_busy_session_do_not_stop_other_events() {
    let Some(fleet) = Fleet::with_nats(&agents(), 1, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    create_streams(&nats).await;
    let server = fleet.start("serve", 0);
    let session = begin(&server.client(), "shipper").await;
    until("the request is published", async || messages_in(&nats, "OUT").await == Some(1)).await;
    let request = nats.get_stream("OUT").await.expect("the stream").get_raw_message(1).await.expect("a message");
    let request: Value = serde_json::from_slice(&request.payload).expect("JSON");
    // This process keeps the session open, as a terminal does.
    let (store, mut lease) = (fleet.store().await, None);
    until("the session is closed by the server", async || {
        lease = store.open(&session, OpenMode::Existing, SessionMeta::default()).await.ok();
        lease.is_some()
    })
    .await;

    for number in 0..20 {
        let answer = json!({"specversion": "1.0", "id": number.to_string(), "source": "/harbour", "parentid": request["id"],
            "type": "com.example.shipped", "subject": session, "data": {"ship": "Anna"}});
        publish(&nats, "shop.answers", &[], &answer.to_string()).await;
    }
    publish(&nats, "shop.answers", &[], "{\"order\": 8}").await;
    until("the other event begins a session", async || sessions_of(&fleet, "shipper").await.len() == 2).await;
    store.release(lease.expect("the session is open").lease).await.expect("released");
    until_ended(&server.client(), &session, 1).await;
    until_confirmed(&nats, "tests=shipper=answers").await;
    let (_, letters) = fleet.dead_letters(&["list", "--json"]);
    assert_eq!(letters.trim(), "", "no answer became a dead letter");
}

/// I6: an event that was delivered too often becomes a dead letter only if its session does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn i6_an_event_that_has_begun_its_session_never_becomes_a_dead_letter() {
    let Some(fleet) = Fleet::with_nats(&agents(), 1, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    create_streams(&nats).await;
    let event = |id: &str| {
        json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "shop.order", "data": {"order": id}})
            .to_string()
    };
    let server = fleet.start("serve", 0);
    publish(&nats, "shop.orders.new", &[], &event("known")).await;
    until("the event begins a session", async || sessions_of(&fleet, "clerk").await.len() == 1).await;
    until_confirmed(&nats, "tests=clerk=orders").await;
    server.signal(Signal::TERM);
    assert!(server.wait());

    // Both events are delivered six times, as if processes had stopped before they could confirm them.
    for id in ["known", "unknown"] {
        publish(&nats, "shop.orders.new", &[], &event(id)).await;
    }
    let stream = nats.get_stream("SHOP").await.expect("the stream");
    let consumer: PullConsumer = stream.get_consumer("tests=clerk=orders").await.expect("the consumer");
    let mut deliveries = HashMap::new();
    until("both events were delivered six times", async || {
        // Both are taken before one of them is returned, because a returned message comes before all others.
        let messages = consumer.fetch().max_messages(2).messages().await.expect("fetched");
        for message in messages.collect::<Vec<_>>().await {
            let message = message.expect("a message");
            let info = message.info().expect("a message of a consumer");
            deliveries.insert(info.stream_sequence, info.delivered);
            message.ack_with(AckKind::Nak(None)).await.expect("answered");
        }
        deliveries.len() == 2 && deliveries.values().all(|&count| count >= 6)
    })
    .await;
    let _server = fleet.start("serve", 0);
    until_confirmed(&nats, "tests=clerk=orders").await;
    assert_eq!(sessions_of(&fleet, "clerk").await.len(), 1);
    let (_, letters) = fleet.dead_letters(&["list", "--json"]);
    let letters: Vec<Value> = letters.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0]["reason"].as_str().is_some_and(|reason| reason.contains("no process has confirmed it")));
}

/// I6: a changed subject in the configuration takes effect after a restart, also for the consumer that exists already.
#[tokio::test(flavor = "multi_thread")]
async fn i6_a_changed_subject_of_events_takes_effect() {
    let Some(fleet) = Fleet::with_nats(&agents(), 1, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    create_streams(&nats).await;
    let server = fleet.start("serve", 0);
    publish(&nats, "shop.orders.new", &[], "{\"order\": 1}").await;
    until("the event begins a session", async || sessions_of(&fleet, "clerk").await.len() == 1).await;
    until_confirmed(&nats, "tests=clerk=orders").await;
    server.signal(Signal::TERM);
    assert!(server.wait());

    let file = fleet.folder.path().join("clerk.toml");
    let text = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, text.replace("shop.orders.*", "shop.trusted.*")).expect("written");
    publish(&nats, "shop.orders.new", &[], "{\"order\": 2}").await;
    let _server = fleet.start("serve", 0);
    until("the consumer has the new subject", async || {
        let stream = nats.get_stream("SHOP").await.expect("the stream");
        let consumer = stream.consumer_info("tests=clerk=orders").await.expect("the consumer");
        consumer.config.filter_subject == "shop.trusted.*"
    })
    .await;
    publish(&nats, "shop.orders.new", &[], "{\"order\": 3}").await;
    publish(&nats, "shop.trusted.new", &[], "{\"order\": 4}").await;
    until("the event of the new subject begins a session", async || sessions_of(&fleet, "clerk").await.len() == 2)
        .await;
    until_confirmed(&nats, "tests=clerk=orders").await;
    assert_eq!(sessions_of(&fleet, "clerk").await.len(), 2, "events of the old subject begin none");
}

/// I6: an event that is too large for a dead letter becomes one that names it, instead of being repeated without end.
#[tokio::test(flavor = "multi_thread")]
async fn i6_a_large_unreadable_event_is_finished() {
    let Some(fleet) = Fleet::with_nats(&agents(), 1, Cluster::start(1)) else { return };
    let nats = fleet.cluster().jetstream().await;
    create_streams(&nats).await;
    let _server = fleet.start("serve", 0);
    publish(&nats, "shop.orders.new", &[], &"x".repeat(900_000)).await;
    until("the dead letter is stored", async || fleet.dead_letters(&["list", "--json"]).1.contains("too large")).await;
    until_confirmed(&nats, "tests=clerk=orders").await;
    let (_, listed) = fleet.dead_letters(&["list", "--json"]);
    let letter: Value = serde_json::from_str(listed.trim()).expect("one line of JSON");
    assert!(
        letter["reason"].as_str().is_some_and(|reason| reason.contains("message 1 of the stream SHOP")),
        "{letter}"
    );
    let (succeeded, printed) = fleet.dead_letters(&["retry", &letter["number"].to_string()]);
    assert!(!succeeded && printed.contains("publish it again"), "{printed}");
}
