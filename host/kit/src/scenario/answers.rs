//! What a scenario answers to what its turns wait for: approvals, questions, services. Each answer is given once.

use super::file::Scenario;
use super::report::Failure;
use super::script::{ApprovalAnswer, QuestionAnswer, ServiceAnswer, Turn, Verdict};
use agent_core::approval::GrantScope;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_runtime::{ApprovalDecision, RespondError, Session, SessionError, approvals};
use toml::Spanned;

/// The answers of one turn that were not given yet.
pub(crate) struct Answers<'t> {
    scenario: &'t Scenario,
    /// The turn's key in the file.
    turn: &'t str,
    approvals: Left<'t, ApprovalAnswer>,
    questions: Left<'t, QuestionAnswer>,
    services: Left<'t, ServiceAnswer>,
    refused: Vec<Failure>,
}

/// With their places in the list.
type Left<'t, T> = Vec<(usize, &'t Spanned<T>)>;

impl<'t> Answers<'t> {
    pub(crate) fn of(scenario: &'t Scenario, (key, turn): (&'t str, &'t Turn)) -> Self {
        Self {
            scenario,
            turn: key,
            approvals: turn.approvals.iter().enumerate().collect(),
            questions: turn.questions.iter().enumerate().collect(),
            services: turn.services.iter().enumerate().collect(),
            refused: Vec::new(),
        }
    }

    /// Answers what it can; whether that was anything.
    pub(crate) async fn give(&mut self, session: &mut Session, waits: &Suspension) -> Result<bool, SessionError> {
        let (mut decisions, mut given) = (Vec::new(), false);
        for wait in &waits.waits {
            match &wait.cause {
                WaitCause::Approval => decisions.extend(self.decision(wait)),
                WaitCause::Answer { question, .. } => {
                    if let Some(answer) = self.answer(question) {
                        session.answer(wait.call.clone(), answer).await?;
                        given = true;
                    }
                }
                WaitCause::Service { .. } => given |= self.respond(session, wait).await?,
                WaitCause::Agent { .. } | WaitCause::OutcomeUnknown => {}
            }
        }
        if decisions.is_empty() {
            return Ok(given);
        }
        let named: Vec<_> = decisions.iter().map(|(index, _)| *index).collect();
        let decisions = decisions.into_iter().map(|(_, decision)| decision).collect();
        match session.approve(decisions).await {
            Ok(()) => Ok(true),
            Err(SessionError::Approval(error)) => {
                self.refuse(("approvals", named.first().copied().unwrap_or_default()), error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn decision(&mut self, wait: &Wait) -> Option<(usize, ApprovalDecision)> {
        let at = self.approvals.iter().position(|(_, answer)| answer.get_ref().name == wait.name)?;
        let (index, answer) = self.approvals.remove(at);
        let answer = answer.get_ref();
        let verdict = match answer.verdict {
            Verdict::Allow => approvals::Verdict::Allow { scope: GrantScope::Once, edited: answer.arguments.clone() },
            Verdict::Deny => approvals::Verdict::Deny { reason: answer.reason.clone() },
        };
        Some((index, ApprovalDecision { call: wait.call.clone(), verdict }))
    }

    fn answer(&mut self, question: &str) -> Option<String> {
        let (index, spanned) = *self.questions.first()?;
        let answer = spanned.get_ref();
        let mismatches = answer.question.as_ref().map(|pattern| pattern.mismatches(question, None)).unwrap_or_default();
        if mismatches.is_empty() {
            self.questions.remove(0);
            return Some(answer.answer.clone());
        }
        let place = self.scenario.place(spanned.span(), format!("{}.questions[{index}]", self.turn));
        self.refused.extend(Failure::of(&place, mismatches));
        None
    }

    async fn respond(&mut self, session: &mut Session, wait: &Wait) -> Result<bool, SessionError> {
        let Some(at) = self.services.iter().position(|(_, answer)| answer.get_ref().name == wait.name) else {
            return Ok(false);
        };
        let (index, answer) = self.services.remove(at);
        match session.respond(event(wait, answer.get_ref())).await {
            Ok(_) => Ok(true),
            Err(RespondError::Session(error)) => Err(error),
            Err(error) => {
                self.refuse(("services", index), error.to_string());
                Ok(false)
            }
        }
    }

    fn refuse(&mut self, (list, index): (&str, usize), problem: String) {
        let place = self.scenario.place(0..0, format!("{}.{list}[{index}]", self.turn));
        self.refused.push(Failure::at(place, "an answer that can be taken", problem));
    }

    /// Answers that could not be taken, and those that nobody asked for.
    pub(crate) fn failures(self) -> Vec<Failure> {
        let Self { scenario, turn, approvals, questions, services, refused } = self;
        let never = |(list, index, span): (&str, usize, std::ops::Range<usize>)| {
            let place = scenario.place(span, format!("{turn}.{list}[{index}]"));
            Failure::at(place, "to be asked for this answer", "the turn never was".to_owned())
        };
        let approvals = approvals.into_iter().map(|(index, answer)| ("approvals", index, answer.span()));
        // One that does not fit its question is told already.
        let questions = questions.into_iter().filter(|_| refused.is_empty());
        let questions = questions.map(|(index, answer)| ("questions", index, answer.span()));
        let services = services.into_iter().map(|(index, answer)| ("services", index, answer.span()));
        let left: Vec<_> = approvals.chain(questions).chain(services).map(never).collect();
        refused.into_iter().chain(left).collect()
    }
}

fn event(wait: &Wait, answer: &ServiceAnswer) -> CloudEvent {
    let text = |text: &str| Some(text.to_owned());
    CloudEvent {
        specversion: "1.0".to_owned(),
        id: format!("answer-to-{}", wait.call),
        source: "scenario".to_owned(),
        event_type: answer.event_type.clone(),
        subject: None,
        time: None,
        datacontenttype: text("application/json"),
        parentid: text(&wait.call.0),
        domain: None,
        deduplicationid: None,
        traceparent: None,
        tracestate: None,
        data: answer.data.clone(),
    }
}
