//! O3: every change of the stored audit log is found. The tests change the database file itself, as somebody with write
//! access to it could.

use agent_core::message::Digest;
use agent_store::{
    Audit, AuditAction, AuditAnchor, AuditChain, AuditProblem, ChainHead, ChainProblem, Options, SqliteStore,
    VerifiedAudit, verify_lines, verify_store,
};
use proptest::prelude::*;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

const ENTRIES: u64 = 12;

/// A database with [`ENTRIES`] entries, and with its triggers removed.
struct Log {
    _folder: TempDir,
    path: PathBuf,
    head: ChainHead,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn action(number: u64) -> AuditAction {
    let (from, to) = (None, Some(Digest::from_sha256([number as u8; 32])));
    AuditAction::Swapped { directory: "/plugins".into(), plugin: format!("plugin-{number}"), from, to }
}

fn verify(path: &Path, anchor: Option<&AuditAnchor>) -> Result<VerifiedAudit, AuditProblem> {
    let store = SqliteStore::open(path, Options::default()).unwrap();
    block_on(verify_store(&store, anchor))
}

impl Log {
    fn new() -> Self {
        static TEMPLATE: OnceLock<(Vec<u8>, ChainHead)> = OnceLock::new();
        let (file, head) = TEMPLATE.get_or_init(|| {
            let log = Self::written();
            (std::fs::read(&log.path).unwrap(), log.head)
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        std::fs::write(&path, file).unwrap();
        Self { _folder: folder, path, head: head.clone() }
    }

    fn written() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = SqliteStore::open(&path, Options::default()).unwrap();
        block_on(store.audit((1..=ENTRIES).map(action).collect())).unwrap();
        let head = block_on(verify_store(&store, None)).unwrap().head;
        drop(store);
        let log = Self { _folder: folder, path, head };
        log.change("DROP TRIGGER audit_is_never_rewritten; DROP TRIGGER audit_is_never_shortened;");
        log
    }

    fn change(&self, sql: &str) {
        Connection::open(&self.path).unwrap().execute_batch(sql).unwrap();
    }

    fn verify(&self) -> Result<VerifiedAudit, AuditProblem> {
        verify(&self.path, None)
    }

    fn broken(&self) -> ChainProblem {
        match self.verify() {
            Err(AuditProblem::Broken(problem)) => problem,
            other => panic!("the chain is broken, but the result is {other:?}"),
        }
    }

    fn export(&self) -> String {
        let store = SqliteStore::open(&self.path, Options::default()).unwrap();
        let entries = block_on(store.stored_audit_entries(0, 1_000)).unwrap();
        let mut chain = AuditChain::default();
        let lines = entries.into_iter().map(|entry| serde_json::to_string(&chain.export(entry)).unwrap() + "\n");
        lines.collect()
    }
}

#[test]
fn o3_unchanged_log_is_intact() {
    let log = Log::new();
    let verified = log.verify().unwrap();
    assert_eq!((verified.head, verified.anchored), (log.head.clone(), None));
    let exported = verify_lines(log.export().as_bytes(), Some(&AuditAnchor::Head(log.head.clone()))).unwrap();
    assert_eq!((exported.after, exported.head, exported.anchored), (0, log.head, Some(ENTRIES)));
}

/// The form of the hash is documented, so that other programs can check an exported log.
#[test]
fn o3_hash_is_the_digest_of_the_canonical_line() {
    use sha2::Digest as _;
    let log = Log::new();
    let mut checked = 0;
    for line in log.export().lines() {
        // The members of the maps of this type are sorted, unlike those of `serde_json::Value`.
        let mut members: std::collections::BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        let hash = members.remove("hash").unwrap();
        let body: std::collections::BTreeMap<String, serde_json::Value> =
            serde_json::from_value(members["body"].clone()).unwrap();
        members.insert("body".to_owned(), serde_json::to_value(body).unwrap());
        let digest = sha2::Sha256::digest(serde_json::to_vec(&members).unwrap());
        assert_eq!(hash, format!("sha256:{}", hex::encode(digest)), "{line}");
        checked += 1;
    }
    assert_eq!(checked, ENTRIES);
}

#[test]
fn o3_removed_and_reordered_entries_are_named() {
    let removed = Log::new();
    removed.change("DELETE FROM audit WHERE number IN (4, 5)");
    assert_eq!(removed.broken(), ChainProblem::Missing { after: 3, next: 6 });
    assert_eq!(
        removed.broken().to_string(),
        "the entries 4 to 5 are missing: the entry before is 3, and the next entry is 6"
    );
    let first = Log::new();
    first.change("DELETE FROM audit WHERE number = 1");
    assert_eq!(first.broken(), ChainProblem::Missing { after: 0, next: 2 });
    let swapped = Log::new();
    swapped.change(
        "UPDATE audit SET number = -1 WHERE number = 4; UPDATE audit SET number = 4 WHERE number = 5;
         UPDATE audit SET number = 5 WHERE number = -1;",
    );
    assert!(matches!(swapped.broken(), ChainProblem::Hash { number: 4, .. }));
}

#[test]
fn o3_cut_off_end_is_found_as_far_as_possible() {
    let log = Log::new();
    log.change("DELETE FROM audit WHERE number > 9");
    assert!(matches!(log.verify(), Err(AuditProblem::Truncated { last: 9, assigned: ENTRIES })));
    // A new entry does not hide the gap.
    let store = SqliteStore::open(&log.path, Options::default()).unwrap();
    block_on(store.audit(vec![action(99)])).unwrap();
    drop(store);
    assert_eq!(log.broken(), ChainProblem::Missing { after: 9, next: 13 });
    // Whoever also changes SQLite's counter is found only with a hash that was kept elsewhere.
    let hidden = Log::new();
    hidden.change("DELETE FROM audit WHERE number > 9; UPDATE sqlite_sequence SET seq = 9 WHERE name = 'audit';");
    assert_eq!(hidden.verify().unwrap().head.number, 9, "a chain alone cannot find this");
    let anchor = AuditAnchor::Head(hidden.head.clone());
    let found = verify(&hidden.path, Some(&anchor));
    assert!(matches!(found, Err(AuditProblem::EndsEarly { last: 9, expected: ENTRIES })), "{found:?}");
    let by_hash = verify(&hidden.path, Some(&AuditAnchor::Hash(hidden.head.hash.clone())));
    assert!(matches!(by_hash, Err(AuditProblem::NoSuchHash(_))), "{by_hash:?}");
}

/// A log that was written again from the beginning has an intact chain, but not the hash that was kept elsewhere.
#[test]
fn o3_rewritten_log_is_found_with_a_kept_hash() {
    let (original, rewritten) = (Log::new(), Log::new());
    rewritten.change("DELETE FROM audit; UPDATE sqlite_sequence SET seq = 0 WHERE name = 'audit';");
    let store = SqliteStore::open(&rewritten.path, Options::default()).unwrap();
    block_on(store.audit((1..=ENTRIES).map(|number| action(number + 1)).collect())).unwrap();
    drop(store);
    assert!(rewritten.verify().is_ok(), "a chain alone cannot find this");
    let found = verify(&rewritten.path, Some(&AuditAnchor::Head(original.head.clone())));
    assert!(matches!(found, Err(AuditProblem::Rewritten { number: ENTRIES, .. })), "{found:?}");
}

/// Each change that the property test makes, as SQL in which `:n` is the number of an entry and `:c` selects a byte.
const CHANGES: [&str; 9] = [
    "UPDATE audit SET time = time + :c + 1 WHERE number = :n",
    "UPDATE audit SET kind = kind || 'x' WHERE number = :n",
    "UPDATE audit SET subject = subject || char(:c + 1) WHERE number = :n",
    "UPDATE audit SET body = body || ' ' WHERE number = :n",
    "UPDATE audit SET hash = replace(hash, 'sha256:', 'sha256:0') WHERE number = :n",
    "UPDATE audit SET hash = (SELECT hash FROM audit WHERE number = 1 + :n % 12) WHERE number = :n",
    "UPDATE audit SET body = (SELECT body FROM audit WHERE number = 1 + :n % 12) WHERE number = :n",
    "DELETE FROM audit WHERE number = :n",
    "UPDATE audit SET number = number + 100 WHERE number = :n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any single change to any stored row is found.
    #[test]
    fn o3_any_change_to_a_row_is_found(number in 1..=ENTRIES, change in 0..CHANGES.len(), byte in 0_u8..120) {
        let log = Log::new();
        log.change(&CHANGES[change].replace(":n", &number.to_string()).replace(":c", &byte.to_string()));
        prop_assert!(log.verify().is_err(), "{} of entry {number}", CHANGES[change]);
    }

    /// Replacing any byte of a text column by another byte is found.
    #[test]
    fn o3_any_changed_byte_is_found(number in 1..=ENTRIES, column in 0_usize..4, position in 0_usize..4_096, byte in 32_u8..127) {
        let log = Log::new();
        let column = ["kind", "subject", "body", "hash"][column];
        let connection = Connection::open(&log.path).unwrap();
        let select = format!("SELECT {column} FROM audit WHERE number = ?1");
        let mut text: Vec<u8> = connection.query_row(&select, [number as i64], |row| row.get::<_, String>(0)).unwrap().into();
        let position = position % text.len();
        prop_assume!(text[position] != byte);
        text[position] = byte;
        let text = String::from_utf8(text).unwrap();
        let update = format!("UPDATE audit SET {column} = ?2 WHERE number = ?1");
        connection.execute(&update, params![number as i64, text]).unwrap();
        drop(connection);
        prop_assert!(log.verify().is_err(), "byte {position} of {column} of entry {number} is now {byte}");
    }

    /// Any changed byte of an exported log is found, if the hash of its last entry is kept. So are removed lines.
    #[test]
    fn o3_any_changed_byte_of_an_export_is_found(position in 0_usize..16_384, byte in 32_u8..127) {
        let log = Log::new();
        let mut exported = log.export().into_bytes();
        let position = position % exported.len();
        prop_assume!(exported[position] != byte && exported[position] != b'\n');
        exported[position] = byte;
        let found = verify_lines(&exported[..], Some(&AuditAnchor::Head(log.head.clone())));
        // A space is not part of the content, unless it is in a text.
        let original = log.export();
        let same = |text: &[u8]| {
            let lines = std::str::from_utf8(text).ok()?.lines().map(serde_json::from_str::<serde_json::Value>);
            lines.collect::<Result<Vec<_>, _>>().ok()
        };
        prop_assert!(found.is_err() || same(&exported) == same(original.as_bytes()), "byte {position} is now {byte}");
    }
}

#[test]
fn o3_exported_log_is_checked_without_the_database() {
    let log = Log::new();
    let exported = log.export();
    let lines: Vec<&str> = exported.lines().collect();
    // A part of a log says where it begins.
    let part = verify_lines(lines[4..].join("\n").as_bytes(), None).unwrap();
    assert_eq!((part.after, part.head.number), (4, ENTRIES));
    let without = [&lines[..3], &lines[4..]].concat().join("\n");
    let missing = verify_lines(without.as_bytes(), None);
    assert!(matches!(missing, Err(AuditProblem::Broken(ChainProblem::Missing { after: 3, next: 5 }))), "{missing:?}");
    let cut = verify_lines(lines[..6].join("\n").as_bytes(), Some(&AuditAnchor::Head(log.head.clone())));
    assert!(matches!(cut, Err(AuditProblem::EndsEarly { last: 6, expected: ENTRIES })), "{cut:?}");
    let other = lines[2].replace("plugin-3", "plugin-9");
    let changed = [&lines[..2], &[other.as_str()], &lines[3..]].concat().join("\n");
    let found = verify_lines(changed.as_bytes(), None);
    assert!(matches!(found, Err(AuditProblem::Broken(ChainProblem::Hash { number: 3, .. }))), "{found:?}");
    for (text, number) in [("", None), ("{}", Some(1)), ("\n[1]", Some(2))] {
        match (verify_lines(text.as_bytes(), None), number) {
            (Err(AuditProblem::Empty), None) => {}
            (Err(AuditProblem::Line { line, .. }), Some(number)) => assert_eq!(line, number),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}
