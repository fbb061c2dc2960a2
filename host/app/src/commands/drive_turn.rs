//! Runs a turn, shows its events, and asks the user about plugins that the turn uses for the first time.

use crate::exit::Failure;
use crate::terminal::turn::TurnView;
use agent_config::first_use::FirstUseHandler;
use agent_core::message::{CallId, TurnInput};
use agent_core::run::Action;
use agent_runtime::{FirstUse, Session, SessionError, TurnResult, question};
use std::io::ErrorKind;
use std::pin::Pin;
use tokio_util::sync::CancellationToken;

/// Returns true if no further turn may run, because this turn has not ended or the user has cancelled it.
pub(super) fn stops(result: &TurnResult, cancel: &CancellationToken) -> bool {
    matches!(result, TurnResult::Suspended(_) | TurnResult::Interrupted) || cancel.is_cancelled()
}

/// Returns the tool call that asked the open question. Returns `None` if there is no open question.
pub(super) fn open_question(session: &Session) -> Option<CallId> {
    match session.state().action() {
        Action::Suspended(suspension) => question(&suspension).map(|(call, _)| call.clone()),
        _ => None,
    }
}

/// Shows that a turn begins, runs the turn, and shows its events as they arrive.
pub(super) async fn start_turn(
    session: &mut Session,
    input: Option<TurnInput>,
    (view, first_uses): (&mut TurnView<'_>, &mut FirstUseHandler),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    view.begin(session);
    continue_turn(session, input, (view, first_uses), cancel).await
}

/// Runs or continues a turn whose beginning was already shown, and shows the turn's events as they arrive.
pub(super) async fn continue_turn(
    session: &mut Session,
    input: Option<TurnInput>,
    (view, first_uses): (&mut TurnView<'_>, &mut FirstUseHandler),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let mut events = session.subscribe();
    let mut unwritten = None;
    let result = {
        let running = session.run(input, cancel.clone());
        tokio::pin!(running);
        loop {
            let first_use = tokio::select! {
                biased;
                event = events.recv() => {
                    // The output cannot be written, for example because the program that reads it has ended (L29) or
                    // the disk is full.
                    if let Err(error) = view.receive(event).await {
                        cancel.cancel();
                        unwritten.get_or_insert(error);
                    }
                    continue;
                }
                first_use = first_uses.next() => first_use,
                result = &mut running => break result,
            };
            // Show the events that have already arrived, so that they appear above the question. Events that arrive
            // while the host waits for the user's answer are shown below this answer.
            while view.receive_waiting(&mut events).await.unwrap_or(false) {}
            if let Some(result) = serve_first_use(first_uses, first_use, running.as_mut(), cancel).await {
                break result;
            }
        }
    };
    while view.receive_waiting(&mut events).await.unwrap_or(false) {}
    view.note_cost(session);
    if let Err(error) = session.deliver_events().await {
        view.note_undelivered_event(&error);
    }
    if let Some(error) = unwritten.filter(|error: &std::io::Error| error.kind() != ErrorKind::BrokenPipe) {
        return Err(Failure::output(error));
    }
    result.map_err(|error| match error {
        // The session could not be restored, so no work was started.
        SessionError::Restore { .. } => Failure::refused(error),
        error => Failure::failed(error),
    })
}

/// Asks the user about a plugin while the turn's other calls run. Returns the turn's result if the turn ends before the
/// user answers.
async fn serve_first_use<R>(
    first_uses: &mut FirstUseHandler,
    first_use: FirstUse,
    mut running: Pin<&mut impl Future<Output = R>>,
    cancel: &CancellationToken,
) -> Option<R> {
    let (stop, mut result) = (cancel.child_token(), None);
    let serving = first_uses.serve(first_use, &stop);
    tokio::pin!(serving);
    loop {
        tokio::select! {
            biased;
            () = &mut serving => return result,
            ended = &mut running, if result.is_none() => {
                // Cancel the question, so that the question releases the keyboard.
                stop.cancel();
                result = Some(ended);
            }
        }
    }
}
