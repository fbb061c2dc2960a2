//! How a turn ended, for people or as the last JSON line.

use super::{Block, Format, To, TurnView, Use};
use crate::commands::session::{below, show};
use crate::exit::{Exit, Failure};
use crate::terminal::markdown::Markdown;
use crate::terminal::{DIM, YELLOW, text, waits};
use agent_core::change::{CallRecord, CallState};
use agent_core::event::{EndReason, Suspension, WaitCause};
use agent_core::message::TurnInput;
use agent_core::run::{Output, Turn, TurnError};
use agent_runtime::{Session, TurnResult, question};
use serde_json::{Value, json};

impl TurnView<'_> {
    /// Nothing is left to do; what follows is how the last turn ended.
    pub(crate) fn nothing_interrupted(&self) {
        self.terminal.note(format!("{DIM}nothing was interrupted; this is how the last turn ended:{DIM:#}"));
    }

    /// The session waits, so what was asked now has not been sent.
    pub(crate) fn not_asked(&self) {
        self.terminal
            .note(format!("{YELLOW}!{YELLOW:#} the interrupted turn comes first: what you ask now was not sent"));
    }

    /// A prompt came while a turn was open that has not ended.
    pub(crate) fn kept_prompt(&self) {
        self.terminal.note(format!(
            "{YELLOW}!{YELLOW:#} the open turn comes first: your prompt is kept, and is asked when that turn has ended"
        ));
    }

    /// A prompt that was kept is asked now.
    pub(crate) fn asks_kept(&self, prompt: &TurnInput) {
        let prompt = text::one_line(&prompt.message().plain_text(), 80);
        self.terminal.note(format!("{DIM}now the prompt that was kept: {prompt}{DIM:#}"));
    }

    /// So many prompts that were kept were given up with the turn.
    pub(crate) fn dropped_prompts(&self, count: usize) {
        if count > 0 {
            let prompts = text::count(count, "prompt");
            self.terminal
                .note(format!("{YELLOW}!{YELLOW:#} {prompts} that waited for the end of the turn will not be asked"));
        }
    }

    /// The turn of a prompt that was kept has ended, and another begins.
    pub(crate) fn earlier_turn_ended(&self, result: &TurnResult) -> Result<(), Failure> {
        self.turn_ended(result, "that turn")
    }

    /// An interrupted turn has ended, and another begins.
    pub(crate) fn interrupted_turn_ended(&self, result: &TurnResult) -> Result<(), Failure> {
        self.turn_ended(result, "the interrupted turn")
    }

    fn turn_ended(&self, result: &TurnResult, which: &str) -> Result<(), Failure> {
        match (result, self.format) {
            (TurnResult::Finished(output), Format::Json) => self.print_output(output),
            (TurnResult::Failed(error), Format::Json) => self.print_failure(error),
            (TurnResult::Finished(_), Format::Terminal) => {
                self.terminal.note(format!("{DIM}{which} has ended{DIM:#}"));
                Ok(())
            }
            (TurnResult::Finished(output), Format::Lines) => {
                let answer = text::harmless(&answer(output)).into_owned();
                self.terminal.note(format!("{DIM}{which} has ended:{DIM:#}\n{answer}"));
                Ok(())
            }
            (TurnResult::Failed(error), _) => {
                self.terminal.note(format!("{YELLOW}!{YELLOW:#} {which} has ended with an error: {error}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What the turn has cost, for whoever reads how it came out.
    pub(crate) fn note_cost(&mut self, session: &Session) {
        self.cost = session.state().turn.as_ref().map(Turn::cost);
    }

    /// Shows how the last turn came out.
    pub(crate) async fn end(&mut self, result: TurnResult) -> Result<Exit, Failure> {
        self.terminal.idle();
        match result {
            TurnResult::Finished(output) => {
                match self.format {
                    Format::Json => self.print_output(&output)?,
                    Format::Lines | Format::Terminal => self.print_answer(&output)?,
                }
                // A question that nobody has answered is no answer.
                Ok(if output.finish == EndReason::Asked { Exit::Failed } else { Exit::Done })
            }
            TurnResult::Failed(error) => {
                self.print_failure(&error)?;
                match self.usage {
                    Use::Once => Err(Failure::failed(format!("{error} · session {}", self.session))),
                    Use::Interactive => Err(Failure::failed(error)),
                }
            }
            TurnResult::Cancelled => {
                // Where nobody reads any more, that is why the turn was cancelled.
                self.print_status("cancelled", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.kept.data.flag());
                self.page.note(
                    Block::Note,
                    match self.usage {
                        Use::Once => format!(
                            "{DIM}cancelled; to ask on: agent-host --session {session}{flag} \"…\", with the same options \
                             as before{DIM:#}"
                        ),
                        Use::Interactive => format!("{DIM}cancelled; ask on, or /undo takes the turn back{DIM:#}"),
                    },
                );
                Ok(Exit::Cancelled)
            }
            TurnResult::Interrupted => {
                self.print_status("interrupted", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.kept.data.flag());
                let to_go_on = format!("agent-host --session {session}{flag}");
                self.page.note(
                    Block::Note,
                    format!(
                        "{DIM}interrupted, since the process was asked to end; to go on: {to_go_on}, with the same options as \
                         before{DIM:#}"
                    ),
                );
                Ok(Exit::Cancelled)
            }
            TurnResult::Suspended(suspension) => {
                let calls = suspension.unknown().map(|wait| wait.call.clone()).collect();
                self.print_status("suspended", json!({"suspension": suspension}))?;
                if let Some((_, question)) = question(&suspension) {
                    self.ask(question);
                    return Ok(Exit::Suspended);
                }
                let mut calls = self.calls(calls).await.map_err(Failure::failed)?;
                calls.retain(|call| call.state == CallState::OutcomeUnknown);
                let waiting = match self.usage {
                    _ if calls.is_empty() => None,
                    Use::Once => Some(show::waiting(&self.session, &calls, &self.kept.data)),
                    Use::Interactive => Some(self.fitted(waiting(&calls))),
                };
                let mut others =
                    waits::shown(&self.session, &suspension.waits, (&*self.kept.store, &self.kept.data)).await?;
                if self.usage == Use::Interactive && !others.is_empty() {
                    others.push_str("\n  or here: /respond FILE answers, /cancel ends the turn");
                }
                let others = (!others.is_empty()).then_some(others);
                let mut below = below::waiting(&*self.kept.store, &suspension, &self.kept.data).await?;
                if self.usage == Use::Interactive && !below.is_empty() {
                    below.push(format!(
                        "{DIM}or here: /approve asks what can be answered, /cancel ends the turn{DIM:#}"
                    ));
                }
                for lines in waiting.into_iter().chain(others).chain(below) {
                    self.page.note(Block::Note, self.fitted(lines));
                }
                self.note_asked(&suspension).await?;
                Ok(Exit::Suspended)
            }
            TurnResult::Idle => {
                self.print_status("idle", json!({}))?;
                self.terminal.note("there is nothing to go on with: ask something");
                Ok(Exit::Done)
            }
        }
    }

    /// Calls that somebody must allow, and nobody has answered about.
    async fn note_asked(&mut self, suspension: &Suspension) -> Result<(), Failure> {
        let asked = suspension.waits.iter().filter(|wait| wait.cause == WaitCause::Approval);
        let asked = self.calls(asked.map(|wait| wait.call.clone()).collect()).await.map_err(Failure::failed)?;
        if !asked.is_empty() {
            let waiting = match self.usage {
                Use::Once => show::asked(&self.session, &asked, &self.kept.data),
                Use::Interactive => {
                    format!("{YELLOW}waits for an approval{YELLOW:#}: /approve asks again, /cancel ends the turn")
                }
            };
            self.page.note(Block::Note, waiting);
        }
        Ok(())
    }

    /// The model's question, and how it is answered (L18).
    fn ask(&mut self, question: &str) {
        let asked = text::harmless(question).replace('\n', "\n  ");
        let (session, flag) = (&self.session, self.kept.data.flag());
        let how = match self.usage {
            Use::Once => format!(
                "answer with agent-host --session {session}{flag} \"…\" and the same options as before, or with \
                 agent-host session answer {session}{flag} \"…\""
            ),
            Use::Interactive => "the next line that you write is the answer; /cancel ends the turn".to_owned(),
        };
        let lines = self.fitted(format!("{YELLOW}?{YELLOW:#} {asked}\n{DIM}{how}{DIM:#}"));
        self.page.note(Block::Note, lines);
    }

    fn print_output(&self, output: &Output) -> Result<(), Failure> {
        self.print_status("finished", serde_json::to_value(output).map_err(Failure::failed)?)
    }

    fn print_failure(&self, error: &TurnError) -> Result<(), Failure> {
        self.print_status("failed", error.details())
    }

    /// The last line of a turn, however it ended.
    fn print_status(&self, status: &str, details: Value) -> Result<(), Failure> {
        if self.format != Format::Json {
            return Ok(());
        }
        let mut line = json!({"type": "result", "status": status, "session": self.session});
        let cost = self.cost.filter(|_| status != "idle").map(|cost| json!(cost)).unwrap_or_default();
        if let Some(line) = line.as_object_mut() {
            // Details come last: an output says itself what it cost.
            for more in [cost, details] {
                line.extend(more.as_object().cloned().unwrap_or_default());
            }
        }
        self.terminal.print(line.to_string()).map_err(Failure::output)
    }

    fn print_answer(&mut self, output: &Output) -> Result<(), Failure> {
        let answer = answer(output);
        if output.finish == EndReason::Asked || answer.trim().is_empty() {
            self.page.note(Block::Note, self.fitted(no_answer(output.finish, &answer)));
            return Ok(());
        }
        match self.format {
            Format::Terminal if self.answered.as_ref() == Some(&answer) => {}
            Format::Terminal if output.data.is_string() => {
                let mut markdown = Markdown::new(self.terminal.look(To::Stdout), self.terminal.width());
                let shown = markdown.push(&answer) + &markdown.finish();
                self.page.stream(Block::Words, &shown).map_err(Failure::output)?;
            }
            Format::Terminal => {
                let shown = format!("{}\n", text::harmless(&answer));
                self.page.stream(Block::Words, &shown).map_err(Failure::output)?;
            }
            Format::Lines | Format::Json => self.terminal.print_foreign(&answer).map_err(Failure::output)?,
        }
        if output.limit_reached {
            let reached = "the turn ended at a bound: of its model calls (`max_interactions` in agent.toml), or of the model's window";
            self.page.note(Block::Note, format!("{YELLOW}!{YELLOW:#} {reached}"));
        }
        let (model, spent) = (&output.model, self.spent.line(output.interactions, output.usage));
        let session = match self.usage {
            Use::Once => format!(" · session {}", output.session),
            Use::Interactive => String::new(),
        };
        let line = format!("{DIM}{model}: {spent}{session}{DIM:#}");
        self.page.note(Block::Note, self.fitted(line));
        Ok(())
    }
}

/// What an interactive session waits for, and how to decide there.
fn waiting(calls: &[CallRecord]) -> String {
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while these calls ran, and it is not known whether \
         they had their effect"
    )];
    for call in calls {
        let (name, arguments) = (text::one_line(&call.name, 100), text::json_line(&call.arguments, 100));
        lines.push(format!("  {name} {arguments}\n    /resolve {} retry|failed|result [TEXT]", call.id));
    }
    lines.push("  or /cancel ends the turn".to_owned());
    lines.join("\n")
}

/// What is said where there is nothing to print.
fn no_answer(finish: EndReason, question: &str) -> String {
    match finish {
        EndReason::Asked => {
            let question = text::harmless(question).replace('\n', "\n  ");
            format!("{YELLOW}!{YELLOW:#} the model asked, and nobody answered in time; the turn is over:\n  {question}")
        }
        _ => format!("{YELLOW}!{YELLOW:#} the turn is done, and the model said nothing"),
    }
}

fn answer(output: &Output) -> String {
    match &output.data {
        Value::String(text) => text.clone(),
        json => format!("{json:#}"),
    }
}
