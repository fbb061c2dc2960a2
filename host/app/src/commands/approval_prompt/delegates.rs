//! Asks the user at the terminal for the input that delegates need: approvals of their calls, answers to their
//! questions, and decisions about their calls whose outcome is unknown (L16, L17, D3).

use super::{AfterQuestions, ApprovalPrompter};
use crate::arguments::Verdict;
use crate::commands::decision::decision;
use crate::commands::drive_turn::open_question;
use crate::commands::user_presence::UserPresence;
use crate::exit::Failure;
use crate::terminal::approval::{self, QUESTION_ABOUT_OUTCOME};
use crate::terminal::{TypedLine, YELLOW, text};
use agent_core::message::CallId;
use agent_core::run::{Action, Decision};
use agent_runtime::{Session, question};
use clap::ValueEnum;
use std::pin::Pin;
use tokio_util::sync::CancellationToken;

/// The agent that a suspended turn belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOwner {
    /// The main agent, which the user talks to. The caller shows the user the questions that this agent asks.
    FirstAgent,
    /// A delegate of the main agent, or a delegate of another delegate.
    Delegate,
}

type SettleFuture<'s> = Pin<Box<dyn Future<Output = Result<AfterQuestions, Failure>> + 's>>;

impl ApprovalPrompter {
    /// Asks the user for the answers that the turn waits for, and then for the answers that its delegates wait for. The
    /// future is boxed because delegates may have delegates.
    pub(super) fn settle<'s>(
        &'s mut self,
        session: &'s mut Session,
        owner: TurnOwner,
        cancel: &'s CancellationToken,
    ) -> SettleFuture<'s> {
        Box::pin(async move {
            let mut next = self.answer(session, cancel).await?;
            if owner == TurnOwner::Delegate && self.user == UserPresence::AtTerminal {
                if next.asks_more() {
                    next = next.combine(self.decide(session, cancel).await?);
                }
                if next.asks_more() {
                    next = next.combine(self.reply(session, cancel).await?);
                }
            }
            for call in session.delegated_calls() {
                if !next.asks_more() || cancel.is_cancelled() {
                    break;
                }
                next = next.combine(self.settle_delegate(session, &call, cancel).await?);
            }
            Ok(next)
        })
    }

    async fn settle_delegate(
        &mut self,
        session: &mut Session,
        call: &CallId,
        cancel: &CancellationToken,
    ) -> Result<AfterQuestions, Failure> {
        let Some(mut delegate) = session.open_delegated(call).await.map_err(Failure::failed)? else {
            return Ok(AfterQuestions::NothingToAnswer);
        };
        let prepared = delegate.prepare_decision(cancel).await.map_err(Failure::failed);
        let settled = match prepared {
            Ok(()) => self.settle(&mut delegate, TurnOwner::Delegate, cancel).await,
            Err(failure) => Err(failure),
        };
        delegate.close().await.map_err(Failure::failed)?;
        settled
    }

    /// Asks the user to decide about each call whose outcome is unknown.
    async fn decide(&self, session: &mut Session, cancel: &CancellationToken) -> Result<AfterQuestions, Failure> {
        let mut next = AfterQuestions::NothingToAnswer;
        for call in session.undecided().await.map_err(Failure::failed)? {
            self.show_asking_delegate(session);
            self.terminal.note(approval::unknown(&call));
            let decision = match self.ask_until(QUESTION_ABOUT_OUTCOME, parse_decision, cancel).await? {
                Ok(decision) => decision,
                Err(unanswered) => return Ok(next.combine(unanswered)),
            };
            session.resolve(call.id, decision).await.map_err(Failure::refused)?;
            next = AfterQuestions::Continue;
        }
        Ok(next)
    }

    /// Asks the user the question that the delegate's model has asked, and stores the answer.
    async fn reply(&self, session: &mut Session, cancel: &CancellationToken) -> Result<AfterQuestions, Failure> {
        let (Some(call), Action::Suspended(suspension)) = (open_question(session), session.state().action()) else {
            return Ok(AfterQuestions::NothingToAnswer);
        };
        if let Some((_, words)) = question(&suspension) {
            self.show_asking_delegate(session);
            let words = text::harmless(words).replace('\n', "\n  ");
            self.terminal.note(text::wrapped(&format!("{YELLOW}?{YELLOW:#} {words}"), self.terminal.width()));
        }
        match self.ask_until("your answer > ", parse_answer, cancel).await? {
            Ok(answer) => session.answer(call, answer).await.map_err(Failure::refused)?,
            Err(unanswered) => return Ok(unanswered),
        }
        Ok(AfterQuestions::Continue)
    }

    /// Asks the question until the user types a line that can be parsed. If the user declines to answer or cancels the
    /// turn, the inner `Err` tells the caller what to do next.
    async fn ask_until<A>(
        &self,
        prompt: &str,
        parse: impl Fn(&str) -> Result<A, String>,
        cancel: &CancellationToken,
    ) -> Result<Result<A, AfterQuestions>, Failure> {
        loop {
            match self.terminal.question(prompt, cancel).await.map_err(Failure::output)? {
                TypedLine::Text(line) => match parse(line.trim()) {
                    Ok(answer) => return Ok(Ok(answer)),
                    Err(problem) => self.warn(&problem),
                },
                TypedLine::Stopped => return Ok(Err(AfterQuestions::Continue)),
                TypedLine::End => return Ok(Err(AfterQuestions::StopAsking)),
            }
        }
    }

    /// Shows the name of the agent that asks, if the agent is a delegate.
    pub(super) fn show_asking_delegate(&self, session: &Session) {
        let state = session.state();
        if !state.delegation.is_empty() {
            self.terminal.idle();
            let lines = approval::describe_asking_delegate(&state.delegation, &state.agent, session.subject());
            self.terminal.note(text::wrapped(&lines, self.terminal.width()));
        }
    }
}

fn parse_answer(line: &str) -> Result<String, String> {
    match line {
        "" => Err("the answer is empty: type the answer, or press Ctrl-D to leave the turn waiting".to_owned()),
        words => Ok(words.to_owned()),
    }
}

fn parse_decision(line: &str) -> Result<Decision, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let text = Some(rest.trim()).filter(|words| !words.is_empty()).map(str::to_owned);
    match Verdict::from_str(word, true) {
        Ok(verdict) => decision(verdict, text).map_err(|failure| failure.message),
        Err(_) => Err("type `retry` (if the call had no effect), `failed`, `failed WHY`, or `result TEXT`; \
                       Ctrl-D leaves the turn waiting"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D3: only `retry`, `failed` and `result` are decisions.
    #[test]
    fn d3_parse_decision_accepts_only_retry_failed_and_result() {
        assert_eq!(parse_decision("retry"), Ok(Decision::Retry));
        assert_eq!(parse_decision("failed it broke"), Ok(Decision::Failed("it broke".into())));
        assert_eq!(parse_decision("result  7 pages "), Ok(Decision::Result("7 pages".into())));
        for unclear in ["", "r", "result", "retry now", "yes"] {
            assert!(parse_decision(unclear).is_err(), "{unclear}");
        }
    }

    #[test]
    fn parse_answer_rejects_an_empty_line() {
        assert!(parse_answer("").is_err());
        assert_eq!(parse_answer("in the north"), Ok("in the north".to_owned()));
    }
}
