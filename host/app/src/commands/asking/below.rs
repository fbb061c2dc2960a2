//! What is asked at the terminal for agents that work for the one that a person asked: besides their approvals their
//! questions, and what became of calls that nobody saw the end of (L16, L17, D3).

use super::{Asker, Next, Person};
use crate::arguments::Verdict;
use crate::commands::run::asked;
use crate::commands::session::resolve;
use crate::exit::Failure;
use crate::terminal::approval::{self, QUESTION_OF_UNKNOWN};
use crate::terminal::{TypedLine, YELLOW, text};
use agent_core::message::CallId;
use agent_core::run::{Action, Decision};
use agent_runtime::{Session, question};
use clap::ValueEnum;
use std::pin::Pin;
use tokio_util::sync::CancellationToken;

/// Whose turn it is that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Of the agent that the person talks to: its questions and decisions have ways of their own.
    Asked,
    /// Of one that works for it.
    Below,
}

type Settling<'s> = Pin<Box<dyn Future<Output = Result<Next, Failure>> + 's>>;

impl Asker {
    /// Answers what a turn waits for, and then what the agents below it wait for. Boxed, since those may have others
    /// below them.
    pub(super) fn settle<'s>(
        &'s self,
        session: &'s mut Session,
        whose: Whose,
        cancel: &'s CancellationToken,
    ) -> Settling<'s> {
        Box::pin(async move {
            let mut next = self.answer(session, cancel).await?;
            if whose == Whose::Below && self.person == Person::AtTerminal {
                if next.looks_on() {
                    next = next.then(self.decide(session, cancel).await?);
                }
                if next.looks_on() {
                    next = next.then(self.reply(session, cancel).await?);
                }
            }
            for call in session.below() {
                if !next.looks_on() || cancel.is_cancelled() {
                    break;
                }
                next = next.then(self.settle_below(session, &call, cancel).await?);
            }
            Ok(next)
        })
    }

    async fn settle_below(
        &self,
        session: &mut Session,
        call: &CallId,
        cancel: &CancellationToken,
    ) -> Result<Next, Failure> {
        let Some(mut below) = session.open_below(call).await.map_err(Failure::failed)? else {
            return Ok(Next::Wait);
        };
        let prepared = below.prepare_decision(cancel).await.map_err(Failure::failed);
        let settled = match prepared {
            Ok(()) => self.settle(&mut below, Whose::Below, cancel).await,
            Err(failure) => Err(failure),
        };
        below.close().await.map_err(Failure::failed)?;
        settled
    }

    /// Asks about each call whose outcome is unknown.
    async fn decide(&self, session: &mut Session, cancel: &CancellationToken) -> Result<Next, Failure> {
        let mut next = Next::Wait;
        for call in session.undecided().await.map_err(Failure::failed)? {
            self.introduce(session);
            self.terminal.note(approval::unknown(&call));
            let decision = match self.ask_until(QUESTION_OF_UNKNOWN, parse_decision, cancel).await? {
                Ok(decision) => decision,
                Err(left) => return Ok(next.then(left)),
            };
            session.resolve(call.id, decision).await.map_err(Failure::refused)?;
            next = Next::GoOn;
        }
        Ok(next)
    }

    /// Asks what the agent's model wants to know.
    async fn reply(&self, session: &mut Session, cancel: &CancellationToken) -> Result<Next, Failure> {
        let (Some(call), Action::Suspended(suspension)) = (asked(session), session.state().action()) else {
            return Ok(Next::Wait);
        };
        if let Some((_, words)) = question(&suspension) {
            self.introduce(session);
            let words = text::harmless(words).replace('\n', "\n  ");
            self.terminal.note(text::wrapped(&format!("{YELLOW}?{YELLOW:#} {words}"), self.terminal.width()));
        }
        match self.ask_until("your answer > ", parse_answer, cancel).await? {
            Ok(answer) => session.answer(call, answer).await.map_err(Failure::refused)?,
            Err(left) => return Ok(left),
        }
        Ok(Next::GoOn)
    }

    /// Asks until a line can be read; what is to be done instead where somebody leaves or cancels.
    async fn ask_until<A>(
        &self,
        prompt: &str,
        parse: impl Fn(&str) -> Result<A, String>,
        cancel: &CancellationToken,
    ) -> Result<Result<A, Next>, Failure> {
        loop {
            match self.terminal.question(prompt, cancel).await.map_err(Failure::output)? {
                TypedLine::Text(line) => match parse(line.trim()) {
                    Ok(answer) => return Ok(Ok(answer)),
                    Err(problem) => self.warn(&problem),
                },
                TypedLine::Stopped => return Ok(Err(Next::GoOn)),
                TypedLine::End => return Ok(Err(Next::Leave)),
            }
        }
    }

    /// Says which agent it is that asks, unless it is the one that the person talks to.
    pub(super) fn introduce(&self, session: &Session) {
        let state = session.state();
        if !state.delegation.is_empty() {
            self.terminal.idle();
            let lines = approval::on_behalf(&state.delegation, &state.agent, session.subject());
            self.terminal.note(text::wrapped(&lines, self.terminal.width()));
        }
    }
}

fn parse_answer(line: &str) -> Result<String, String> {
    match line {
        "" => Err("that says nothing: write the answer, or Ctrl-D to leave the turn waiting".to_owned()),
        words => Ok(words.to_owned()),
    }
}

fn parse_decision(line: &str) -> Result<Decision, String> {
    let (word, behind) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let behind = Some(behind.trim()).filter(|words| !words.is_empty()).map(str::to_owned);
    match Verdict::from_str(word, true) {
        Ok(verdict) => resolve::decision(verdict, behind).map_err(|failure| failure.message),
        Err(_) => Err("write `retry` (it had no effect), `failed`, `failed WHY`, or `result` and the result's text; \
                       Ctrl-D leaves the turn waiting"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D3: only a clear word decides.
    #[test]
    fn d3_a_decision_is_one_of_three_words() {
        assert_eq!(parse_decision("retry"), Ok(Decision::Retry));
        assert_eq!(parse_decision("failed it broke"), Ok(Decision::Failed("it broke".into())));
        assert_eq!(parse_decision("result  7 pages "), Ok(Decision::Result("7 pages".into())));
        for unclear in ["", "r", "result", "retry now", "yes"] {
            assert!(parse_decision(unclear).is_err(), "{unclear}");
        }
    }

    #[test]
    fn an_empty_line_is_no_answer() {
        assert!(parse_answer("").is_err());
        assert_eq!(parse_answer("in the north"), Ok("in the north".to_owned()));
    }
}
