//! `session fork|undo|export|import`: sessions as things that can be copied, taken back and carried elsewhere (D5).

use super::find;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_memory::{SqliteStore, Store, StoreError};
use agent_runtime::portable::{self, ForkAt, ImportAs, PortableError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// What stands for stdin and stdout where a file's name is asked for.
const PIPE: &str = "-";

/// Most bytes of a document: it is checked as a whole before anything of it is stored.
const MAX_DOCUMENT: u64 = 2 << 30;

/// Whether a file that is there may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    Keep,
    Replace,
}

/// Makes a new session of the visible messages; its id is the output.
pub(super) async fn fork(
    store: &dyn Store,
    (session, at): (&str, Option<u64>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, Some(session)).await?;
    let at = at.map_or(ForkAt::Last, ForkAt::Message);
    let forked = portable::fork(store, &session.subject, at).await.map_err(failure)?;
    terminal.print(&forked.session).map_err(Failure::output)?;
    let (messages, flag) = (text::count(forked.messages as usize, "message"), data.flag());
    let (from, to) = (session.subject, forked.session);
    terminal.note(format!(
        "forked {from} behind message {}: the new session has {messages}; go on with agent-host --session {to}{flag}",
        forked.at
    ));
    Ok(Exit::Done)
}

/// Takes the last turn out of the view.
pub(super) async fn undo(
    store: Arc<SqliteStore>,
    session: &str,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(&*store, Some(session)).await?;
    let mut open = super::open_to_decide(store, &session, data, Duration::ZERO).await?;
    let undone = open.undo().await;
    let left = text::count(open.state().view.len(), "message");
    open.close().await.map_err(Failure::failed)?;
    undone.map_err(Failure::refused)?;
    terminal.note(format!(
        "took the last turn of {} back; {left} left, and what was said stays stored, but is not remembered",
        session.subject
    ));
    Ok(Exit::Done)
}

/// Writes the session into one JSON document. A file appears when it is whole.
pub(super) async fn export(
    store: &dyn Store,
    session: &str,
    (output, existing): (&Path, Existing),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, Some(session)).await?.subject;
    let exported = if output == Path::new(PIPE) {
        portable::export(store, &session, &mut tokio::io::stdout()).await.map_err(failure)?
    } else {
        if existing == Existing::Keep && output.exists() {
            let path = output.display();
            return Err(Failure::refused(format!(
                "`{path}` is there already: --force replaces it, --output FILE writes another"
            )));
        }
        let part = beside(output);
        let written = write(store, &session, &part).await.and_then(|exported| {
            std::fs::rename(&part, output).map_err(|error| unwritable(output, &error))?;
            Ok(exported)
        });
        if written.is_err() {
            // It may not even have been made.
            let _ = std::fs::remove_file(&part);
        }
        written?
    };
    let media = if exported.media == 1 { "1 medium".to_owned() } else { format!("{} media", exported.media) };
    let what = format!("{} and {media}", text::count(exported.messages as usize, "message"));
    let place = if output == Path::new(PIPE) { String::new() } else { format!(" to {}", output.display()) };
    terminal.note(format!("exported {session}{place}: {what}"));
    Ok(Exit::Done)
}

async fn write(store: &dyn Store, session: &str, path: &Path) -> Result<portable::Exported, Failure> {
    let mut file = tokio::fs::File::create(path).await.map_err(|error| unwritable(path, &error))?;
    let exported = portable::export(store, session, &mut file).await.map_err(failure)?;
    file.sync_all().await.map_err(|error| unwritable(path, &error))?;
    Ok(exported)
}

/// A file of the same folder that nobody means.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Makes a session of such a document; its id is the output.
pub(super) async fn import(
    store: &dyn Store,
    (file, subject): (&Path, Option<String>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let document = read(file).await?;
    let subject = subject.map_or(ImportAs::Itself, ImportAs::Subject);
    let imported = portable::import(store, &document, subject).await.map_err(|error| match error {
        PortableError::Store(StoreError::SessionExists { session }) => {
            Failure::refused(format!("session `{session}` exists already: --as ID imports it under another id"))
        }
        error => Failure::refused(format!("`{}`: {error}", file.display())),
    })?;
    terminal.print(&imported.session).map_err(Failure::output)?;
    let (messages, flag) = (text::count(imported.messages as usize, "message"), data.flag());
    let (session, agent) = (imported.session, imported.agent);
    terminal.note(format!(
        "imported {session} with {messages}, a session of the agent `{agent}`; go on with agent-host --session {session}{flag}"
    ));
    Ok(Exit::Done)
}

async fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::refused(format!("`{}` cannot be read: {error}", file.display()));
    let mut document = Vec::new();
    if file == Path::new(PIPE) {
        tokio::io::stdin().take(MAX_DOCUMENT + 1).read_to_end(&mut document).await.map_err(unreadable)?;
    } else {
        let file = tokio::fs::File::open(file).await.map_err(unreadable)?;
        file.take(MAX_DOCUMENT + 1).read_to_end(&mut document).await.map_err(unreadable)?;
    }
    if document.len() as u64 > MAX_DOCUMENT {
        let (file, most) = (file.display(), text::size(MAX_DOCUMENT));
        return Err(Failure::refused(format!("`{file}` is larger than {most}, the most that is imported")));
    }
    Ok(document)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("`{}` cannot be written: {error}", path.display()))
}

/// A reader who has enough, as `head` has, is no failure.
fn failure(error: PortableError) -> Failure {
    match error {
        PortableError::Write(error) if error.kind() == ErrorKind::BrokenPipe => Failure::output(error),
        error => Failure::refused(error),
    }
}
