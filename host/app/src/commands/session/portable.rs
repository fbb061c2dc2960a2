//! `session fork|undo|export|import`: copies sessions, undoes their last turns, and moves sessions between
//! machines (D5).

use super::destination::{Destination, Existing, unwritable};
use crate::commands::stored_sessions::find;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_config::DataDirectory;
use agent_runtime::SessionRequest;
use agent_runtime::transfer::{self, ForkAt, ImportAs, ImportOptions, SessionDocument, TransferError};
use agent_store::{Store, StoreError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// File name that means stdin or stdout.
const PIPE: &str = "-";

/// Creates a new session from the messages that the model sees, and prints the id of the new session.
pub(super) async fn fork(
    store: &dyn Store,
    (session, at): (&str, Option<u64>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, data, Some(session)).await?;
    let at = at.map_or(ForkAt::Last, ForkAt::Message);
    let forked = transfer::fork(store, &session.subject, at).await.map_err(failure)?;
    terminal.print(&forked.session).map_err(Failure::output)?;
    let (messages, flag) = (text::count(forked.messages as usize, "message"), data.flag());
    let (from, to) = (session.subject, forked.session);
    terminal.note(format!(
        "forked {from} after message {}: the new session has {messages}; continue with agent-host --session {to}{flag}",
        forked.at
    ));
    Ok(Exit::Done)
}

/// Undoes the last turn, so that the model no longer sees the messages of that turn.
pub(super) async fn undo(
    store: Arc<dyn Store>,
    session: &str,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(&*store, data, Some(session)).await?;
    let later = "the messages of the turn stay stored, but later turns do not recall them";
    if super::sent::send(&*store, &session, &SessionRequest::Undo, terminal).await?.is_some() {
        terminal.note(format!("undid the last turn of {}; {later}", session.subject));
        return Ok(Exit::Done);
    }
    let mut open = super::open_to_decide(store, &session, data, Duration::ZERO).await?;
    if open.state().is_open() {
        let turn = open.state().turns;
        open.close().await.map_err(Failure::failed)?;
        let (id, flag) = (&session.subject, data.flag());
        return Err(Failure::refused(format!(
            "turn {turn} of {id} has not ended: end it with agent-host session cancel {id}{flag}, or continue it with agent-host \
             session resume {id}{flag} (and --agent FILE, or --plugins, --model and --grant, as before)"
        )));
    }
    let undone = open.undo().await;
    let left = text::count(open.state().view.len(), "message");
    open.close().await.map_err(Failure::failed)?;
    undone.map_err(Failure::refused)?;
    terminal.note(format!("undid the last turn of {}; the model now sees {left}; {later}", session.subject));
    Ok(Exit::Done)
}

/// Writes the session as one JSON document. The output file appears only when the document is complete.
pub(super) async fn export(
    (store, data): (&dyn Store, &DataDirectory),
    session: &str,
    (output, existing): (&Path, Existing),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = find(store, data, Some(session)).await?.subject;
    let exported = if output == Path::new(PIPE) {
        transfer::export(store, &session, &mut tokio::io::stdout()).await.map_err(failure)?
    } else {
        let (mut file, writing) = Destination::of(output, existing)?.open().await?;
        let exported = transfer::export(store, &session, &mut file).await.map_err(failure)?;
        file.flush().await.map_err(|error| unwritable(output, &error))?;
        writing.finish(file).await?;
        exported
    };
    let media = if exported.media == 1 { "1 media item".to_owned() } else { format!("{} media items", exported.media) };
    let what = format!("{} and {media}", text::count(exported.messages as usize, "message"));
    let destination = if output == Path::new(PIPE) { String::new() } else { format!(" to {}", output.display()) };
    terminal.note(format!("exported {session}{destination}: {what}"));
    Ok(Exit::Done)
}

/// Creates a session from an exported document, and prints the id of the session.
pub(super) async fn import(
    store: &dyn Store,
    (file, subject): (&Path, Option<String>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let document = read(file, data).await?;
    let subject = subject.map_or(ImportAs::OriginalSubject, ImportAs::Subject);
    let options = ImportOptions { subject, user: data.user() };
    let imported = transfer::import_for(store, document, options).await.map_err(|error| match error {
        TransferError::Store(StoreError::SessionExists { session }) => {
            Failure::refused(format!("session `{session}` exists already: --as ID imports it under another id"))
        }
        error => Failure::refused(format!("`{}`: {error}", file.display())),
    })?;
    terminal.print(&imported.session).map_err(Failure::output)?;
    let (messages, flag) = (text::count(imported.messages as usize, "message"), data.flag());
    let (session, agent) = (imported.session, imported.agent);
    for dropped in &imported.dropped {
        terminal.note(format!("not imported: {}", text::harmless(dropped)));
    }
    terminal.note(format!(
        "imported the session {session} of the agent `{agent}`, with {messages}; continue with agent-host --session {session}{flag}"
    ));
    Ok(Exit::Done)
}

/// Opens the document. The document is read more than once, so input from a pipe is first copied to an unnamed
/// temporary file.
async fn read(file: &Path, data: &DataDirectory) -> Result<SessionDocument, Failure> {
    let unreadable = |error: io::Error| Failure::refused(format!("`{}` cannot be read: {error}", file.display()));
    let refused = |error: TransferError| Failure::refused(format!("`{}`: {error}", file.display()));
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

/// Converts the error to a failure. If the output is a pipe whose reader has exited, for example `head`, the error is
/// handled like other output errors.
fn failure(error: TransferError) -> Failure {
    match error {
        TransferError::Write(error) if error.kind() == ErrorKind::BrokenPipe => Failure::output(error),
        error => Failure::refused(error),
    }
}
