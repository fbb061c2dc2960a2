//! O3: the audit log has what was granted, denied, allowed and swapped, and keeps it.

use super::{Place, Writing, call, commit_of, event, finished};
use crate::{AuditEntry, Deed, Store};
use agent_core::approval::{ApprovalWord, LastingGrant};
use agent_core::change::{CallChange, Change, Denial};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use std::sync::Arc;

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn granted(plugin: &str, byte: u8, grants: &[&str]) -> Deed {
    let grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
    Deed::Granted { agent: "tester".to_owned(), plugin: plugin.to_owned(), digest: digest(byte), grants }
}

async fn all(store: &Arc<dyn Store>) -> Vec<AuditEntry> {
    store.audited(0, 0, 100).await.unwrap()
}

pub(super) async fn entries_are_added_in_order(place: Place) {
    let store = &place.store;
    assert_eq!(all(store).await, []);
    let swapped = |from: Option<u8>, to: Option<u8>| Deed::Swapped {
        directory: "/plugins".to_owned(),
        plugin: "text".to_owned(),
        from: from.map(digest),
        to: to.map(digest),
    };
    let deeds = [granted("text", 1, &["read ."]), swapped(None, Some(1)), swapped(Some(1), Some(2))];
    store.audit(deeds.to_vec()).await.unwrap();
    let entries = all(store).await;
    assert_eq!(entries.iter().map(|entry| entry.deed.clone()).collect::<Vec<_>>(), deeds);
    assert!(entries.iter().zip(1..).all(|(entry, number)| entry.number == number && entry.time.ends_with('Z')));
    assert_eq!(store.audited(0, 2, 100).await.unwrap(), entries[2..]);
    assert_eq!(store.audited(0, 0, 1).await.unwrap(), entries[..1]);
    assert_eq!(store.audited(i64::MAX, 0, 100).await.unwrap(), []);
    if let Some(another) = &place.another {
        assert_eq!(another.audited(0, 0, 100).await.unwrap(), entries, "another process finds them, too");
    }
}

pub(super) async fn the_same_grants_are_one_entry(place: Place) {
    let store = &place.store;
    for deed in [
        granted("text", 1, &["read ."]),
        granted("text", 1, &["read ."]),
        granted("calc", 1, &["read ."]),
        granted("text", 1, &[]),
        granted("text", 1, &["read ."]),
    ] {
        store.audit(vec![deed]).await.unwrap();
    }
    assert_eq!(all(store).await.len(), 4);
}

pub(super) async fn denials_and_approvals_come_with_their_commit(place: Place) {
    let store = &place.store;
    let mut writing = Writing::new(store, "tester/1").await;
    let source = ToolSource::Plugin { plugin: "files".to_owned(), digest: digest(7) };
    let mut record = call("c1", 1);
    record.source = Some(source.clone());
    let denial = Denial { plugin: "files@0707".into(), thing: "reading".into(), grant: "add".into() };
    let id = CallId("c1".to_owned());
    let events = vec![
        event("tester/1", 1, EventKind::Denied { call: Some(id.clone()), denial: denial.clone() }),
        event("tester/1", 2, EventKind::Denied { call: None, denial: denial.clone() }),
        event("tester/1", 3, EventKind::Resumed),
        event(
            "tester/1",
            4,
            EventKind::ApprovalResolved { call: id.clone(), name: "files.read".into(), verdict: ApprovalWord::Once },
        ),
    ];
    let calls = vec![CallChange::Requested(record), finished("c1", "done")];
    writing.commit(commit_of(Change { calls, events: events.clone(), ..Change::default() })).await.unwrap();
    let deeds: Vec<_> = all(store).await.into_iter().map(|entry| entry.deed).collect();
    let session = || "tester/1".to_owned();
    let expected = [
        Deed::Denied {
            session: session(),
            call: Some(id.clone()),
            source: Some(source.clone()),
            denial: denial.clone(),
        },
        Deed::Denied { session: session(), call: None, source: None, denial },
        Deed::Approval {
            session: session(),
            call: id,
            tool: "files.read".into(),
            source: Some(source),
            verdict: ApprovalWord::Once,
        },
    ];
    assert_eq!(deeds, expected);

    // A commit that is refused leaves no entry, and a session that is deleted takes none along.
    let again = Change { events, ..Change::default() };
    assert!(writing.commit(commit_of(again)).await.is_err(), "its numbers are taken");
    writing.done().await;
    store.delete("tester/1").await.unwrap();
    assert_eq!(all(store).await.len(), 3);
}

pub(super) async fn host_grants_and_revocations_are_entries(place: Place) {
    let store = &place.store;
    let host = |grants: &[&str]| Deed::HostGranted {
        agent: "tester".to_owned(),
        grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
    };
    for deed in [host(&[]), host(&["read /a"]), host(&["read /a"]), host(&[]), host(&[])] {
        store.audit(vec![deed]).await.unwrap();
    }
    let (agent, tool) = ("tester".to_owned(), "files.write".to_owned());
    let grant = LastingGrant { agent, tool, digest: digest(1), arguments: None, scope: None };
    store.allow(grant.clone()).await.unwrap();
    let id = store.allowed("tester").await.unwrap().remove(0).id;
    assert_eq!(store.revoke(&id).await, Ok(true));
    assert_eq!(store.revoke(&id).await, Ok(false));
    let deeds: Vec<_> = all(store).await.into_iter().map(|entry| entry.deed).collect();
    assert_eq!(deeds, [host(&["read /a"]), host(&[]), Deed::Revoked { id, grant }]);
}
