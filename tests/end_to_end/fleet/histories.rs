//! A checker of histories. A trigger of the database writes down each change of a session's revision and lease, whatever the
//! processes believe, and the checker decides whether a fleet may produce this history (F1).

use super::Fleet;
use std::collections::BTreeMap;
use tokio_postgres::{Client, NoTls};

/// One change of a session: its revision, its epoch and its owner after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    session: String,
    revision: i64,
    epoch: i64,
    /// Id of the process that holds the lease. `None` if nobody holds it.
    owner: Option<String>,
}

const TRIGGER: &str = "
    CREATE TABLE history (number bigserial PRIMARY KEY, session text, revision bigint, epoch bigint, owner text);
    CREATE FUNCTION write_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO history (session, revision, epoch, owner) VALUES (NEW.session, NEW.revision, NEW.epoch, NEW.owner);
        RETURN NULL;
    END $$;
    CREATE TRIGGER write_history AFTER INSERT OR UPDATE OF revision, epoch, owner ON sessions
        FOR EACH ROW EXECUTE FUNCTION write_history();";

async fn connect(fleet: &Fleet) -> Client {
    let (client, connection) = tokio_postgres::connect(&fleet.address(), NoTls).await.expect("the database answers");
    tokio::spawn(connection);
    client
}

/// Begins to write histories. The tables must exist.
pub(super) async fn record(fleet: &Fleet) {
    connect(fleet).await.batch_execute(TRIGGER).await.expect("the trigger is created");
}

/// Reads the histories of all sessions, and panics if one of them is impossible. Returns the number of commits.
pub(super) async fn check(fleet: &Fleet) -> usize {
    let sql = "SELECT session, revision, epoch, owner FROM history ORDER BY number";
    let rows = connect(fleet).await.query(sql, &[]).await.expect("the history is read");
    let entry = |row: &tokio_postgres::Row| {
        let (session, revision, epoch, owner) = (row.get(0), row.get(1), row.get(2), row.get(3));
        Entry { session, revision, epoch, owner }
    };
    let entries: Vec<Entry> = rows.iter().map(entry).collect();
    commits_of(&entries).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Checks a history, and returns its number of commits. In each session, a commit raises the revision by one and changes neither
/// the epoch nor the owner, so it is made by the process that holds the lease. A lease is taken over with a higher epoch, in
/// which nobody else has committed.
fn commits_of(entries: &[Entry]) -> Result<usize, String> {
    let mut last: BTreeMap<&str, &Entry> = BTreeMap::new();
    let mut owners: BTreeMap<(&str, i64), &str> = BTreeMap::new();
    let mut commits = 0;
    for entry in entries {
        let Entry { session, revision, epoch, owner } = entry;
        let Some(before) = last.insert(session, entry) else {
            if *revision != 0 {
                return Err(format!("{session} begins with revision {revision}"));
            }
            continue;
        };
        if *epoch < before.epoch {
            return Err(format!("{session}: epoch {epoch} follows epoch {}", before.epoch));
        }
        match revision - before.revision {
            0 => {}
            1 if *epoch != before.epoch => {
                return Err(format!("{session}: the commit of revision {revision} takes the lease over"));
            }
            1 if owner.is_none() || *owner != before.owner => {
                return Err(format!(
                    "{session}: revision {revision} is committed by {owner:?}, not by {:?}",
                    before.owner
                ));
            }
            1 => commits += 1,
            _ => return Err(format!("{session}: revision {revision} follows revision {}", before.revision)),
        }
        if let Some(owner) = owner {
            let first = owners.entry((session, *epoch)).or_insert(owner);
            if first != owner {
                return Err(format!("{session}: epoch {epoch} belongs to {first} and to {owner}"));
            }
        }
    }
    Ok(commits)
}

#[test]
fn f1_the_checker_rejects_forged_histories() {
    let entry = |revision, epoch, owner: &str| Entry {
        session: "a/1".to_owned(),
        revision,
        epoch,
        owner: (!owner.is_empty()).then(|| owner.to_owned()),
    };
    let other = Entry { session: "b/1".to_owned(), ..entry(0, 1, "two") };
    let possible = [
        entry(0, 1, "one"),
        entry(1, 1, "one"),
        other,
        entry(2, 1, "one"),
        entry(2, 1, ""),
        entry(2, 2, "two"),
        entry(3, 2, "two"),
    ];
    assert_eq!(commits_of(&possible), Ok(3));
    let forged: [(&str, usize, Entry); 6] = [
        ("a revision is missing", 3, entry(3, 1, "one")),
        ("a revision is doubled by a process that has lost the lease", 6, entry(3, 1, "one")),
        ("a process commits in the epoch of another one", 3, entry(2, 1, "two")),
        ("two processes hold the lease in one epoch", 5, entry(2, 1, "two")),
        ("the epoch goes back", 5, entry(2, 0, "two")),
        ("a commit without a lease", 3, entry(2, 1, "")),
    ];
    for (why, position, forged) in forged {
        let mut history = possible.to_vec();
        history[position] = forged;
        assert!(commits_of(&history).is_err(), "{why}");
    }
    assert!(commits_of(&[entry(5, 1, "one")]).is_err(), "the beginning is missing");
}
