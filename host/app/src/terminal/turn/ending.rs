//! Shows the result of a turn, as text or as the last JSON line.

use super::{Block, Format, OutputStream, SessionUse, TurnView};
use crate::exit::{Exit, Failure};
use crate::terminal::markdown::Markdown;
use crate::terminal::pending_calls::{waits_for_approval, waits_for_decision};
use crate::terminal::spending::{spending, turn_spending};
use crate::terminal::{DIM, YELLOW, pending_answers, suspension, text};
use agent_core::change::{CallRecord, CallState};
use agent_core::event::{EndReason, Suspension, WaitCause};
use agent_core::message::TurnInput;
use agent_core::run::{Output, Turn, TurnError};
use agent_runtime::{OutboxError, Session, TurnResult, question};
use serde_json::{Value, json};

impl TurnView<'_> {
    /// Reports that no turn was interrupted. After this report, the caller shows the result of the last turn.
    pub(crate) fn note_nothing_interrupted(&self) {
        self.terminal.note(format!("{DIM}no turn was interrupted; the last turn ended like this:{DIM:#}"));
    }

    /// Reports that the prompt was not sent, because the session waits for an answer.
    pub(crate) fn note_prompt_not_sent(&self) {
        self.terminal.note(format!("{YELLOW}!{YELLOW:#} the interrupted turn comes first: your prompt was not sent"));
    }

    /// Reports that the prompt was queued, because another turn is open.
    pub(crate) fn note_prompt_queued(&self) {
        self.terminal.note(format!(
            "{YELLOW}!{YELLOW:#} the open turn comes first: your prompt is queued, and is sent when that turn has ended"
        ));
    }

    /// Reports that a queued prompt is sent now.
    pub(crate) fn note_queued_prompt_sent(&self, prompt: &TurnInput) {
        let prompt = text::one_line(&prompt.message().plain_text(), 80);
        self.terminal.note(format!("{DIM}sending the queued prompt: {prompt}{DIM:#}"));
    }

    /// Reports how many queued prompts were dropped because the turn was ended. Prints nothing if no prompts
    /// were dropped.
    pub(crate) fn note_dropped_prompts(&self, count: usize) {
        if count > 0 {
            let prompts = text::count(count, "queued prompt");
            self.terminal.note(format!("{YELLOW}!{YELLOW:#} {prompts} will not be sent"));
        }
    }

    /// Reports that an event could not be sent to the server in the agent's configuration.
    pub(crate) fn note_undelivered_event(&self, error: &OutboxError) {
        let advice = "the next turn of this session and `agent-host serve` try again";
        let text = format!("{error}; {advice}");
        self.terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&text)));
    }

    /// Reports that the turn of a queued prompt has ended and that another turn starts.
    pub(crate) fn earlier_turn_ended(&self, result: &TurnResult) -> Result<(), Failure> {
        self.turn_ended(result, "that turn")
    }

    /// Reports that an interrupted turn has ended and that another turn starts.
    pub(crate) fn interrupted_turn_ended(&self, result: &TurnResult) -> Result<(), Failure> {
        self.turn_ended(result, "the interrupted turn")
    }

    fn turn_ended(&self, result: &TurnResult, turn: &str) -> Result<(), Failure> {
        match (result, self.format) {
            (TurnResult::Finished(output), Format::Json) => self.print_output(output),
            (TurnResult::Failed(error), Format::Json) => self.print_failure(error),
            (TurnResult::Finished(_), Format::Terminal) => {
                self.terminal.note(format!("{DIM}{turn} has ended{DIM:#}"));
                Ok(())
            }
            (TurnResult::Finished(output), Format::Lines) => {
                let answer = text::harmless(&answer(output)).into_owned();
                self.terminal.note(format!("{DIM}{turn} has ended:{DIM:#}\n{answer}"));
                Ok(())
            }
            (TurnResult::Failed(error), _) => {
                self.terminal.note(format!("{YELLOW}!{YELLOW:#} {turn} has ended with an error: {error}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records the cost of the turn, which is shown with the turn's result.
    pub(crate) fn note_cost(&mut self, session: &Session) {
        self.cost = session.state().turn.as_ref().map(Turn::cost);
    }

    /// Shows the result of the last turn.
    pub(crate) async fn end(&mut self, result: TurnResult) -> Result<Exit, Failure> {
        self.terminal.idle();
        match result {
            TurnResult::Finished(output) => {
                match self.format {
                    Format::Json => self.print_output(&output)?,
                    Format::Lines | Format::Terminal => self.print_answer(&output)?,
                }
                // If the user did not answer the model's question in time, the model gave no answer, so the
                // command fails.
                Ok(if output.finish == EndReason::QuestionExpired { Exit::Failed } else { Exit::Done })
            }
            TurnResult::Failed(error) => {
                self.print_failure(&error)?;
                match self.usage {
                    SessionUse::Once => Err(Failure::failed(format!("{error} · session {}", self.session))),
                    SessionUse::Interactive => Err(Failure::failed(error)),
                }
            }
            TurnResult::Cancelled => {
                // If writing to stdout fails, the process still exits with the code for a cancelled turn.
                self.print_status("cancelled", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.storage.data.flag());
                self.page.note(
                    Block::Note,
                    match self.usage {
                        SessionUse::Once => format!(
                            "{DIM}cancelled; to continue: agent-host --session {session}{flag} \"…\", with the same options \
                             as before{DIM:#}"
                        ),
                        SessionUse::Interactive => {
                            format!("{DIM}cancelled; send another prompt, or undo the turn with /undo{DIM:#}")
                        }
                    },
                );
                Ok(Exit::Cancelled)
            }
            TurnResult::Interrupted => {
                self.print_status("interrupted", json!({}))
                    .map_err(|failure| Failure { exit: Exit::Cancelled, ..failure })?;
                let (session, flag) = (&self.session, self.storage.data.flag());
                let command = format!("agent-host --session {session}{flag}");
                self.page.note(
                    Block::Note,
                    format!(
                        "{DIM}interrupted, because the process was told to end; to continue: {command}, with the same \
                         options as before{DIM:#}"
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
                let decisions = match self.usage {
                    _ if calls.is_empty() => None,
                    SessionUse::Once => Some(waits_for_decision(&self.session, &calls, &self.storage.data)),
                    SessionUse::Interactive => Some(self.fitted(interactive_decisions(&calls))),
                };
                let mut answers = pending_answers::describe(
                    &self.session,
                    &suspension.waits,
                    (&*self.storage.store, &self.storage.data),
                )
                .await?;
                if self.usage == SessionUse::Interactive && !answers.is_empty() {
                    answers.push_str("\n  or here: /respond FILE answers, /cancel ends the turn");
                }
                let answers = (!answers.is_empty()).then_some(answers);
                let mut delegates =
                    suspension::awaited_delegates(&*self.storage.store, &suspension, &self.storage.data).await?;
                if self.usage == SessionUse::Interactive && !delegates.is_empty() {
                    delegates.push(format!(
                        "{DIM}or here: /approve asks for the missing answers, /cancel ends the turn{DIM:#}"
                    ));
                }
                for lines in decisions.into_iter().chain(answers).chain(delegates) {
                    self.page.note(Block::Note, self.fitted(lines));
                }
                self.note_pending_approvals(&suspension).await?;
                Ok(Exit::Suspended)
            }
            TurnResult::Idle => {
                self.print_status("idle", json!({}))?;
                self.terminal.note("there is nothing to continue: send a prompt");
                Ok(Exit::Done)
            }
        }
    }

    /// Shows the calls that still need an approval.
    async fn note_pending_approvals(&mut self, suspension: &Suspension) -> Result<(), Failure> {
        let pending = suspension.waits.iter().filter(|wait| matches!(wait.cause, WaitCause::Approval { .. }));
        let pending = self.calls(pending.map(|wait| wait.call.clone()).collect()).await.map_err(Failure::failed)?;
        if !pending.is_empty() {
            let lines = match self.usage {
                SessionUse::Once => waits_for_approval(&self.session, &pending, &self.storage.data),
                SessionUse::Interactive => {
                    format!("{YELLOW}waits for an approval{YELLOW:#}: /approve asks again, /cancel ends the turn")
                }
            };
            self.page.note(Block::Note, lines);
        }
        Ok(())
    }

    /// Shows the model's question, and explains how to answer it (L18).
    fn ask(&mut self, question: &str) {
        let question = text::harmless(question).replace('\n', "\n  ");
        let (session, flag) = (&self.session, self.storage.data.flag());
        let how = match self.usage {
            SessionUse::Once => format!(
                "answer with agent-host --session {session}{flag} \"…\" and the same options as before, or with \
                 agent-host session answer {session}{flag} \"…\""
            ),
            SessionUse::Interactive => "the next line that you type is the answer; /cancel ends the turn".to_owned(),
        };
        let lines = self.fitted(format!("{YELLOW}?{YELLOW:#} {question}\n{DIM}{how}{DIM:#}"));
        self.page.note(Block::Note, lines);
    }

    fn print_output(&self, output: &Output) -> Result<(), Failure> {
        self.print_status("finished", serde_json::to_value(output).map_err(Failure::failed)?)
    }

    fn print_failure(&self, error: &TurnError) -> Result<(), Failure> {
        self.print_status("failed", error.details())
    }

    /// Prints the last JSON line of a turn, which contains the turn's status, cost and details. Prints nothing if the
    /// output format is not JSON.
    fn print_status(&self, status: &str, details: Value) -> Result<(), Failure> {
        if self.format != Format::Json {
            return Ok(());
        }
        let mut line = json!({"type": "result", "status": status, "session": self.session});
        let cost = self.cost.filter(|_| status != "idle").map(|cost| json!(cost)).unwrap_or_default();
        if let Some(line) = line.as_object_mut() {
            // The details are added last, because a cost in the details must replace the cost that was added before.
            for fields in [cost, details] {
                line.extend(fields.as_object().cloned().unwrap_or_default());
            }
        }
        self.terminal.print(line.to_string()).map_err(Failure::output)
    }

    fn print_answer(&mut self, output: &Output) -> Result<(), Failure> {
        let answer = answer(output);
        if output.finish == EndReason::QuestionExpired || answer.trim().is_empty() {
            self.page.note(Block::Note, self.fitted(no_answer(output.finish, &answer)));
            return Ok(());
        }
        match self.format {
            Format::Terminal if self.answered.as_ref() == Some(&answer) => {}
            Format::Terminal if output.data.is_string() => {
                let mut markdown = Markdown::new(self.terminal.rendering(OutputStream::Stdout), self.terminal.width());
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
            let limit = "the turn ended because it reached a limit: the maximum number of model calls \
                         (`max_interactions` in agent.toml), or the model's context window";
            self.page.note(Block::Note, format!("{YELLOW}!{YELLOW:#} {limit}"));
        }
        let cost = self.cost.filter(|cost| cost.turn == output.turn);
        let spent = cost.as_ref().map_or_else(|| spending(output.interactions.into(), output.usage), turn_spending);
        let model = &output.model;
        let session = match self.usage {
            SessionUse::Once => format!(" · session {}", output.session),
            SessionUse::Interactive => String::new(),
        };
        let line = format!("{DIM}{model}: {spent}{session}{DIM:#}");
        self.page.note(Block::Note, self.fitted(line));
        Ok(())
    }
}

/// Describes calls whose outcome is unknown, and how to decide about them in an interactive session.
fn interactive_decisions(calls: &[CallRecord]) -> String {
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while these calls ran, so it is unknown whether \
         they took effect"
    )];
    for call in calls {
        let (name, arguments) = (text::one_line(&call.name, 100), text::arguments(&call.arguments, 100));
        lines.push(format!("  {name} {arguments}\n    /resolve {} retry|failed|result [TEXT]", call.id));
    }
    lines.push("  or /cancel ends the turn".to_owned());
    lines.join("\n")
}

/// Returns the message that is shown if the turn has no answer.
fn no_answer(finish: EndReason, question: &str) -> String {
    match finish {
        EndReason::QuestionExpired => {
            let question = text::harmless(question).replace('\n', "\n  ");
            format!(
                "{YELLOW}!{YELLOW:#} the model asked a question and nobody answered in time; the turn has ended:\n  {question}"
            )
        }
        _ => format!("{YELLOW}!{YELLOW:#} the turn has ended, but the model gave no answer"),
    }
}

/// Formats the turn's answer for output: text is unchanged, and any other data is formatted as JSON.
fn answer(output: &Output) -> String {
    match &output.data {
        Value::String(text) => text.clone(),
        json => format!("{json:#}"),
    }
}
