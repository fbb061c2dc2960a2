//! `session show --request`: prints the request of a model call.

use crate::arguments::RequestNumber;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_runtime::replay::{SentRequest, sent_request};
use agent_store::{SessionSummary, Store};

/// Prints the body of the request as it was sent. If the model was not called over HTTP, prints the request in the host's
/// own format.
pub(super) async fn show(
    store: &dyn Store,
    session: &SessionSummary,
    number: RequestNumber,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let found = sent_request(store, &session.subject, number.turn, number.step).await;
    let SentRequest { turn, step, request, body, .. } = found.map_err(Failure::refused)?;
    let (document, description) = match body {
        Some(body) => {
            let how = match body.is_exact {
                true => "exactly as it was sent",
                false => {
                    "not exactly as it was sent: another version of the host encoded it, a secret was removed from the stored \
                     messages, or the session was imported"
                }
            };
            (String::from_utf8_lossy(&body.bytes).into_owned(), how)
        }
        None => {
            let document = serde_json::to_string(&request).expect("a request serialises to JSON");
            (document, "in the host's own format, because no reply of a model over HTTP is recorded for it")
        }
    };
    let size = text::grouped(document.len() as u64);
    terminal.note(format!("request {turn}.{step} to {}, {size} bytes, {description}", request.model));
    terminal.print_foreign(&document).map_err(Failure::output)?;
    Ok(Exit::Done)
}
