//! Copies of whole stores between SQLite and PostgreSQL (F1).

use super::append;
use super::clients::{database_of, open_store};
use super::server::shared;
use agent_core::approval::LastingGrant;
use agent_core::change::{
    CallChange, CallRecord, CallResult, CallState, HiddenMessage, HideReason, OutboxEffect, OutboxItem,
};
use agent_core::cost::{Cost, TurnCost};
use agent_core::event::{EndReason, Event, EventKind};
use agent_core::message::{CallId, Digest};
use agent_core::model::Usage;
use agent_store::{
    AuditAction, BlobReference, Bucket, CallFilter, Charge, ChargedTo, Commit, CopyEnd, CopyError, CopyReport, Memory,
    MemoryFilter, MemoryKind, MessageRange, NamedRule, OpenMode, Options, OutboxFilter, RecordRange, Rollback,
    ScheduleState, ServedPlugin, SessionFilter, SessionLog, SessionMeta, SessionState, SqliteStore, Status, StepRecord,
    Store, StoredView, VersionEndReason, VersionFilter, ViewPiece, copy_store, digest_of, verify_store,
};
use serde_json::json;
use std::fmt::Write;

const SESSIONS: [&str; 4] = ["a/1", "a/2 strange \0\u{1} ", "b/3", "b/4"];

fn commit_with_everything(session: &str) -> Commit {
    let call = CallRecord {
        id: CallId("c\0all".to_owned()),
        turn: 1,
        step: 1,
        name: "files.read".to_owned(),
        source: None,
        arguments: json!({"path": "\0"}),
        edited: Some(json!({"path": "b"})),
        state: CallState::Waiting,
        attempt: 1,
        result: None,
    };
    let mut commit = append(1, &format!("a walrus in {session}"));
    let finished = CallChange::Finished { id: call.id.clone(), result: CallResult::default() };
    commit.change.calls = vec![CallChange::Requested(call), finished];
    commit.change.hidden = vec![HiddenMessage { id: 1, seen_count: 3, why: HideReason::Evicted }];
    let usage = Usage { cost: Some(Cost { nanodollars: 5, partial: true }), ..Usage::new(100, 10) };
    let cost = TurnCost { turn: 1, execution_units: 110, usage, interactions: 2, saved_tokens: 7 };
    let kind = EventKind::LoopEnd { reason: EndReason::Answered, cost: Some(cost) };
    commit.change.events = vec![Event { session: session.to_owned(), turn: 1, sequence: 1, provisional: None, kind }];
    let grant = LastingGrant {
        agent: "a".to_owned(),
        tool: "t".to_owned(),
        digest: Digest::from_sha256([1; 32]),
        arguments: None,
        scope: None,
    };
    let allow = |id: &str| OutboxItem { id: id.to_owned(), effect: OutboxEffect::Allow(grant.clone()) };
    commit.change.outbox = vec![allow("one"), allow("two")];
    commit.records = vec![
        StepRecord { turn: 1, step: 1, kind: "prompt".to_owned(), body: json!({"n": 1}) },
        StepRecord { turn: 1, step: 2, kind: "reply".to_owned(), body: json!("two") },
    ];
    commit.texts = vec!["a shared text".to_owned(), format!("a text of {session}")];
    commit.view = StoredView::Whole(vec![ViewPiece { number: 4, items: b"1,2".to_vec() }]);
    commit.status = Status {
        state: SessionState::Suspended,
        turn: 1,
        title: Some("A title".to_owned()),
        continues_at: Some(77),
        ..Status::default()
    };
    let (agent, user) = ("a".to_owned(), Some("ann".to_owned()));
    commit.charge = Some(Charge { agent, user, delegators: Vec::new(), milliseconds: 9 });
    commit
}

/// Fills a store with data of every kind. All sessions are closed afterwards.
async fn fill(store: &dyn Store) {
    for session in SESSIONS {
        let meta = SessionMeta { agent: "a".to_owned(), user: Some("ann".to_owned()), delegated_by: None };
        let opened = store.open(session, OpenMode::CreateNew, meta).await.unwrap();
        store.commit(&opened.lease, 0, commit_with_everything(session)).await.unwrap();
        let about = agent_store::MediaDescription { mime_type: "image/png".to_owned(), ..Default::default() };
        store.put(session, vec![7; 3_000_000], about).await.unwrap();
        store.claim_trace_exports(&[session.to_owned()]).await.unwrap();
        let record = store.records(session, RecordRange::Turn(1)).await.unwrap()[0].number;
        let position = agent_store::ExportPosition { event: 1, record, turn_start: 0 };
        assert!(store.set_export_positions(&[(session.to_owned(), position)]).await.unwrap().is_empty());
        store.release(opened.lease).await.unwrap();
        let memory = Memory {
            user: "ann".to_owned(),
            kind: MemoryKind::Final,
            agent: "a".to_owned(),
            session: session.to_owned(),
            turn: 1,
            text: format!("she likes walruses {session}"),
            project: None,
            written: None,
        };
        store.add(&format!("{session}/1"), memory).await.unwrap();
    }
    let number = store.outbox(None, OutboxFilter::All, 0, 1).await.unwrap()[0].number;
    store.mark_delivered(number).await.unwrap();
    fill_common_tables(store).await;
}

/// Writes data that belongs to no session.
async fn fill_common_tables(store: &dyn Store) {
    let bucket =
        |name: &str| Bucket { agent: "a".to_owned(), plugin: "p".to_owned(), name: name.to_owned(), quota: 1 << 20 };
    store.set(&bucket("one"), "k\0ey", b"value".to_vec()).await.unwrap();
    store.set(&bucket("two"), "key", vec![0, 1]).await.unwrap();
    let digest = |byte| Digest::from_sha256([byte; 32]);
    let grant =
        LastingGrant { agent: "a".to_owned(), tool: "t".to_owned(), digest: digest(1), arguments: None, scope: None };
    store.allow(grant).await.unwrap();
    store.bind_rule(NamedRule { agent: "a".to_owned(), tool: "t".to_owned() }, digest(3)).await.unwrap();
    for byte in [1, 2] {
        let served = ServedPlugin {
            plugin: "calc".to_owned(),
            digest: digest(byte),
            origin: "calc.wasm".to_owned(),
            instead: VersionEndReason::Replaced,
            trial: Some(digest(9)),
        };
        store.set_serving("/plugins", vec![served]).await.unwrap();
    }
    let (directory, plugin) = ("/plugins".to_owned(), "calc".to_owned());
    let rollback = Rollback { directory, plugin, from: digest(2), to: digest(1), why: VersionEndReason::Trapped };
    store.roll_back(rollback).await.unwrap();
    store.record_turn_plugins("a", vec![("calc".to_owned(), digest(1))]).await.unwrap();
    store
        .set_schedule(ScheduleState { agent: "a".to_owned(), name: "daily".to_owned(), due: 5, ..Default::default() })
        .await
        .unwrap();
    store.begin_trace_export("z").await.unwrap();
    for reason in ["one", "two"] {
        let (directory, subject) = ("/plugins".to_owned(), "a.wasm".to_owned());
        store.audit(vec![AuditAction::Refused { directory, subject, reason: reason.to_owned() }]).await.unwrap();
    }
}

/// Describes everything that can be read from a store, except numbers that differ between stores.
async fn export(store: &dyn Store) -> String {
    let mut text = String::new();
    for mut session in store.sessions(SessionFilter::default(), 100).await.unwrap() {
        session.open_in = None;
        let subject = session.subject.clone();
        writeln!(text, "{session:?}").unwrap();
        writeln!(text, "{:?}", store.snapshot(&subject).await.unwrap()).unwrap();
        writeln!(text, "{:?}", store.messages(&subject, MessageRange::After { id: 0, limit: 99 }).await.unwrap())
            .unwrap();
        writeln!(text, "{:?}", store.hidden(&subject, 0, 99).await.unwrap()).unwrap();
        writeln!(text, "{:?}", store.calls(&subject, CallFilter::Turn(1)).await.unwrap()).unwrap();
        writeln!(text, "{:?}", store.events(&subject, 0, 99).await.unwrap()).unwrap();
        for record in store.records(&subject, RecordRange::After { number: 0, limit: 99 }).await.unwrap() {
            writeln!(text, "{} {:?}", record.time, record.record).unwrap();
        }
        for reference in store.references(&subject, None, 99).await.unwrap() {
            let bytes = match &reference {
                BlobReference::Media(media) => store.read(&subject, &media.digest, 0, u32::MAX).await.unwrap(),
                BlobReference::Text { digest, .. } => store.text(&subject, digest).await.unwrap().into_bytes(),
            };
            assert_eq!(digest_of(&bytes), *reference.digest());
            writeln!(text, "{reference:?}").unwrap();
        }
        for item in store.outbox(Some(&subject), OutboxFilter::All, 0, 99).await.unwrap() {
            writeln!(text, "{:?} {} {:?}", item.item, item.created, item.delivered).unwrap();
        }
        let (turn, position) = (1, agent_store::ExportPosition { event: 0, record: 0, turn_start: 0 });
        let charged =
            vec![ChargedTo::Turn { session: subject.clone(), turn }, ChargedTo::Session { session: subject.clone() }];
        writeln!(text, "{:?}", store.charged(charged).await.unwrap()).unwrap();
        writeln!(text, "{}", store.turn_after(&subject, position).await.unwrap().unwrap().records.len()).unwrap();
    }
    writeln!(text, "{:?}", store.list("ann", "", 99).await.unwrap()).unwrap();
    let bucket = |name: &str| Bucket { agent: "a".to_owned(), plugin: "p".to_owned(), name: name.to_owned(), quota: 1 };
    writeln!(text, "{:?} {:?}", store.get(&bucket("one"), "k\0ey").await, store.keys(&bucket("two"), "", 9).await)
        .unwrap();
    writeln!(text, "{:?}", store.allowed("a").await.unwrap()).unwrap();
    writeln!(text, "{:?}", store.versions(VersionFilter::default(), 99).await.unwrap()).unwrap();
    writeln!(text, "{:?} {:?}", store.rollbacks("/plugins").await, store.trials("/plugins").await).unwrap();
    writeln!(text, "{:?}", store.schedules("a").await.unwrap()).unwrap();
    let charged = vec![
        ChargedTo::Agent { agent: "a".to_owned(), since: 0 },
        ChargedTo::User { user: Some("ann".to_owned()), since: 0 },
    ];
    writeln!(text, "{:?}", store.charged(charged).await.unwrap()).unwrap();
    writeln!(
        text,
        "{:?} {:?}",
        store.stored_audit_entries(0, 99).await.unwrap(),
        verify_store(store, None).await.unwrap()
    )
    .unwrap();
    text
}

async fn searches(store: &dyn Store) -> (usize, usize) {
    let memories = store.search(&MemoryFilter::of_user("ann"), "walruses", 9).await.unwrap();
    (store.search_messages("walrus", 9).await.unwrap().len(), memories.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn f1_copies_in_both_directions_give_identical_exports() {
    let Some(server) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("one.db"), Options::default()).unwrap();
    fill(&sqlite).await;
    let expected = export(&sqlite).await;
    let address = server.new_database().await;
    let postgres = open_store(&address).await.unwrap();
    let (from, to) = (CopyEnd::Sqlite(&sqlite), CopyEnd::Postgres(&postgres));

    // A copy that is interrupted is continued by the next copy.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let mut count = 0;
    let interrupted = copy_store(from, to, |_| {
        count += 1;
        if count == 3 {
            drop(stop.take());
        }
    });
    tokio::select! {
        biased;
        _ = stopped => {}
        finished = interrupted => panic!("{finished:?}"),
    }
    let report = copy_store(from, to, |_| {}).await.unwrap();
    assert_eq!((report.sessions, report.unchanged), (2, 2), "{report:?}");
    assert_eq!(export(&postgres).await, expected);
    assert_eq!(searches(&postgres).await, (4, 4));

    let back = SqliteStore::open(folder.path().join("two.db"), Options::default()).unwrap();
    let report = copy_store(CopyEnd::Postgres(&postgres), CopyEnd::Sqlite(&back), |_| {}).await.unwrap();
    assert_eq!(report.sessions, 4);
    assert_eq!(export(&back).await, expected);
    assert_eq!(searches(&back).await, (4, 4));
    let again = copy_store(CopyEnd::Postgres(&postgres), CopyEnd::Sqlite(&back), |_| {}).await.unwrap();
    assert_eq!(again, CopyReport { sessions: 0, unchanged: 4, rows: report.rows });

    // The copies can be used like every other store.
    for store in [&postgres as &dyn Store, &back] {
        let opened = store.open(SESSIONS[0], OpenMode::Existing, SessionMeta::default()).await.unwrap();
        assert_eq!(opened.snapshot.as_deref(), Some(b"{\"messages\":1,\"view\":[1,2]}".as_slice()));
        store.commit(&opened.lease, 1, append(2, "more")).await.unwrap();
        store.release(opened.lease).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f1_other_data_in_the_target_is_reported() {
    let Some(server) = shared() else { return };
    let sqlite = SqliteStore::open_in_memory().unwrap();
    fill(&sqlite).await;
    let address = server.new_database().await;
    let postgres = open_store(&address).await.unwrap();
    let (from, to) = (CopyEnd::Sqlite(&sqlite), CopyEnd::Postgres(&postgres));
    copy_store(from, to, |_| {}).await.unwrap();
    let database = database_of(&address);
    server.execute(database, "UPDATE events SET kind = replace(kind, '100', '101') WHERE session = 'b/3'").await;
    let refused = copy_store(from, to, |_| {}).await;
    let Err(CopyError::Differs { what }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("`events` of session `b/3`"), "{what}");

    let opened = sqlite.open("a/1", OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let refused = copy_store(from, to, |_| {}).await;
    assert!(matches!(&refused, Err(CopyError::InUse { session }) if session == "a/1"), "{refused:?}");
    sqlite.release(opened.lease).await.unwrap();
}
