//! `store check|rebuild`: compares the indexes for searching and listing with the stored data that the indexes are
//! built from, and rebuilds the indexes (D6). `store copy`: copies a database (F1).

mod copy;

use crate::arguments::StoreCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{DIM, GREEN, RED, Terminal, text};
use agent_config::{DataDirectory, DataLocation, MediaStore, assembly};
use agent_runtime::session::status_of;
use agent_store::{Projection, ProjectionComparison, Store};
use serde_json::json;
use std::sync::Arc;

/// Runs a subcommand of `store`.
pub(crate) async fn run(
    command: StoreCommand,
    location: DataLocation<'_>,
    media: Option<&MediaStore>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    match command {
        StoreCommand::Check { json } => {
            let (data, store) = open(location).await?;
            check(&*store, json, &data, terminal).await
        }
        StoreCommand::Rebuild => {
            let (data, store) = open(location).await?;
            rebuild(&*store, &data, terminal).await
        }
        StoreCommand::Copy { from, to, json } => {
            copy::run((&from, to.as_deref()), (location, media), json, terminal).await
        }
    }
}

async fn open(location: DataLocation<'_>) -> Result<(DataDirectory, Arc<dyn Store>), Failure> {
    let data = DataDirectory::open(location, &environment::host())?;
    if !data.has_store() {
        let database = data.store_name();
        return Err(Failure::refused(format!(
            "there is no database `{database}` yet, because nothing has been stored"
        )));
    }
    let store = assembly::open_store_to_rebuild(&data).await?;
    Ok((data, store))
}

async fn check(store: &dyn Store, json: bool, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let file = store.integrity_check().await.err().map(|error| error.to_string());
    let compared = store.check_projections(status_of).await.map_err(Failure::failed)?;
    let print = |line: String| terminal.print(line).map_err(Failure::output);
    let is_consistent = file.is_none() && compared.iter().all(|comparison| comparison.different == 0);
    if json {
        print(json!({"file": data.store_name(), "problem": file}).to_string())?;
        for comparison in &compared {
            print(serde_json::to_string(comparison).map_err(Failure::failed)?)?;
        }
        return Ok(if is_consistent { Exit::Done } else { Exit::Failed });
    }
    print(match &file {
        None => match data.shared_database() {
            None => format!("{GREEN}✓{GREEN:#} the file {} is intact", data.store_name()),
            // PostgreSQL checks its own files.
            Some(database) => format!("{GREEN}✓{GREEN:#} the stored content in {database} matches its digests"),
        },
        Some(problem) => format!("{RED}✗{RED:#} {}", text::harmless(problem)),
    })?;
    for comparison in &compared {
        print(describe(comparison))?;
    }
    if is_consistent {
        return Ok(Exit::Done);
    }
    let flag = data.flag();
    if compared.iter().any(|comparison| comparison.different > 0) {
        terminal.note(format!(
            "agent-host store rebuild{flag} rebuilds the indexes that differ; no stored message is changed"
        ));
    }
    Ok(Exit::Failed)
}

async fn rebuild(store: &dyn Store, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let before = store.check_projections(status_of).await.map_err(Failure::failed)?;
    for comparison in before.iter().filter(|comparison| comparison.different > 0) {
        terminal.print(describe(comparison)).map_err(Failure::output)?;
    }
    for comparison in store.rebuild_projections(status_of).await.map_err(Failure::failed)? {
        let (name, things) = nouns(comparison.projection);
        let line = format!("rebuilt {name} from {}", counted(comparison.made_from, things));
        terminal.print(line).map_err(Failure::output)?;
    }
    let differing: Vec<_> = store.check_projections(status_of).await.map_err(Failure::failed)?;
    let differing: Vec<_> = differing.iter().filter(|comparison| comparison.different > 0).map(describe).collect();
    // The indexes have just been rebuilt, so if this check fails, other parts of the file are damaged.
    store.integrity_check().await.map_err(Failure::failed)?;
    match differing.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Failure::failed(format!("{} still differs:\n{}", data.store_name(), differing.join("\n")))),
    }
}

/// Returns the words that messages use for a projection: the projection's name, and the singular and plural of the noun
/// for its source records.
fn nouns(projection: Projection) -> (&'static str, [&'static str; 2]) {
    match projection {
        Projection::MessageWords => ("the search index of messages", ["message", "messages"]),
        Projection::MemoryWords => ("the search index of memories", ["memory", "memories"]),
        Projection::Sessions => ("the list of sessions", ["session", "sessions"]),
        Projection::Usage => ("the usage of turns", ["turn", "turns"]),
    }
}

fn counted(number: u64, [singular, plural]: [&str; 2]) -> String {
    format!("{} {}", text::grouped(number), if number == 1 { singular } else { plural })
}

fn describe(comparison: &ProjectionComparison) -> String {
    let (name, things) = nouns(comparison.projection);
    let compared = counted(comparison.compared, things);
    let compared = match comparison.pending {
        0 => compared,
        pending => format!("{compared} ({} more are added by the next search)", text::grouped(pending)),
    };
    if comparison.different == 0 {
        return format!("{GREEN}✓{GREEN:#} {name}: {compared}");
    }
    let mut lines = vec![format!("{RED}✗{RED:#} {name}: {compared}, {} of them different", comparison.different)];
    lines.extend(comparison.examples.iter().map(|example| format!("    {DIM}{}{DIM:#}", text::one_line(example, 200))));
    if comparison.different > comparison.examples.len() as u64 {
        lines.push(format!("    {DIM}…{DIM:#}"));
    }
    lines.join("\n")
}
