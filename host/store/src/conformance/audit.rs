//! O3: the audit log has entries for grants, denials, approvals and replacements of plugin versions. An entry is
//! never removed.

use super::{SessionWriter, TestStore, call, commit_of, event, finished_change};
use crate::{AuditAction, AuditAnchor, AuditEntry, AuditProblem, MAX_AUDIT_TEXT_BYTES, Store, verify_store};
use agent_core::approval::{ApprovalOutcome, LastingGrant};
use agent_core::change::{CallChange, Change, Denial};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Digest};
use agent_core::tool::ToolSource;
use std::sync::Arc;

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn granted(plugin: &str, byte: u8, grants: &[&str]) -> AuditAction {
    let grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
    AuditAction::Granted { agent: "tester".to_owned(), plugin: plugin.to_owned(), digest: digest(byte), grants }
}

async fn all_entries(store: &Arc<dyn Store>) -> Vec<AuditEntry> {
    store.audit_entries(0, 0, 100).await.unwrap()
}

pub(super) async fn entries_are_appended_in_order(test: TestStore) {
    let store = &test.store;
    assert_eq!(all_entries(store).await, []);
    let swapped = |from: Option<u8>, to: Option<u8>| AuditAction::Swapped {
        directory: "/plugins".to_owned(),
        plugin: "text".to_owned(),
        from: from.map(digest),
        to: to.map(digest),
    };
    let actions = [granted("text", 1, &["read ."]), swapped(None, Some(1)), swapped(Some(1), Some(2))];
    store.audit(actions.to_vec()).await.unwrap();
    let entries = all_entries(store).await;
    assert_eq!(entries.iter().map(|entry| entry.action.clone()).collect::<Vec<_>>(), actions);
    assert!(entries.iter().zip(1..).all(|(entry, number)| entry.number == number && entry.time.ends_with('Z')));
    assert_eq!(store.audit_entries(0, 2, 100).await.unwrap(), entries[2..]);
    assert_eq!(store.audit_entries(0, 0, 1).await.unwrap(), entries[..1]);
    assert_eq!(store.audit_entries(i64::MAX, 0, 100).await.unwrap(), []);
    if let Some(second) = &test.second {
        assert_eq!(second.audit_entries(0, 0, 100).await.unwrap(), entries, "a second instance sees the entries");
    }
}

pub(super) async fn unchanged_grants_add_no_entry(test: TestStore) {
    let store = &test.store;
    for action in [
        granted("text", 1, &["read ."]),
        granted("text", 1, &["read ."]),
        granted("calc", 1, &["read ."]),
        granted("text", 1, &[]),
        granted("text", 1, &["read ."]),
    ] {
        store.audit(vec![action]).await.unwrap();
    }
    assert_eq!(all_entries(store).await.len(), 4);
}

pub(super) async fn commit_writes_denials_and_approvals(test: TestStore) {
    let store = &test.store;
    let mut writer = SessionWriter::new(store, "tester/1").await;
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
            EventKind::ApprovalResolved { call: id.clone(), name: "files.read".into(), verdict: ApprovalOutcome::Once },
        ),
    ];
    let calls = vec![CallChange::Requested(record), finished_change("c1", "done")];
    writer.commit(commit_of(Change { calls, events: events.clone(), ..Change::default() })).await.unwrap();
    let actions: Vec<_> = all_entries(store).await.into_iter().map(|entry| entry.action).collect();
    let session = || "tester/1".to_owned();
    let expected = [
        AuditAction::Denied {
            session: session(),
            call: Some(id.clone()),
            source: Some(source.clone()),
            denial: denial.clone(),
        },
        AuditAction::Denied { session: session(), call: None, source: None, denial },
        AuditAction::Approval {
            session: session(),
            call: id,
            tool: "files.read".into(),
            source: Some(source),
            verdict: ApprovalOutcome::Once,
        },
    ];
    assert_eq!(actions, expected);

    // A refused commit adds no entry, and deleting a session removes no entry.
    let reused_numbers = Change { events, ..Change::default() };
    assert!(writer.commit(commit_of(reused_numbers)).await.is_err(), "the event numbers are already used");
    writer.release().await;
    store.delete("tester/1").await.unwrap();
    assert_eq!(all_entries(store).await.len(), 3);
}

pub(super) async fn host_grants_and_revocations_add_entries(test: TestStore) {
    let store = &test.store;
    let host = |grants: &[&str]| AuditAction::HostGranted {
        agent: "tester".to_owned(),
        grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
    };
    for action in [host(&[]), host(&["read /a"]), host(&["read /a"]), host(&[]), host(&[])] {
        store.audit(vec![action]).await.unwrap();
    }
    let (agent, tool) = ("tester".to_owned(), "files.write".to_owned());
    let grant = LastingGrant { agent, tool, digest: digest(1), arguments: None, scope: None };
    store.allow(grant.clone()).await.unwrap();
    let id = store.allowed("tester").await.unwrap().remove(0).id;
    assert_eq!(store.revoke(&id).await, Ok(true));
    assert_eq!(store.revoke(&id).await, Ok(false));
    let actions: Vec<_> = all_entries(store).await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [host(&["read /a"]), host(&[]), AuditAction::Revoked { id, grant }]);
}

fn refused(reason: &str) -> AuditAction {
    AuditAction::Refused { directory: "/plugins".into(), subject: "a.wasm".into(), reason: reason.to_owned() }
}

/// O3: each entry contains the hash of the entry before it, also if several instances add entries at the same time.
pub(super) async fn entries_form_a_chain(test: TestStore) {
    let store = &test.store;
    assert_eq!(store.last_audit_number().await, Ok(0));
    let empty = verify_store(&**store, None).await.unwrap();
    assert_eq!((empty.head.number, empty.anchored), (0, None));
    store.audit(vec![granted("text", 1, &["read ."]), refused("first"), refused("second")]).await.unwrap();
    let early = verify_store(&**store, None).await.unwrap().head;
    let other = test.second.as_ref().unwrap_or(store);
    let add = |store: Arc<dyn Store>, name: &'static str| {
        tokio::spawn(async move {
            for number in 0..20 {
                store.audit(vec![refused(&format!("{name} {number}"))]).await.unwrap();
            }
        })
    };
    let (first, second) = (add(store.clone(), "first"), add(other.clone(), "second"));
    first.await.unwrap();
    second.await.unwrap();
    let verified = verify_store(&**store, Some(&AuditAnchor::Head(early.clone()))).await.unwrap();
    assert_eq!((verified.head.number, verified.anchored), (43, Some(3)));
    let by_hash = verify_store(&**other, Some(&AuditAnchor::Hash(early.hash.clone()))).await.unwrap();
    assert_eq!((by_hash.head, by_hash.anchored), (verified.head.clone(), Some(3)));
    let hashes = store.stored_audit_entries(0, 100).await.unwrap();
    assert_eq!(hashes.len(), 43);
    assert_eq!(store.stored_audit_entries(41, 1).await.unwrap(), hashes[41..42]);
    let unknown = AuditAnchor::Hash(digest(9).to_string());
    assert!(matches!(verify_store(&**store, Some(&unknown)).await, Err(AuditProblem::NoSuchHash(_))));
}

/// O3: one entry cannot fill the disk, and an entry whose texts were shortened is intact.
pub(super) async fn long_texts_are_shortened(test: TestStore) {
    let store = &test.store;
    let long = "ä".repeat(MAX_AUDIT_TEXT_BYTES);
    let grants = [granted("text", 1, &[&long]), granted("text", 1, &[&long])];
    for action in grants.into_iter().chain([refused(&long)]) {
        store.audit(vec![action]).await.unwrap();
    }
    let entries = store.stored_audit_entries(0, 9).await.unwrap();
    assert_eq!(entries.len(), 2, "shortened grants are still recognised as unchanged");
    assert!(entries.iter().all(|entry| entry.body.len() < MAX_AUDIT_TEXT_BYTES + 400), "{}", entries[1].body.len());
    assert!(entries[1].body.contains("more bytes)"));
    verify_store(&**store, None).await.unwrap();
}
