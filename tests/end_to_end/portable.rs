//! Sessions that move (D5): forked, exported and imported, they are whole, and they go on. The original stays as it is.

use crate::support::{House, calling, granting, results, saying, script, turn, view};
use agent_core::event::EventKind;
use agent_core::message::{Dimensions, Part, TurnInput};
use agent_core::run::Output;
use agent_runtime::portable::{Exported, ForkAt, ImportAs, PortableError, export, fork, import};
use agent_runtime::{AgentConfig, OpenSession, Session, TurnResult};
use agent_store::{Commit, INCOMPLETE, RecordRange, Status, StoreError};
use agent_store::{MediaDescription, Memories, MessageRange, OpenMode, SessionFilter, SessionLog, SessionMeta, Store};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("{other:?}"),
    }
}

/// Two turns: one with two calls, one that was undone, and one with a picture.
async fn talked(house: &House) -> Session {
    let mut config = granting(house, "probe");
    config.user = Some("ada".to_owned());
    let calls = [("probe.echo", json!({"text": "walrus"})), ("probe.echo", json!({"text": "tusk"}))];
    let replies = [calling(&calls), saying("Both."), saying("Forget it."), saying("A dot.")];
    let mut session = house.session(config, script(&replies)).await;
    finished(turn(&mut session, "Echo both.").await);
    finished(turn(&mut session, "Never mind.").await);
    session.undo().await.unwrap();
    let about = MediaDescription {
        mime_type: "image/png".to_owned(),
        name: Some("dot.png".to_owned()),
        dimensions: Some(Dimensions { width: 1, height: 1 }),
    };
    let picture = house.store.clone();
    let media = agent_store::Blobs::put(&*picture, session.subject(), dot(), about).await.unwrap();
    let input = TurnInput::Message(vec![Part::Text("What is this?".to_owned()), Part::Media(media)]);
    finished(session.run(Some(input), CancellationToken::new()).await.unwrap());
    session
}

/// A picture of one pixel.
fn dot() -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(1, 1).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

async fn document(store: &dyn Store, session: &str) -> Vec<u8> {
    let mut document = Vec::new();
    export(store, session, &mut document).await.unwrap_or_else(|error| panic!("{error}"));
    document
}

/// The document without times, and with another subject.
fn timeless(document: &[u8], subject: &str, to: &str) -> Value {
    let text = std::str::from_utf8(document).unwrap().replace(subject, to);
    let mut json: Value = serde_json::from_str(&text).unwrap();
    for list in ["events", "records"] {
        for item in json[list].as_array_mut().unwrap() {
            assert!(item["time"].take().is_string());
        }
    }
    for time in ["created", "updated"] {
        assert!(json["session"][time].take().is_string());
    }
    // It belongs to whoever imports it.
    json["session"]["user"].take();
    // Each copy's later calls have ids of their own.
    assert!(json["snapshot"]["id_ending"].take().is_string());
    json
}

/// Opens a session that was closed, with the same agent, and runs a turn in it.
async fn goes_on(house: &House, subject: &str, reply: Value) -> Session {
    // The script goes on behind the four replies that the session has had.
    let replies = [vec![saying("Spent."); 4], vec![reply]].concat();
    let agent = house.agent(granting(house, "probe"), script(&replies)).await;
    let which = OpenSession::Existing(subject.to_owned());
    let mut session = Session::open(&house.host(), agent, which).await.unwrap();
    assert_eq!(finished(turn(&mut session, "Go on.").await).data, json!("Going on."));
    session
}

fn going_on(contains: &[&str], lacks: &[&str]) -> Value {
    let mut reply = saying("Going on.");
    reply["expect"] = json!({"contains": contains, "lacks": lacks});
    reply
}

/// D5: what was exported is imported into another store, is the same but for its times, and goes on there.
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_exported_session_is_imported_whole_and_goes_on() {
    let (house, other) = (House::new(&["probe"]).await, House::new(&["probe"]).await);
    let session = talked(&house).await;
    let subject = session.subject().to_owned();
    let mut busy = Vec::new();
    let refused = export(&*house.store, &subject, &mut busy).await.unwrap_err();
    assert!(matches!(refused, PortableError::Store(StoreError::Busy { .. })), "{refused}");
    session.close().await.unwrap();
    let exported = document(&*house.store, &subject).await;

    let imported = import(&*other.store, &exported, ImportAs::Itself).await.unwrap();
    assert_eq!((imported.session.as_str(), imported.agent.as_str(), imported.messages), (&*subject, "test", 9));
    let again = document(&*other.store, &subject).await;
    assert_eq!(timeless(&again, "", ""), timeless(&exported, "", ""));
    assert_eq!(Memories::list(&*other.store, "ada", "", 9).await.unwrap(), [], "memories are the user's own");
    let found = other.store.search_messages("walrus", 9).await.unwrap();
    assert!(found.iter().all(|hit| hit.session == subject) && !found.is_empty(), "{found:?}");

    let session = goes_on(&other, &subject, going_on(&["walrus", "tusk"], &["Never mind"])).await;
    assert_eq!(session.state().turns, 4);
    session.close().await.unwrap();
    assert_eq!(timeless(&document(&*house.store, &subject).await, "", ""), timeless(&exported, "", ""));
}

/// D5: under another subject beside the original, everything that names the session names the new one.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_session_is_imported_under_another_subject() {
    let house = House::new(&["probe"]).await;
    let session = talked(&house).await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let exported = document(&*house.store, &subject).await;
    let refused = import(&*house.store, &exported, ImportAs::Itself).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("session `{subject}` exists already"));
    import(&*house.store, &exported, ImportAs::Subject("copy".to_owned())).await.unwrap();
    let copy = document(&*house.store, "copy").await;
    assert_eq!(timeless(&copy, "", ""), timeless(&exported, &subject, "copy"));
    house.store.delete(&subject).await.unwrap();
    goes_on(&house, "copy", going_on(&["walrus"], &[])).await.close().await.unwrap();
    let events = house.store.events("copy", 0, 10_000).await.unwrap();
    assert!(events.iter().all(|timed| timed.event.session == "copy"));
}

/// D3, D5: a session whose turn is open is exported with it, and the turn goes on where it is imported.
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_open_turn_travels_with_its_calls() {
    let (house, other) = (House::new(&["probe"]).await, House::new(&["probe"]).await);
    let call = calling(&[("probe.count", json!({"path": "effects.txt", "ms": 60_000}))]);
    let mut session = house.session(granting(&house, "probe"), script(&[call])).await;
    let mut events = session.subscribe();
    {
        let running = session.run(Some(TurnInput::Text("Count.".to_owned())), CancellationToken::new());
        tokio::pin!(running);
        // The call's intent is committed; then the driver is dropped, as a process that dies drops it.
        loop {
            tokio::select! {
                event = events.recv() => if matches!(event.unwrap().kind, EventKind::ToolCall { .. }) { break },
                result = &mut running => panic!("{result:?}"),
            }
        }
    }
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let exported = document(&*house.store, &subject).await;
    import(&*other.store, &exported, ImportAs::Itself).await.unwrap();
    let listed = other.store.sessions(SessionFilter::default(), 9).await.unwrap().remove(0);
    assert_eq!((listed.state.as_str(), listed.open_in, listed.title.as_deref()), ("suspended", None, Some("Count.")));

    let agent = other.agent(granting(&other, "probe"), script(&[saying("Spent."), saying("Decided.")])).await;
    let which = OpenSession::Existing(subject.clone());
    let mut session = Session::open(&other.host(), agent, which).await.unwrap();
    let waits = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(waits, TurnResult::Suspended(_)), "{waits:?}");
    let call = agent_core::message::CallId("call_1_1_1".to_owned());
    session.resolve(call, agent_core::run::Decision::Result("7".to_owned())).await.unwrap();
    assert_eq!(finished(session.run(None, CancellationToken::new()).await.unwrap()).data, json!("Decided."));
    assert_eq!(results(&other, &session).await[0].2, "7");
}

/// D5: each kind of damage is named with its place, and nothing is imported.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_damaged_document_is_named_with_the_place() {
    let (house, other) = (House::new(&["probe"]).await, House::new(&[]).await);
    let session = talked(&house).await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let exported = document(&*house.store, &subject).await;
    let whole: Value = serde_json::from_slice(&exported).unwrap();
    let mut damaged: Vec<(Vec<u8>, &str)> = vec![
        (exported[..exported.len() / 2].to_vec(), "damaged at its JSON: "),
        (Vec::new(), "damaged at its JSON: "),
        (b"[]".to_vec(), "this is no exported session"),
        (b"{\"messages\":[]}".to_vec(), "this is no exported session: it has no member `format`"),
        (br#"{"format":"agent-host.session","version":2}"#.to_vec(), "version 2; this host reads up to 1"),
        (br#"{"format":"another","version":1}"#.to_vec(), "its format is `another`"),
    ];
    let mut with = |pointer: &str, value: Value, said: &'static str| {
        let mut crafted = whole.clone();
        *crafted.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        damaged.push((serde_json::to_vec(&crafted).unwrap(), said));
    };
    with("/messages/3/role", json!("nobody"), "damaged at messages[3]: ");
    with("/messages/4/id", json!(7), "damaged at messages[4]: the message 5 is missing");
    with("/messages/2/body/result_of", json!("call_9_9_9"), "damaged at messages[2]: call `call_9_9_9` has no result");
    with("/messages", json!([]), "damaged at messages: there are 0, and the state counts 9");
    with("/calls/1/id", whole["calls"][0]["id"].clone(), "damaged at calls[1]: call `call_1_1_1");
    with("/events/5/event/sequence", json!(9), "damaged at events[5]: the event 6 is missing");
    with("/events/0/event/session", json!("x"), "damaged at events[0]: it is another session's");
    with("/hidden/0/id", json!(99), "damaged at hidden[0]: there is no such message");
    with("/records/0/body", json!({}), "");
    with("/texts/0/text", json!("another"), "damaged at texts[0]: its bytes are not those of sha256:");
    with("/media/0/base64", json!("AAAA"), "damaged at media[0]: its bytes are not those of sha256:");
    with("/media/0/base64", json!("?"), "damaged at media[0]: ");
    with("/media", json!([]), "its medium sha256:");
    with("/snapshot/view/0/since", json!(99), "damaged at snapshot: the stored state cannot be used");
    with("/snapshot/session", json!("x"), "damaged at snapshot: it is another session's");
    with("/snapshot/sequence", json!(3), "damaged at events: there are ");
    with("/session/agent", json!("x"), "damaged at snapshot: it is another session's or another agent's");
    with("/session/user", json!("x".repeat(129)), "damaged at session.user: the user's name has 129 characters");
    with("/session/user", json!("a\nb"), "damaged at session.user: the user's name has '\\n' in it");
    with("/session/title", json!("x".repeat(81)), "damaged at session.title: it has more than 80 characters");
    for (document, said) in damaged.into_iter().filter(|(_, said)| !said.is_empty()) {
        let error = import(&*other.store, &document, ImportAs::Itself).await.expect_err(said).to_string();
        assert!(error.contains(said), "{error:?} does not say {said:?}");
        assert_eq!(other.store.sessions(SessionFilter::default(), 9).await.unwrap(), [], "{said}");
    }
    // What a process that died while it imported has left is no hindrance.
    let meta = SessionMeta { agent: "test".to_owned(), ..SessionMeta::default() };
    for died_after in 0..2 {
        let left = other.store.open(&subject, OpenMode::CreateNew, meta.clone()).await.unwrap();
        for revision in 0..died_after {
            let status = Status { state: INCOMPLETE.to_owned(), ..Status::default() };
            other.store.commit(&left.lease, revision, Commit { status, ..Commit::default() }).await.unwrap();
            let held = import(&*other.store, &exported, ImportAs::Itself).await.unwrap_err();
            assert!(matches!(held, PortableError::Store(StoreError::Busy { .. })), "it goes on: {held}");
        }
        other.store.release(left.lease).await.unwrap();
        if died_after > 0 {
            let refused = fork(&*other.store, &subject, ForkAt::Last).await.unwrap_err().to_string();
            assert!(refused.contains("is incomplete") && refused.contains("session delete"), "{refused}");
        }
        import(&*other.store, &exported, ImportAs::Itself).await.unwrap();
        let imported: Value = serde_json::from_slice(&document(&*other.store, &subject).await).unwrap();
        assert_eq!((&imported["messages"], &imported["calls"]), (&whole["messages"], &whole["calls"]));
        other.store.delete(&subject).await.unwrap();
    }
}

/// D5: a fork has what is visible up to the message, goes on, and leaves the original as it was.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_fork_goes_on_and_the_original_stays() {
    let house = House::new(&["probe"]).await;
    let session = talked(&house).await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let before = document(&*house.store, &subject).await;

    // Message 3 is the first of two results: the cut moves behind the second.
    let forked = fork(&*house.store, &subject, ForkAt::Message(3)).await.unwrap();
    assert_eq!((forked.at, forked.messages), (4, 4));
    let summary = SessionFilter { subject: Some(forked.session.clone()), ..SessionFilter::default() };
    let summary = house.store.sessions(summary, 1).await.unwrap().remove(0);
    assert_eq!((summary.state.as_str(), summary.turns, summary.title.as_deref()), ("idle", 1, Some("Echo both.")));
    let origin = house.store.records(&forked.session, RecordRange::Turn(1)).await.unwrap().remove(0).record;
    assert_eq!((origin.kind.as_str(), &origin.body["from"], &origin.body["at"]), ("fork", &json!(subject), &json!(4)));
    let open =
        goes_on(&house, &forked.session, going_on(&["walrus", "tusk"], &["Both", "Never mind", "dot.png"])).await;
    assert_eq!((open.state().turns, results(&house, &open).await.len()), (2, 2));
    assert_eq!(view(&house, &open).await.len(), 6);
    open.close().await.unwrap();

    // The whole of it: what was undone is not visible, and the picture is shared.
    let forked = fork(&*house.store, &subject, ForkAt::Last).await.unwrap();
    assert_eq!((forked.at, forked.messages), (9, 7));
    house.store.delete(&subject).await.unwrap();
    let open = goes_on(&house, &forked.session, going_on(&["Both", "image/png"], &["Never mind"])).await;
    open.close().await.unwrap();
    import(&*house.store, &before, ImportAs::Itself).await.unwrap();
    let after = document(&*house.store, &subject).await;
    assert_eq!(timeless(&after, "", ""), timeless(&before, "", ""));
}

/// D5, L9: a fork never parts a call and its result, and says where it can be cut.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_fork_that_cannot_be_cut_there_names_the_nearest_places() {
    let house = House::new(&["probe"]).await;
    let session = talked(&house).await;
    // Open here, it is forked as a library call.
    let forked = session.fork(ForkAt::Message(1)).await.unwrap();
    assert_eq!((forked.at, forked.messages), (1, 1));
    let hidden = session.fork(ForkAt::Message(6)).await.unwrap_err().to_string();
    assert!(hidden.contains("message 6 is not in the session's view"), "{hidden}");
    assert!(hidden.ends_with("the nearest that it can be cut behind are 5 and 8"), "{hidden}");
    let busy = fork(&*house.store, session.subject(), ForkAt::Last).await.unwrap_err();
    assert!(matches!(busy, PortableError::Store(StoreError::Busy { .. })), "{busy}");
    let empty = house.session(AgentConfig::new("empty"), script(&[saying("Unasked.")])).await;
    let refused = empty.fork(ForkAt::Last).await.unwrap_err();
    assert!(matches!(refused, PortableError::Empty { .. }), "{refused}");
    let before = house.store.sessions(SessionFilter::default(), 99).await.unwrap().len();
    assert_eq!(before, 3, "what was refused made no session");
    let parts = house.store.messages(&forked.session, MessageRange::Ids(vec![1])).await.unwrap();
    assert_eq!(parts[0].parts, [Part::Text("Echo both.".to_owned())]);
}

/// D5: a large medium is written and read in pieces, and is the same.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_large_medium_travels_whole() {
    let (house, other) = (House::new(&["probe"]).await, House::new(&[]).await);
    let session = talked(&house).await;
    let bytes: Vec<u8> = (0..7_000_001_u32).map(|number| (number % 253) as u8).collect();
    let about = MediaDescription { mime_type: "application/octet-stream".to_owned(), ..MediaDescription::default() };
    let media = agent_store::Blobs::put(&*house.store, session.subject(), bytes.clone(), about).await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let mut exported = Vec::new();
    let counts = export(&*house.store, &subject, &mut exported).await.unwrap();
    assert_eq!(counts, Exported { messages: 9, media: 2 });
    import(&*other.store, &exported, ImportAs::Itself).await.unwrap();
    let read = agent_store::Blobs::read(&*other.store, &subject, &media.digest, 0, u32::MAX).await.unwrap();
    assert!(read == bytes);
}
