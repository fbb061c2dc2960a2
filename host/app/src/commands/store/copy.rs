//! `store copy FROM TO`: copies all data of one database into another (F1).

use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{GREEN, Terminal, text};
use agent_config::assembly::{CopyPlace, StoreCopyError, copy_all_data};
use agent_config::{DataLocation, MediaStore};
use agent_store::{CopyError, CopyProgress, CopyReport};
use serde_json::json;

/// Runs `store copy`. Without a second place, the target is the database that `--store` or the environment selects.
pub(super) async fn run(
    (from, to): (&str, Option<&str>),
    (location, media): (DataLocation<'_>, Option<&MediaStore>),
    json: bool,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let environment = environment::host();
    let from = CopyPlace::source(from, &environment)?;
    let to = match (to, location.database) {
        (Some(to), _) => CopyPlace::target(to, media, &environment)?,
        (None, Some(database)) => CopyPlace::Database(Box::new(database.clone())),
        (None, None) => {
            return Err(Failure::refused(
                "the target is missing: name a second database, or select one with --store or AGENT_HOST_STORE",
            ));
        }
    };
    terminal.busy(format!("connecting to {to}"));
    let copied = copy_all_data(&from, &to, &environment, |progress| terminal.busy(describe(progress))).await;
    terminal.idle();
    let CopyReport { sessions, unchanged, rows } = copied.map_err(failure)?;
    let line = match json {
        true => json!({"from": from.to_string(), "to": to.to_string(), "copied": sessions, "unchanged": unchanged,
                       "rows": rows})
        .to_string(),
        false => {
            let copied = text::count(usize::try_from(sessions).unwrap_or(usize::MAX), "session");
            let already = match unchanged {
                0 => String::new(),
                unchanged => format!(" ({} more were already there)", text::grouped(unchanged)),
            };
            let compared = text::grouped(rows);
            format!("{GREEN}✓{GREEN:#} copied {copied} to {to}{already}, and compared {compared} rows")
        }
    };
    terminal.print(line).map_err(Failure::output)?;
    Ok(Exit::Done)
}

fn describe(CopyProgress { session, number, total }: CopyProgress<'_>) -> String {
    let (number, total) = (text::grouped(number as u64), text::grouped(total as u64));
    format!("copying session {number} of {total}: {}", text::one_line(session, 100))
}

/// Says what is in the target after a failure.
fn failure(error: StoreCopyError) -> Failure {
    match error {
        StoreCopyError::Copy(error @ (CopyError::Store(_) | CopyError::MissingBytes { .. })) => {
            Failure::failed(format!(
                "{error}; the sessions that were already copied stay in the target, and the same command continues the copy"
            ))
        }
        StoreCopyError::Copy(error) => Failure::failed(error),
        error => Failure::refused(error),
    }
}
