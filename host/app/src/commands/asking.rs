//! Who answers an approval request while a turn runs: what was said on the command line, a person at the terminal, or nobody
//! (L17). Without an answer a call does not run.

mod below;

use super::first_use::FirstUseDesk;
use super::run::{watch, watched};
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::approval::{self, Answer, HELP, QUESTION, Reach};
use crate::terminal::turn::TurnView;
use crate::terminal::{Output, Terminal, TypedLine, YELLOW, text};
use agent_core::approval::{GrantScope, fits};
use agent_core::event::ApprovalItem;
use agent_core::message::TurnInput;
use agent_runtime::{ApprovalDecision, Session, SessionError, TurnResult, Verdict};
use below::Whose;
use serde_json::Value;
use std::io::IsTerminal;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Who is there to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    /// Somebody who sees the terminal and types on it.
    AtTerminal,
    /// Nobody: what is not allowed already waits.
    Nobody,
}

/// Answers approval requests, and questions about first uses.
pub(crate) struct Asker {
    terminal: Terminal,
    person: Person,
    data: DataDirectory,
    desk: FirstUseDesk,
    /// Tools whose calls are allowed once each, by name or pattern.
    yes: Vec<String>,
}

/// What is to be done about a turn that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Something was answered, or the turn is cancelled.
    GoOn,
    /// There was nothing to answer.
    Wait,
    /// Who is asked leaves the rest unanswered.
    Leave,
}

impl Next {
    /// Whether somebody is asked what else there is.
    fn looks_on(self) -> bool {
        self != Next::Leave
    }

    /// This, and then that.
    fn then(self, other: Next) -> Next {
        match (self, other) {
            (Next::Leave, _) | (_, Next::Leave) => Next::Leave,
            (Next::GoOn, _) | (_, Next::GoOn) => Next::GoOn,
            (Next::Wait, Next::Wait) => Next::Wait,
        }
    }
}

/// What a person has decided about one call.
enum Decided {
    Verdict(Verdict, Reach),
    Cancelled,
    Left,
}

impl Person {
    /// Whether somebody sees what is asked and can answer it.
    pub(crate) fn of(terminal: &Terminal) -> Self {
        match std::io::stdin().is_terminal() && terminal.is_terminal(Output::Stderr) {
            true => Person::AtTerminal,
            false => Person::Nobody,
        }
    }

    /// The same for first uses: who has said beforehand which calls may run is not there to be asked.
    pub(crate) fn at_first_use(self, yes: &[String]) -> Self {
        if yes.is_empty() { self } else { Person::Nobody }
    }
}

impl Asker {
    /// One that takes `yes` as the answer for tools of these names and patterns.
    pub(crate) fn new(
        terminal: &Terminal,
        person: Person,
        (data, desk): (&DataDirectory, FirstUseDesk),
        yes: &[String],
    ) -> Self {
        Self { terminal: terminal.clone(), person, data: data.clone(), desk, yes: yes.to_vec() }
    }

    /// Runs a turn, or goes on with one, until it ends or waits for somebody who is not here.
    pub(crate) async fn run(
        &mut self,
        session: &mut Session,
        input: Option<TurnInput>,
        view: &mut TurnView<'_>,
        cancel: &CancellationToken,
    ) -> Result<TurnResult, Failure> {
        let mut result = watched(session, input, (view, &mut self.desk), cancel).await?;
        while let TurnResult::Suspended(_) = result {
            // What is answered in sessions below is not told to those who come later.
            let mut events = session.subscribe();
            let next = self.settle(session, Whose::Asked, cancel).await?;
            while view.receive_waiting(&mut events).await.unwrap_or(false) {}
            match next {
                Next::GoOn => result = watch(session, None, (view, &mut self.desk), cancel).await?,
                Next::Wait | Next::Leave => break,
            }
        }
        Ok(result)
    }

    async fn answer(&self, session: &mut Session, cancel: &CancellationToken) -> Result<Next, Failure> {
        let asked = session.asked_approvals().await.map_err(Failure::failed)?;
        let (allowed, others): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|item| self.yes.iter().any(|pattern| fits(pattern, &item.name)));
        let yes = Verdict::Allow { scope: GrantScope::Once, edited: None };
        let decided = |(item, verdict): (ApprovalItem, Verdict)| ApprovalDecision { call: item.call, verdict };
        let mut decisions: Vec<_> = allowed.into_iter().map(|item| decided((item, yes.clone()))).collect();
        if self.person == Person::AtTerminal && !others.is_empty() {
            match self.ask(session, others, cancel).await? {
                Some(verdicts) => decisions.extend(verdicts.into_iter().map(decided)),
                // The turn is cancelled by who drives it; what was said already does not count.
                None if cancel.is_cancelled() => return Ok(Next::GoOn),
                None => return Ok(Next::Leave),
            }
        }
        if decisions.is_empty() {
            return Ok(Next::Wait);
        }
        match session.approve(decisions).await {
            // Such as a tool that is gone since: it is asked about again.
            Err(error @ SessionError::Approval(_)) if self.person == Person::AtTerminal => {
                self.warn(&error.to_string());
                Ok(Next::GoOn)
            }
            Err(error) => Err(Failure::refused(error)),
            Ok(()) => Ok(Next::GoOn),
        }
    }

    /// Asks about each call; nothing where the person leaves the turn waiting or cancels it.
    async fn ask(
        &self,
        session: &Session,
        items: Vec<ApprovalItem>,
        cancel: &CancellationToken,
    ) -> Result<Option<Vec<(ApprovalItem, Verdict)>>, Failure> {
        let of = items.len();
        let mut decided: Vec<(ApprovalItem, Verdict)> = Vec::with_capacity(of);
        let mut rest: Option<Verdict> = None;
        self.introduce(session);
        for (place, item) in items.into_iter().enumerate() {
            let verdict = match &rest {
                Some(verdict) => verdict.clone(),
                None => match self.ask_about(session, &item, (place + 1, of), cancel).await? {
                    Decided::Verdict(verdict, Reach::This) => verdict,
                    Decided::Verdict(verdict, Reach::Rest) => {
                        // What was changed about one call is not said of the others.
                        rest = Some(match &verdict {
                            Verdict::Allow { scope, .. } => Verdict::Allow { scope: *scope, edited: None },
                            no => no.clone(),
                        });
                        verdict
                    }
                    Decided::Cancelled | Decided::Left => return Ok(None),
                },
            };
            decided.push((item, verdict));
        }
        Ok(Some(decided))
    }

    async fn ask_about(
        &self,
        session: &Session,
        item: &ApprovalItem,
        place: (usize, usize),
        cancel: &CancellationToken,
    ) -> Result<Decided, Failure> {
        let mut edited: Option<Value> = None;
        let written = item.details.as_ref().map(|details| details.arguments.clone()).unwrap_or_default();
        self.terminal.idle();
        self.terminal.note(approval::request(item, None, place));
        loop {
            let line = match self.terminal.question(QUESTION, cancel).await.map_err(Failure::output)? {
                TypedLine::Text(line) => line,
                TypedLine::Stopped => return Ok(Decided::Cancelled),
                TypedLine::End => return Ok(Decided::Left),
            };
            let arguments = edited.as_ref().unwrap_or(&written);
            match Answer::parse(&line) {
                Some(Answer::Allow(scope, reach)) => {
                    return Ok(Decided::Verdict(Verdict::Allow { scope, edited }, reach));
                }
                Some(Answer::Deny(reason, reach)) => return Ok(Decided::Verdict(Verdict::Deny { reason }, reach)),
                Some(Answer::Whole) => self.terminal.note(approval::whole(arguments)),
                Some(Answer::Help) | None => self.terminal.note(HELP),
                Some(Answer::Edit(at_once)) => match self.edited(at_once, arguments, cancel).await {
                    Ok(changed) => match session.check_edited(&item.name, &changed) {
                        Ok(()) => {
                            self.terminal.note(approval::request(item, Some(&changed), place));
                            edited = Some(changed);
                        }
                        Err(violations) => {
                            let error = agent_core::tool::ToolError::InvalidArguments { violations };
                            self.warn(&error.for_people());
                        }
                    },
                    Err(problem) => self.warn(&problem),
                },
            }
        }
    }

    /// Arguments as somebody writes them: behind the `e`, in their editor, or in a line.
    async fn edited(
        &self,
        at_once: Option<String>,
        arguments: &Value,
        cancel: &CancellationToken,
    ) -> Result<Value, String> {
        let text = match (at_once, environment::editor()) {
            (Some(text), _) => text,
            (None, Some(editor)) => self.in_editor(&editor, arguments).await?,
            (None, None) => {
                self.terminal.note(approval::whole(arguments));
                let asked = self.terminal.question("the arguments as JSON, in one line > ", cancel).await;
                match asked.map_err(|error| error.to_string())? {
                    TypedLine::Text(text) => text,
                    TypedLine::End | TypedLine::Stopped => return Err("nothing was changed".to_owned()),
                }
            }
        };
        serde_json::from_str(&text).map_err(|error| format!("that is no JSON, so nothing was changed: {error}"))
    }

    async fn in_editor(&self, editor: &[String], arguments: &Value) -> Result<String, String> {
        let file = self.data.draft(&uuid::Uuid::new_v4().simple().to_string());
        let failed = |error: std::io::Error| format!("the editor `{}`: {error}", editor.join(" "));
        write_draft(&file, &format!("{arguments:#}\n")).map_err(failed)?;
        let silenced = self.terminal.restore_keyboard();
        let mut command = std::process::Command::new(&editor[0]);
        command.args(&editor[1..]).arg(&file);
        let status = tokio::task::spawn_blocking(move || command.status()).await;
        if silenced == crate::terminal::Silenced::Was {
            self.terminal.silence_keyboard();
        }
        let text = std::fs::read_to_string(&file);
        let removed = std::fs::remove_file(&file);
        match status.map_err(std::io::Error::other).flatten().map_err(failed)? {
            status if status.success() => {}
            status => {
                return Err(format!("the editor `{}` ended with {status}, so nothing was changed", editor.join(" ")));
            }
        }
        removed.map_err(failed)?;
        text.map_err(failed)
    }

    fn warn(&self, line: &str) {
        let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(line));
        self.terminal.note(text::wrapped(&line, self.terminal.width()));
    }
}

/// Arguments may hold what is nobody else's business.
fn write_draft(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::io::Write::write_all(&mut options.open(file)?, text.as_bytes())
}
