//! `audit verify`: checks the chain of the audit log, in the database or in an exported file (O3).

use super::entries;
use crate::arguments::versions::AnchorSource;
use crate::exit::{Exit, Failure};
use crate::terminal::{GREEN, Terminal, text};
use agent_config::DataDirectory;
use agent_store::{AuditAnchor, AuditProblem, Store, VerifiedAudit, verify_lines, verify_store};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Checks the log in the database.
pub(super) async fn database(
    (store, data): (&dyn Store, &DataDirectory),
    from: Option<AnchorSource>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let anchor = read_anchor(from).await?;
    let verified = verify_store(store, anchor.as_ref()).await;
    report(verified, "the audit log", terminal)?;
    if anchor.is_none() {
        let flag = data.flag();
        terminal.note(format!(
            "keep this hash on another machine: agent-host audit verify{flag} --from HASH later also finds a log that was \
             cut off or rewritten"
        ));
    }
    Ok(Exit::Done)
}

/// Checks an exported file.
pub(super) async fn file(file: PathBuf, from: Option<AnchorSource>, terminal: &Terminal) -> Result<Exit, Failure> {
    let anchor = read_anchor(from).await?;
    let verified = verify_file(file.clone(), anchor).await?;
    report(verified, &text::harmless(&format!("`{}`", file.display())), terminal)?;
    Ok(Exit::Done)
}

async fn read_anchor(from: Option<AnchorSource>) -> Result<Option<AuditAnchor>, Failure> {
    Ok(match from {
        None => None,
        Some(AnchorSource::Hash(hash)) => Some(AuditAnchor::Hash(hash.to_string())),
        Some(AnchorSource::File(file)) => {
            let verified = verify_file(file.clone(), None).await?;
            let broken = |error| Failure::refused(format!("`{}` cannot be used with --from: {error}", file.display()));
            Some(AuditAnchor::Head(verified.map_err(broken)?.head))
        }
    })
}

async fn verify_file(
    file: PathBuf,
    anchor: Option<AuditAnchor>,
) -> Result<Result<VerifiedAudit, AuditProblem>, Failure> {
    let unreadable = |file: &Path, error: &dyn std::fmt::Display| {
        Failure::refused(format!("`{}` cannot be read: {error}", file.display()))
    };
    let path = file.clone();
    let checked = tokio::task::spawn_blocking(move || {
        let open = File::open(&file).map_err(|error| unreadable(&file, &error))?;
        Ok(verify_lines(BufReader::new(open), anchor.as_ref()))
    });
    checked.await.map_err(|error| unreadable(&path, &error))?
}

fn report(verified: Result<VerifiedAudit, AuditProblem>, what: &str, terminal: &Terminal) -> Result<(), Failure> {
    let VerifiedAudit { after, head, anchored } = match verified {
        Ok(verified) => verified,
        Err(problem @ (AuditProblem::File(_) | AuditProblem::Empty)) => {
            return Err(Failure::refused(format!("{what}: {problem}")));
        }
        Err(AuditProblem::Store(error)) => return Err(Failure::failed(error)),
        Err(problem) => {
            return Err(Failure::failed(format!("{what} is not intact: {}", text::harmless(&problem.to_string()))));
        }
    };
    let mut lines = vec![match (head.number - after, after) {
        (0, _) => format!("{GREEN}✓{GREEN:#} {what} is empty"),
        (count, 0) => format!("{GREEN}✓{GREEN:#} {what} is intact: {}", entries(count)),
        (count, after) => format!(
            "{GREEN}✓{GREEN:#} {what} is intact: {}; it begins after entry {after} and says nothing about earlier entries",
            entries(count)
        ),
    }];
    if head.number > after {
        lines.push(format!("  the last entry is {} with the hash {}", head.number, head.hash));
    }
    if let Some(number) = anchored {
        lines.push(format!("  the entries up to {number} are the same as when the hash was kept"));
    }
    terminal.print(lines.join("\n")).map_err(Failure::output)
}
