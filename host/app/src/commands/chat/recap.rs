//! Shows the end of an earlier conversation, so that the user sees where it stopped.

use super::Chat;
use crate::exit::Failure;
use crate::terminal::{DIM, text};
use agent_core::message::{MessageId, Part, Role, StoredMessage};
use agent_core::run::Run;
use agent_store::MessageRange;

/// Number of turns that are shown.
const SHOWN_TURNS: usize = 2;
/// Maximum number of lines of each prompt.
const PROMPT_LINES: usize = 3;
/// Maximum number of lines of each reply.
const REPLY_LINES: usize = 8;

impl Chat<'_> {
    /// Shows the last prompts and replies of the session, shortened. Shows nothing if the session has no turn.
    pub(super) async fn show_last_turns(&self) -> Result<(), Failure> {
        let ids = last_messages(self.session.state());
        if ids.is_empty() {
            return Ok(());
        }
        let (store, subject) = (&self.host.store, self.session.subject());
        let messages = store.messages(subject, MessageRange::Ids(ids)).await.map_err(Failure::failed)?;
        for line in lines(&messages, self.terminal.width()) {
            self.note(if line.is_empty() { line } else { format!("{DIM}{line}{DIM:#}") });
        }
        Ok(())
    }
}

/// Returns the ids of the first and of the last message of each of the last turns that the model sees.
fn last_messages(run: &Run) -> Vec<MessageId> {
    let mut turns: Vec<u32> = run.view.iter().map(|entry| entry.turn).collect();
    turns.dedup();
    let mut ids = Vec::new();
    for turn in &turns[turns.len().saturating_sub(SHOWN_TURNS)..] {
        let of_turn = || run.view.iter().filter(|entry| entry.turn == *turn);
        ids.extend(of_turn().next().map(|entry| entry.id));
        ids.extend(of_turn().rfind(|entry| entry.role == Some(Role::Assistant)).map(|entry| entry.id));
    }
    ids
}

/// Returns the prompts and replies as lines of at most `width` columns, with an empty line before each prompt.
fn lines(messages: &[StoredMessage], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for message in messages {
        // The other texts of a prompt are its attachments.
        let shown = message.parts.iter().find_map(|part| match part {
            Part::Text(words) => Some(words.clone()),
            Part::Json(json) => Some(json.to_string()),
            _ => None,
        });
        let Some(shown) = shown.filter(|shown| !shown.trim().is_empty()) else { continue };
        match message.role {
            Role::User => {
                lines.push(String::new());
                let prompt = shortened(&shown, (width.saturating_sub(2), PROMPT_LINES));
                let marked = prompt.into_iter().enumerate();
                lines.extend(marked.map(|(index, line)| format!("{}{line}", if index == 0 { "> " } else { "  " })));
            }
            _ => lines.extend(shortened(&shown, (width, REPLY_LINES))),
        }
    }
    lines
}

/// Returns the first lines of a text. The last line says how many lines were left out.
fn shortened(words: &str, (width, max_lines): (usize, usize)) -> Vec<String> {
    let wrapped = text::wrapped(text::harmless(words.trim()).as_ref(), width);
    let all: Vec<&str> = wrapped.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut lines: Vec<String> = all.iter().take(max_lines).map(|line| text::cut(line, width)).collect();
    if all.len() > max_lines {
        lines.push(format!("… {}", text::count(all.len() - max_lines, "more line")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_recap_shows_prompts_and_replies_in_the_width_of_the_window() {
        let message = |role, parts| StoredMessage { id: 1, turn: 1, role, parts, tokens: 1 };
        let text = |text: &str| Part::Text(text.to_owned());
        let long: String = (1..=20).map(|number| format!("Line {number} of a long reply.\n\n")).collect();
        let messages = [
            message(Role::User, vec![Part::Preface("memory".into()), text("How many words has it?"), text("attached")]),
            message(Role::Assistant, vec![text(&long)]),
            message(Role::User, vec![text("Then\u{1b}[2J?")]),
            message(Role::Assistant, Vec::new()),
        ];
        let replies: String = (1..=4).map(|number| format!("Line {number} of a long\nreply.\n")).collect();
        let expected = format!("\n> How many words\n  has it?\n{replies}… 32 more lines\n\n> Then\\u{{1b}}[2J?");
        assert_eq!(lines(&messages, 16).join("\n"), expected);
    }
}
