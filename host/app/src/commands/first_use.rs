//! Asks the user at the terminal for missing grants before a plugin is used for the first time (P6).

use super::user_presence::UserPresence;
use crate::terminal::first_use::{Answer, card, help, question};
use crate::terminal::{DIM, Terminal, TypedLine, YELLOW, text};
use agent_config::HostEnvironment;
use agent_config::first_use::{
    FirstUseAnswer, FirstUseHandler, FirstUsePrompt, FirstUseQuestion, FirstUseReport, OfferedHosts,
};
use agent_plugins::host_patterns;
use agent_runtime::FirstUse;
use agent_store::Store;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// Creates a handler that asks the user. If no user is at the terminal, the handler asks nothing, and calls run with
/// the existing grants.
pub(crate) fn handler(
    (terminal, user): (&Terminal, UserPresence),
    store: Arc<dyn Store>,
    environment: HostEnvironment,
    first_uses: (Receiver<FirstUse>, BTreeMap<String, PathBuf>),
) -> FirstUseHandler {
    match user {
        UserPresence::AtTerminal => FirstUseHandler::new(Arc::new(terminal.clone()), store, environment, first_uses),
        UserPresence::Absent => closed_handler(terminal, store),
    }
}

/// Creates a handler for a command that cannot ask the user about plugins.
pub(crate) fn closed_handler(terminal: &Terminal, store: Arc<dyn Store>) -> FirstUseHandler {
    FirstUseHandler::closed(Arc::new(terminal.clone()), store)
}

#[async_trait]
impl FirstUsePrompt for Terminal {
    async fn ask(&self, request: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer {
        self.idle();
        let show = |request: &FirstUseQuestion<'_>| {
            let mut shown = card(&request.into(), request.offers());
            if let Some(folder) = request.narrower_folder() {
                shown.push_str(&format!("\n  {DIM}`d {}` offers only this folder{DIM:#}", text::harmless(&folder)));
            }
            self.note(text::wrapped_entry(&shown, self.width()));
        };
        show(request);
        loop {
            let line = match self.question(question(request.keeping), stop).await {
                Ok(TypedLine::Text(line)) => line,
                Ok(TypedLine::Stopped) => return FirstUseAnswer::Stopped,
                Ok(TypedLine::End) | Err(_) => return FirstUseAnswer::No,
            };
            match Answer::parse(&line) {
                Some(Answer::ThisSession | Answer::Always) if request.offers().offered.is_empty() => {
                    warn(
                        self,
                        "the answer yes would grant nothing here: `d DIR` names an existing folder, and `n` means no",
                    );
                }
                Some(Answer::ThisSession) => return FirstUseAnswer::ThisSession,
                Some(Answer::Always) => return FirstUseAnswer::Always,
                Some(Answer::No) => return FirstUseAnswer::No,
                Some(Answer::Never) => return FirstUseAnswer::Never,
                Some(Answer::Folder(written)) if request.offers().has_folder() => {
                    request.offer_folder(&written);
                    show(request);
                }
                Some(Answer::ReadOnly) if request.offers().has_write() => {
                    request.offer_read_only();
                    show(request);
                }
                Some(Answer::Host(typed)) if request.offers().has_requests() => {
                    let patterns = host_patterns(&typed);
                    if typed != "*" && patterns.is_empty() {
                        warn(self, "write the server as `a.example`, `a.example:8080` or `https://a.example`");
                        continue;
                    }
                    request.offer_hosts(if typed == "*" { OfferedHosts::All } else { OfferedHosts::Typed(patterns) });
                    show(request);
                }
                Some(Answer::Help | Answer::Folder(_) | Answer::ReadOnly | Answer::Host(_)) | None => {
                    self.note(text::wrapped_entry(&help(request.offers(), request.keeping), self.width()));
                }
            }
        }
    }

    fn report(&self, report: &FirstUseReport) {
        let message = report.to_string();
        if report.is_warning() {
            return warn(self, &message);
        }
        let line = format!("{DIM}{}{DIM:#}", text::harmless(&message));
        self.note(text::wrapped(&line, self.width()));
    }
}

fn warn(terminal: &Terminal, line: &str) {
    let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(line));
    terminal.note(text::wrapped(&line, terminal.width()));
}
