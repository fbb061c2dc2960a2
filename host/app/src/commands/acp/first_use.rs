//! Asks the user of an editor for missing grants before a plugin is used for the first time (P6).

use crate::commands::first_use_queues::CurrentSession;
use crate::terminal::first_use::{RequestingPlugin, card};
use crate::terminal::{Terminal, text};
use agent_acp::{Choice, ChoiceKind, EditorQuestions};
use agent_config::first_use::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, FirstUseReport, Keeping};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

/// Asks the questions in the editor.
pub(super) struct EditorPrompt {
    pub(super) questions: EditorQuestions,
    pub(super) terminal: Terminal,
    /// The session in which the plugin is about to be used.
    pub(super) session: CurrentSession,
}

#[async_trait]
impl FirstUsePrompt for EditorPrompt {
    async fn ask(&self, request: &mut FirstUseQuestion<'_>, stop: &CancellationToken) -> FirstUseAnswer {
        if request.offers().offered.is_empty() {
            return FirstUseAnswer::Stopped;
        }
        let session = self.session.get();
        let details = card(&RequestingPlugin::from(&*request), request.offers());
        let details = anstream::adapter::strip_str(&details).to_string();
        let title = format!("Grant the plugin `{}` what it needs?", text::one_line(&request.plugin.name, 60));
        let chosen = self.questions.ask(&session, (&title, &details), &choices(request.keeping), stop).await;
        match chosen {
            Some("this_session") => FirstUseAnswer::ThisSession,
            Some("always") => FirstUseAnswer::Always,
            Some("no") => FirstUseAnswer::No,
            Some("never") => FirstUseAnswer::Never,
            _ => FirstUseAnswer::Stopped,
        }
    }

    fn report(&self, report: &FirstUseReport) {
        self.terminal.note(text::harmless(&report.to_string()));
    }
}

/// Returns the possible answers.
fn choices(keeping: Keeping) -> Vec<Choice> {
    let choice = |id, label: &str, kind| Choice { id, label: label.to_owned(), kind };
    // No answer applies to a single call, so that no answer has the kind of an answer that is given once.
    let mut choices = vec![choice("this_session", "Allow until this session is closed", ChoiceKind::AllowAlways)];
    if keeping == Keeping::File {
        choices.push(choice("always", "Allow, and write it into the configuration", ChoiceKind::AllowAlways));
    }
    choices.push(choice("no", "Don't allow in this session", ChoiceKind::RejectAlways));
    if keeping == Keeping::File {
        choices.push(choice("never", "Never ask again", ChoiceKind::RejectAlways));
    }
    choices
}
