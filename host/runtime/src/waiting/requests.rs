//! Handles requests to a session between the actions of a turn.

use super::responses::{RespondError, ResponseOutcome};
use crate::agent::AgentError;
use crate::approvals::ApprovalError;
use crate::host::SessionServices;
use crate::media::AttachError;
use crate::requests::{Accepted, DuringTurn, Prompt, RequestError, RequestProblem, SessionRequest};
use crate::session::{Session, SessionError};
use agent_core::event::{Wait, WaitCause};
use agent_core::message::{Part, TurnInput};
use agent_core::run::{InputError, QueuedPrompt, Run};
use agent_plugins::NewMediaItem;
use agent_store::StoreError;

impl Session {
    /// Handles a request, which another process has stored with this id.
    pub(crate) async fn accept_stored(
        &mut self,
        request: SessionRequest,
        stored: Option<String>,
    ) -> Result<Accepted, RequestError> {
        self.log.answer_with_commit(stored);
        let answer = self.accept(request).await;
        self.log.answer_with_commit(None);
        answer
    }

    /// Handles a request. A prompt is queued, because the caller begins turns itself.
    pub(crate) async fn accept(&mut self, request: SessionRequest) -> Result<Accepted, RequestError> {
        match request {
            SessionRequest::Prompt(prompt) => {
                check_user(&self.run, &prompt)?;
                let queued = queued_prompt(&self.services, prompt).await?;
                self.log.queue_prompt(&self.services, &self.run, queued).await?;
                self.add_queued_prompts();
                return Ok(Accepted::Queued);
            }
            SessionRequest::FirstPrompt(_) => return Ok(Accepted::Duplicate),
            SessionRequest::Respond(event) => return Ok(self.respond(*event).await?.into()),
            SessionRequest::TakeResults(results) => return self.take_results(results).await,
            SessionRequest::Approve(decisions) => self.approve(decisions).await?,
            SessionRequest::Rehearse { call } => {
                return match self.run.waits().iter().any(|wait| wait.call == call && is_approval(wait)) {
                    true => Ok(Accepted::Rehearsed { changes: self.rehearse(&call, None).await? }),
                    false => Err(RequestError::new(
                        RequestProblem::Conflict,
                        format!("the call `{call}` does not wait for an approval"),
                    )),
                };
            }
            SessionRequest::Answer { call, text } => self.answer(call, text).await?,
            SessionRequest::Resolve { call, decision } => self.resolve(call, decision).await?,
            SessionRequest::Close => return Err(turn_runs()),
            SessionRequest::Undo => {
                self.undo().await?;
                return Ok(Accepted::Undone);
            }
            SessionRequest::Cancel | SessionRequest::Continue => {}
        }
        Ok(Accepted::Stored { violations: Vec::new(), waits: self.run.waits() })
    }
}

fn is_approval(wait: &Wait) -> bool {
    matches!(wait.cause, WaitCause::Approval { .. })
}

/// The error for a session that cannot be closed now.
pub(crate) fn turn_runs() -> RequestError {
    RequestError::new(RequestProblem::Conflict, "a turn of the session runs; cancel it first")
}

/// Stores the attachments of a prompt in the session, and returns the prompt as it is queued.
pub(crate) async fn queued_prompt(services: &SessionServices, prompt: Prompt) -> Result<QueuedPrompt, RequestError> {
    if prompt.during_turn == DuringTurn::Refuse || !prompt.client_tools.is_empty() {
        let message = "a turn of this session is open; try again when it has ended";
        return Err(RequestError::new(RequestProblem::Conflict, message));
    }
    let input = with_attachments(services, prompt.input, prompt.attachments).await?;
    Ok(QueuedPrompt { input, trace: prompt.trace, steers: prompt.during_turn == DuringTurn::Steer })
}

/// Stores the attachments of an input in the session, and returns the input with the stored items.
pub(crate) async fn with_attachments(
    services: &SessionServices,
    input: TurnInput,
    attachments: Vec<NewMediaItem>,
) -> Result<TurnInput, RequestError> {
    if attachments.is_empty() {
        return Ok(input);
    }
    let mut parts = input.message().parts;
    for attachment in attachments {
        parts.push(Part::Media(services.attach(attachment).await?));
    }
    Ok(TurnInput::Message(parts))
}

/// Checks that a queued prompt comes from the user for whom the open turn works, because the turn that it begins or steers
/// works for this user.
pub(crate) fn check_user(run: &Run, prompt: &Prompt) -> Result<(), RequestError> {
    check_delegation(run, prompt)?;
    check_turn(run, prompt)?;
    let user = run.turn.as_ref().and_then(|turn| turn.config.user.as_deref());
    match prompt.user.as_ref().is_none_or(|own| Some(own.as_str()) == user) {
        true => Ok(()),
        false => Err(RequestError::new(
            RequestProblem::Conflict,
            "the open turn of this session works for another user; try again when the turn has ended",
        )),
    }
}

/// Refuses a prompt if the session has begun a turn that its sender does not know.
pub(crate) fn check_turn(run: &Run, prompt: &Prompt) -> Result<(), RequestError> {
    match prompt.after_turn.is_none_or(|known| known == run.turns) {
        true => Ok(()),
        false => Err(RequestError::new(
            RequestProblem::Conflict,
            "the session has begun another turn in the meantime; continue after its last turn",
        )),
    }
}

/// Refuses a prompt that would begin a turn in a delegated session, because the result of the delegated turn belongs to the
/// parent (L16). A prompt may steer the delegated turn.
pub(crate) fn check_delegation(run: &Run, prompt: &Prompt) -> Result<(), RequestError> {
    match run.delegated_by.is_some() && !(prompt.during_turn == DuringTurn::Steer && run.is_open()) {
        false => Ok(()),
        true => Err(RequestError::new(
            RequestProblem::Conflict,
            "this session works for another session, so it accepts only prompts that steer its open turn",
        )),
    }
}

impl From<ResponseOutcome> for Accepted {
    fn from(outcome: ResponseOutcome) -> Self {
        match outcome {
            ResponseOutcome::Taken { violations, waits } => Self::Stored { violations, waits },
            ResponseOutcome::Duplicate => Self::Duplicate,
            ResponseOutcome::Late => Self::Late,
        }
    }
}

impl From<SessionError> for RequestError {
    fn from(error: SessionError) -> Self {
        let problem = match &error {
            SessionError::Store(error) => problem_of_store(error),
            SessionError::Input(InputError::UnknownCall(_)) => RequestProblem::NotFound,
            SessionError::Input(InputError::TooDeep(_)) => RequestProblem::Invalid,
            SessionError::Input(InputError::Inconsistent(_)) | SessionError::Restore { .. } => RequestProblem::Failed,
            SessionError::Input(_) => RequestProblem::Conflict,
            SessionError::Approval(ApprovalError::Forbidden { .. } | ApprovalError::Gone { .. }) => {
                RequestProblem::Conflict
            }
            SessionError::Approval(_) => RequestProblem::Invalid,
            SessionError::Generation(_) | SessionError::UnknownPlugins { .. } | SessionError::NoPlace => {
                RequestProblem::Unavailable
            }
            SessionError::Agent(AgentError::ClientTools(_)) => RequestProblem::Invalid,
            SessionError::Agent(_) => RequestProblem::Failed,
        };
        Self::new(problem, error)
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        Self::new(problem_of_store(&error), error)
    }
}

impl From<AttachError> for RequestError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Refused(problem) => {
                Self::new(RequestProblem::Invalid, format!("the attachment is refused: {problem}"))
            }
            AttachError::Store(error) => error.into(),
        }
    }
}

impl From<RespondError> for RequestError {
    fn from(error: RespondError) -> Self {
        let problem = match error {
            RespondError::Session(error) => return (*error).into(),
            RespondError::NoCall { .. } | RespondError::NoRequest { .. } => RequestProblem::NotFound,
            RespondError::NotAService { .. } => RequestProblem::Conflict,
            RespondError::NotNow { .. } => RequestProblem::Unavailable,
            RespondError::NoParent
            | RespondError::Reserved { .. }
            | RespondError::OtherSubject { .. }
            | RespondError::UnknownType { .. }
            | RespondError::NoSubject { .. }
            | RespondError::Decisions { .. }
            | RespondError::NotRequested { .. } => RequestProblem::Invalid,
        };
        Self::new(problem, error)
    }
}

fn problem_of_store(error: &StoreError) -> RequestProblem {
    match error {
        StoreError::NoSession { .. } | StoreError::Incomplete { .. } => RequestProblem::NotFound,
        StoreError::Invalid { .. } | StoreError::TooLarge { .. } => RequestProblem::Invalid,
        StoreError::Busy { .. }
        | StoreError::LeaseLost { .. }
        | StoreError::Conflict { .. }
        | StoreError::RequestsFull { .. } => RequestProblem::Unavailable,
        _ => RequestProblem::Failed,
    }
}
