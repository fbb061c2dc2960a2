//! `session fork|undo|export|import`: sessions as things that can be copied, taken back and carried elsewhere (D5).

use super::destination::{Destination, Existing, unwritable};
use super::find;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_runtime::portable::{self, ForkAt, ImportAs, ImportOptions, PortableError, SessionDocument};
use agent_store::{SqliteStore, Store, StoreError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// What stands for stdin and stdout where a file's name is asked for.
const PIPE: &str = "-";

/// Makes a new session of the visible messages; its id is the output.
pub(super) async fn fork(
    store: &dyn Store,
    (session, at): (&str, Option<u64>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, data, Some(session)).await?;
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
    let session = find(&*store, data, Some(session)).await?;
    let mut open = super::open_to_decide(store, &session, data, Duration::ZERO).await?;
    if open.state().is_open() {
        let turn = open.state().turns;
        open.close().await.map_err(Failure::failed)?;
        let (id, flag) = (&session.subject, data.flag());
        return Err(Failure::refused(format!(
            "turn {turn} of {id} has not ended: agent-host session cancel {id}{flag} ends it, and agent-host session resume {id}{flag} \
             goes on with it (with --agent FILE, or --plugins, --model and --grant, as before)"
        )));
    }
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
    (store, data): (&dyn Store, &DataDirectory),
    session: &str,
    (output, existing): (&Path, Existing),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, data, Some(session)).await?.subject;
    let exported = if output == Path::new(PIPE) {
        portable::export(store, &session, &mut tokio::io::stdout()).await.map_err(failure)?
    } else {
        let (mut file, writing) = Destination::of(output, existing)?.open().await?;
        let exported = portable::export(store, &session, &mut file).await.map_err(failure)?;
        file.flush().await.map_err(|error| unwritable(output, &error))?;
        writing.finish(file).await?;
        exported
    };
    let media = if exported.media == 1 { "1 medium".to_owned() } else { format!("{} media", exported.media) };
    let what = format!("{} and {media}", text::count(exported.messages as usize, "message"));
    let place = if output == Path::new(PIPE) { String::new() } else { format!(" to {}", output.display()) };
    terminal.note(format!("exported {session}{place}: {what}"));
    Ok(Exit::Done)
}

/// Makes a session of such a document; its id is the output.
pub(super) async fn import(
    store: &dyn Store,
    (file, subject): (&Path, Option<String>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let document = read(file, data).await?;
    let subject = subject.map_or(ImportAs::Itself, ImportAs::Subject);
    let options = ImportOptions { subject, user: data.user() };
    let imported = portable::import_for(store, document, options).await.map_err(|error| match error {
        PortableError::Store(StoreError::SessionExists { session }) => {
            Failure::refused(format!("session `{session}` exists already: --as ID imports it under another id"))
        }
        error => Failure::refused(format!("`{}`: {error}", file.display())),
    })?;
    terminal.print(&imported.session).map_err(Failure::output)?;
    let (messages, flag) = (text::count(imported.messages as usize, "message"), data.flag());
    let (session, agent) = (imported.session, imported.agent);
    for dropped in &imported.dropped {
        terminal.note(format!("not taken over: {}", text::harmless(dropped)));
    }
    terminal.note(format!(
        "imported {session} with {messages}, a session of the agent `{agent}`; go on with agent-host --session {session}{flag}"
    ));
    Ok(Exit::Done)
}

/// Opens the document. It is read more than once, so what comes from a pipe is copied into a file without a name.
async fn read(file: &Path, data: &DataDirectory) -> Result<SessionDocument, Failure> {
    let unreadable = |error: io::Error| Failure::refused(format!("`{}` cannot be read: {error}", file.display()));
    let refused = |error: PortableError| Failure::refused(format!("`{}`: {error}", file.display()));
    let copy = || tempfile::tempfile_in(data.root()).map_err(unreadable);
    if file == Path::new(PIPE) {
        return SessionDocument::copied(io::stdin(), copy()?).await.map_err(refused);
    }
    let open = tokio::fs::File::open(file).await.map_err(unreadable)?.into_std().await;
    match open.metadata().map_err(unreadable)?.is_file() {
        true => Ok(open.into()),
        false => SessionDocument::copied(open, copy()?).await.map_err(refused),
    }
}

/// A reader who has enough, as `head` has, is no failure.
fn failure(error: PortableError) -> Failure {
    match error {
        PortableError::Write(error) if error.kind() == ErrorKind::BrokenPipe => Failure::output(error),
        error => Failure::refused(error),
    }
}
