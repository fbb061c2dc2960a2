//! Answers the approval requests of a running turn: from `--yes` on the command line, or by asking the user at the
//! terminal (L17). A call that nobody approves does not run.

mod delegates;

use super::drive_turn::{continue_turn, start_turn};
use super::grant_changes::{GrantChange, GrantChanger};
use super::user_presence::UserPresence;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::approval::{self, Answer, AnswerScope, HELP, QUESTION};
use crate::terminal::file_changes::{self, Extent};
use crate::terminal::turn::TurnView;
use crate::terminal::{Terminal, TypedLine, YELLOW, text};
use agent_config::DataDirectory;
use agent_config::first_use::FirstUseHandler;
use agent_core::approval::{GrantScope, matches_pattern};
use agent_core::event::ApprovalItem;
use agent_core::message::TurnInput;
use agent_plugins::{Access, Need};
use agent_runtime::{ApprovalDecision, FirstUse, ProposedChange, Session, SessionError, TurnResult, Verdict};
use delegates::TurnOwner;
use serde_json::Value;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Answers approval requests, and asks the user before a plugin is used for the first time.
pub(crate) struct ApprovalPrompter {
    terminal: Terminal,
    user: UserPresence,
    data: DataDirectory,
    first_uses: FirstUseHandler,
    /// Names and patterns of the tools whose calls are approved without asking (`--yes`).
    yes: Vec<String>,
}

/// What the prompter does with a suspended turn after the prompter has asked all questions of the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterQuestions {
    /// Continue the turn, because the user answered a question or the turn was cancelled.
    Continue,
    /// Leave the turn suspended, because there was nothing to answer.
    NothingToAnswer,
    /// Leave the turn suspended and ask nothing more, because the user declined to answer.
    StopAsking,
}

impl AfterQuestions {
    /// Returns true if the user should be asked the remaining questions.
    fn asks_more(self) -> bool {
        self != AfterQuestions::StopAsking
    }

    /// Combines the results of two groups of questions.
    fn combine(self, other: AfterQuestions) -> AfterQuestions {
        match (self, other) {
            (AfterQuestions::StopAsking, _) | (_, AfterQuestions::StopAsking) => AfterQuestions::StopAsking,
            (AfterQuestions::Continue, _) | (_, AfterQuestions::Continue) => AfterQuestions::Continue,
            (AfterQuestions::NothingToAnswer, AfterQuestions::NothingToAnswer) => AfterQuestions::NothingToAnswer,
        }
    }
}

/// The user's decision about one tool call.
enum UserDecision {
    /// The user approved or denied the call.
    Verdict(Verdict, AnswerScope),
    /// The turn was cancelled.
    Cancelled,
    /// The user left the turn suspended.
    Declined,
}

impl ApprovalPrompter {
    /// Creates a prompter that approves a call without asking if the call's tool matches a name or pattern in `yes`.
    pub(crate) fn new(
        terminal: &Terminal,
        user: UserPresence,
        (data, first_uses): (&DataDirectory, FirstUseHandler),
        yes: &[String],
    ) -> Self {
        Self { terminal: terminal.clone(), user, data: data.clone(), first_uses, yes: yes.to_vec() }
    }

    /// Returns the handler of questions about grants.
    pub(crate) fn first_uses(&mut self) -> &mut FirstUseHandler {
        &mut self.first_uses
    }

    /// Runs or continues a turn until it ends, or until it waits for something that the user at the terminal cannot
    /// answer or does not want to answer.
    pub(crate) async fn run(
        &mut self,
        session: &mut Session,
        input: Option<TurnInput>,
        view: &mut TurnView<'_>,
        cancel: &CancellationToken,
    ) -> Result<TurnResult, Failure> {
        let mut result = start_turn(session, input, (view, &mut self.first_uses), cancel).await?;
        while let TurnResult::Suspended(_) = result {
            // Subscribe to events before the user is asked, because a later subscriber would miss the events that
            // answers cause in delegated sessions.
            let mut events = session.subscribe();
            let next = self.settle(session, TurnOwner::FirstAgent, cancel).await?;
            while view.receive_waiting(&mut events).await.unwrap_or(false) {}
            match next {
                AfterQuestions::Continue => {
                    result = continue_turn(session, None, (view, &mut self.first_uses), cancel).await?;
                }
                AfterQuestions::NothingToAnswer | AfterQuestions::StopAsking => break,
            }
        }
        Ok(result)
    }

    async fn answer(&mut self, session: &mut Session, cancel: &CancellationToken) -> Result<AfterQuestions, Failure> {
        let pending = session.pending_approvals().await.map_err(Failure::failed)?;
        let (allowed, others): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|item| self.yes.iter().any(|pattern| matches_pattern(pattern, &item.name)));
        let yes = Verdict::Allow { scope: GrantScope::Once, edited: None };
        let decided = |(item, verdict): (ApprovalItem, Verdict)| ApprovalDecision { call: item.call, verdict };
        let mut decisions: Vec<_> = allowed.into_iter().map(|item| decided((item, yes.clone()))).collect();
        if self.user == UserPresence::AtTerminal && !others.is_empty() {
            match self.ask(session, others, cancel).await? {
                Some(verdicts) => decisions.extend(verdicts.into_iter().map(decided)),
                // The caller cancels the turn, so the answers that the user has already given are not used.
                None if cancel.is_cancelled() => return Ok(AfterQuestions::Continue),
                None => return Ok(AfterQuestions::StopAsking),
            }
        }
        if decisions.is_empty() {
            return Ok(AfterQuestions::NothingToAnswer);
        }
        match session.approve(decisions).await {
            // The approval was not accepted, for example because the tool no longer exists. The user is asked about the
            // call again.
            Err(error @ SessionError::Approval(_)) if self.user == UserPresence::AtTerminal => {
                self.warn(&error.to_string());
                Ok(AfterQuestions::Continue)
            }
            Err(error) => Err(Failure::refused(error)),
            Ok(()) => Ok(AfterQuestions::Continue),
        }
    }

    /// Asks the user about each call that waits for an approval. Returns `None` if the user leaves the turn waiting or
    /// cancels it.
    async fn ask(
        &mut self,
        session: &mut Session,
        items: Vec<ApprovalItem>,
        cancel: &CancellationToken,
    ) -> Result<Option<Vec<(ApprovalItem, Verdict)>>, Failure> {
        let total = items.len();
        let mut decided: Vec<(ApprovalItem, Verdict)> = Vec::with_capacity(total);
        let mut remaining_verdict: Option<Verdict> = None;
        self.show_asking_delegate(session);
        for (index, item) in items.into_iter().enumerate() {
            let verdict = match &remaining_verdict {
                Some(verdict) => verdict.clone(),
                None => match self.ask_about(session, &item, (index + 1, total), cancel).await? {
                    UserDecision::Verdict(verdict, AnswerScope::ThisCall) => verdict,
                    UserDecision::Verdict(verdict, AnswerScope::RemainingCalls) => {
                        // The answer applies to all remaining calls, but the edited arguments apply only to this call.
                        remaining_verdict = Some(match &verdict {
                            Verdict::Allow { scope, .. } => Verdict::Allow { scope: *scope, edited: None },
                            deny => deny.clone(),
                        });
                        verdict
                    }
                    UserDecision::Cancelled | UserDecision::Declined => return Ok(None),
                },
            };
            decided.push((item, verdict));
        }
        Ok(Some(decided))
    }

    async fn ask_about(
        &mut self,
        session: &mut Session,
        item: &ApprovalItem,
        position: (usize, usize),
        cancel: &CancellationToken,
    ) -> Result<UserDecision, Failure> {
        let mut edited: Option<Value> = None;
        let original = item.details.as_ref().map(|details| details.arguments.clone()).unwrap_or_default();
        self.ask_for_grants(session, item, cancel).await?;
        if cancel.is_cancelled() {
            return Ok(UserDecision::Cancelled);
        }
        let mut changes = self.rehearse(session, item, None).await?;
        self.terminal.idle();
        self.show(item, (None, &changes), position);
        loop {
            let line = match self.terminal.question(QUESTION, cancel).await.map_err(Failure::output)? {
                TypedLine::Text(line) => line,
                TypedLine::Stopped => return Ok(UserDecision::Cancelled),
                TypedLine::End => return Ok(UserDecision::Declined),
            };
            let arguments = edited.as_ref().unwrap_or(&original);
            if let Some(change) = grant_change(&line) {
                match self.change_grants(session, &change, cancel).await {
                    // The grants decide which changes can be shown.
                    Ok(()) => changes = self.rehearse(session, item, edited.as_ref()).await?,
                    Err(failure) => self.warn(&failure.message),
                }
                self.show(item, (edited.as_ref(), &changes), position);
                continue;
            }
            match Answer::parse(&line) {
                Some(Answer::Allow(scope, calls)) => {
                    return Ok(UserDecision::Verdict(Verdict::Allow { scope, edited }, calls));
                }
                Some(Answer::Deny(reason, calls)) => {
                    return Ok(UserDecision::Verdict(Verdict::Deny { reason }, calls));
                }
                Some(Answer::Whole) => {
                    if !changes.is_empty() {
                        self.terminal.note(self.describe_changes(&changes, Extent::All));
                    }
                    self.terminal.note(approval::whole(arguments));
                }
                Some(Answer::Help) | None => {
                    self.terminal.note(text::wrapped_entry(HELP, self.terminal.width()));
                }
                Some(Answer::Edit(json)) => match self.edited(json, arguments, cancel).await {
                    Ok(changed) => match session.check_edited(&item.name, &changed) {
                        Ok(()) => {
                            changes = self.rehearse(session, item, Some(&changed)).await?;
                            self.show(item, (Some(&changed), &changes), position);
                            edited = Some(changed);
                        }
                        Err(violations) => {
                            let error = agent_core::tool::ToolError::InvalidArguments { violations };
                            self.warn(&error.for_users());
                        }
                    },
                    Err(problem) => self.warn(&problem),
                },
            }
        }
    }

    /// Makes a change of grants that the user has typed.
    pub(crate) async fn change_grants(
        &mut self,
        session: &Session,
        change: &GrantChange,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        GrantChanger { session, first_uses: &mut self.first_uses, terminal: &self.terminal }.apply(change, stop).await
    }

    /// Asks for the grants without which the plugin cannot show what the call would change.
    async fn ask_for_grants(
        &mut self,
        session: &mut Session,
        item: &ApprovalItem,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let lacks_files =
            |question: &FirstUse| question.lacking.iter().any(|unmet| unmet.need == Need::Files(Access::ReadWrite));
        let question = session.first_use_of(&item.call).await.map_err(Failure::failed)?;
        let Some((question, _is_open)) = question.filter(|(question, _)| lacks_files(question)) else { return Ok(()) };
        let plugin = question.plugin.name.clone();
        self.first_uses.serve(question, cancel).await;
        let question = session.first_use_of(&item.call).await.map_err(Failure::failed)?;
        if question.is_some_and(|(question, _)| lacks_files(&question)) {
            self.warn(&format!(
                "`{plugin}` may not change files here, so what the call would change cannot be shown, and the call would be denied; \
                 `/grant {plugin}` asks again"
            ));
        }
        Ok(())
    }

    /// Returns the changes to files that the call would make.
    async fn rehearse(
        &self,
        session: &mut Session,
        item: &ApprovalItem,
        edited: Option<&Value>,
    ) -> Result<Vec<ProposedChange>, Failure> {
        session.rehearse(&item.call, edited).await.map_err(Failure::failed)
    }

    /// Shows a call that needs an approval, with the changes to files that it would make.
    fn show(
        &self,
        item: &ApprovalItem,
        (edited, changes): (Option<&Value>, &[ProposedChange]),
        position: (usize, usize),
    ) {
        let changes = self.describe_changes(changes, Extent::Beginning);
        let request = approval::request(item, (edited, &changes), position);
        self.terminal.note(text::wrapped_entry(&request, self.terminal.width()));
    }

    fn describe_changes(&self, changes: &[ProposedChange], extent: Extent) -> String {
        let folder = std::env::current_dir().unwrap_or_default();
        file_changes::changes(changes, &folder, (extent, "v shows"))
    }

    /// Reads the edited arguments from the text after `e`. If no text follows the `e`, opens the user's editor; if no
    /// editor is set, reads one typed line.
    async fn edited(
        &self,
        json: Option<String>,
        arguments: &Value,
        cancel: &CancellationToken,
    ) -> Result<Value, String> {
        let text = match (json, environment::editor()) {
            (Some(text), _) => text,
            (None, Some(editor)) => self.in_editor(&editor, arguments).await?,
            (None, None) => {
                self.terminal.note(approval::whole(arguments));
                let typed = self.terminal.question("the arguments as JSON, in one line > ", cancel).await;
                match typed.map_err(|error| error.to_string())? {
                    TypedLine::Text(text) => text,
                    TypedLine::End | TypedLine::Stopped => return Err("nothing was changed".to_owned()),
                }
            }
        };
        serde_json::from_str(&text)
            .map_err(|error| format!("the text is not valid JSON, so nothing was changed: {error}"))
    }

    async fn in_editor(&self, editor: &[String], arguments: &Value) -> Result<String, String> {
        let file = self.data.draft(&uuid::Uuid::new_v4().simple().to_string());
        let failed = |error: std::io::Error| format!("the editor `{}` failed: {error}", editor.join(" "));
        write_draft(&file, &format!("{arguments:#}\n")).map_err(failed)?;
        let mode_before = self.terminal.restore_keyboard();
        let mut command = std::process::Command::new(&editor[0]);
        command.args(&editor[1..]).arg(&file);
        let status = tokio::task::spawn_blocking(move || command.status()).await;
        if mode_before == crate::terminal::KeyboardMode::NoEcho {
            self.terminal.turn_off_echo();
        }
        let text = std::fs::read_to_string(&file);
        let removed = std::fs::remove_file(&file);
        match status.map_err(std::io::Error::other).flatten().map_err(failed)? {
            status if status.success() => {}
            status => {
                return Err(format!("the editor `{}` exited with {status}, so nothing was changed", editor.join(" ")));
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

/// Parses `/grant` or `/revoke` with arguments. Returns `None` for any other line.
fn grant_change(line: &str) -> Option<GrantChange> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    GrantChange::parse(name, &words.collect::<Vec<_>>())
}

/// Writes a new file that only its owner can read, because the arguments may be confidential.
fn write_draft(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::io::Write::write_all(&mut options.open(file)?, text.as_bytes())
}
