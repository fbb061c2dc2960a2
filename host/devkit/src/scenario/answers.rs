//! Passes the scenario's answers to a suspended turn: approvals, answers to questions, and answers of services. Each
//! answer is used once.

use super::check::text_of;
use super::file::Scenario;
use super::report::Failure;
use super::script::{ApprovalAnswer, QuestionAnswer, ServiceAnswer, Turn, Verdict};
use agent_core::approval::GrantScope;
use agent_core::cloud_event::CloudEvent;
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::message::CallId;
use agent_runtime::{ApprovalDecision, ApprovalError, RespondError, Session, SessionError, approvals};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// The answers for one turn that have not been used yet.
pub(crate) struct Answers<'t> {
    scenario: &'t Scenario,
    /// Key of the turn in the scenario file, such as `turns[0]`.
    turn: &'t str,
    approvals: Unused<'t, ApprovalAnswer>,
    questions: Unused<'t, QuestionAnswer>,
    services: Unused<'t, ServiceAnswer>,
    failures: Vec<Failure>,
}

/// The data that tools sent to services in their requests. The keys are the ids of the calls that sent the requests.
pub(crate) type Requests = BTreeMap<String, Value>;

/// Answers that were not used yet, each with its index in the list of answers in the scenario file.
type Unused<'t, T> = Vec<(usize, &'t Spanned<T>)>;

impl<'t> Answers<'t> {
    pub(crate) fn of(scenario: &'t Scenario, (key, turn): (&'t str, &'t Turn)) -> Self {
        Self {
            scenario,
            turn: key,
            approvals: turn.approvals.iter().enumerate().collect(),
            questions: turn.questions.iter().enumerate().collect(),
            services: turn.services.iter().enumerate().collect(),
            failures: Vec::new(),
        }
    }

    /// Finds in the scenario the answers that the turn waits for, and passes them to the session. Returns whether the
    /// session accepted an answer.
    pub(crate) async fn pass_answers(
        &mut self,
        session: &mut Session,
        waits: &Suspension,
        requests: &Requests,
    ) -> Result<bool, SessionError> {
        let (mut decisions, mut is_answered) = (Vec::new(), false);
        for wait in &waits.waits {
            match &wait.cause {
                WaitCause::Approval { .. } => decisions.extend(self.decision(wait)),
                WaitCause::Answer { question, .. } => {
                    if let Some(answer) = self.answer(question) {
                        session.answer(wait.call.clone(), answer).await?;
                        is_answered = true;
                    }
                }
                WaitCause::Service { .. } => {
                    is_answered |= self.respond(session, wait, requests.get(&wait.call.0)).await?
                }
                WaitCause::Agent { .. } | WaitCause::Client | WaitCause::OutcomeUnknown => {}
            }
        }
        if decisions.is_empty() {
            return Ok(is_answered);
        }
        let named: Vec<_> =
            decisions.iter().map(|(position, decision)| (decision.call.clone(), position.clone())).collect();
        let decisions = decisions.into_iter().map(|(_, decision)| decision).collect();
        match session.approve(decisions).await {
            Ok(()) => Ok(true),
            Err(SessionError::Approval(error)) => {
                let rejected = named.iter().find(|(call, _)| call == call_of(&error)).or(named.first());
                let (index, span) = rejected.map(|(_, position)| position.clone()).unwrap_or_default();
                self.reject(("approvals", index, span), error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn decision(&mut self, wait: &Wait) -> Option<((usize, Range<usize>), ApprovalDecision)> {
        let unused_index = self.approvals.iter().position(|(_, answer)| answer.get_ref().name == wait.name)?;
        let (index, spanned) = self.approvals.remove(unused_index);
        let answer = spanned.get_ref();
        let verdict = match answer.verdict {
            Verdict::Allow => approvals::Verdict::Allow { scope: GrantScope::Once, edited: answer.arguments.clone() },
            Verdict::Deny => approvals::Verdict::Deny { reason: answer.reason.clone() },
        };
        Some(((index, spanned.span()), ApprovalDecision { call: wait.call.clone(), verdict }))
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
        self.failures.extend(Failure::of(&place, mismatches));
        None
    }

    async fn respond(
        &mut self,
        session: &mut Session,
        wait: &Wait,
        request: Option<&Value>,
    ) -> Result<bool, SessionError> {
        let Some(unused_index) = self.services.iter().position(|(_, answer)| answer.get_ref().name == wait.name) else {
            return Ok(false);
        };
        let (index, answer) = self.services.remove(unused_index);
        if let Some(pattern) = &answer.get_ref().request {
            let place = self.scenario.place(pattern.span(), format!("{}.services[{index}].request", self.turn));
            let (text, structured) = text_of(request.unwrap_or(&Value::Null));
            self.failures.extend(Failure::of(&place, pattern.get_ref().mismatches(&text, structured)));
        }
        match session.respond(answer_event(wait, answer.get_ref())).await {
            Ok(_) => Ok(true),
            Err(RespondError::Session(error)) => Err(*error),
            Err(error) => {
                self.reject(("services", index, answer.span()), error.to_string());
                Ok(false)
            }
        }
    }

    fn reject(&mut self, (list, index, span): (&str, usize, Range<usize>), problem: String) {
        let place = self.scenario.place(span, format!("{}.{list}[{index}]", self.turn));
        self.failures.push(Failure::at(place, "an answer that the turn accepts", problem));
    }

    /// Returns failures for answers that were rejected, and for answers that the turn did not request.
    pub(crate) fn failures(self) -> Vec<Failure> {
        let Self { scenario, turn, approvals, questions, services, failures } = self;
        let unused = |(list, index, span): (&str, usize, Range<usize>)| {
            let place = scenario.place(span, format!("{turn}.{list}[{index}]"));
            Failure::at(place, "a turn that asks for this answer", "the turn did not ask for this answer".to_owned())
        };
        let approvals = approvals.into_iter().map(|(index, answer)| ("approvals", index, answer.span()));
        // An unused answer to a question is reported only if no failure was found, because an answer also remains
        // unused if its `question` did not match.
        let questions = questions.into_iter().filter(|_| failures.is_empty());
        let questions = questions.map(|(index, answer)| ("questions", index, answer.span()));
        let services = services.into_iter().map(|(index, answer)| ("services", index, answer.span()));
        let unused: Vec<_> = approvals.chain(questions).chain(services).map(unused).collect();
        failures.into_iter().chain(unused).collect()
    }
}

/// Returns the id of the call whose approval failed with this error.
fn call_of(error: &ApprovalError) -> &CallId {
    match error {
        ApprovalError::Arguments { call, .. }
        | ApprovalError::Forbidden { call, .. }
        | ApprovalError::RequestEdited { call, .. }
        | ApprovalError::Gone { call, .. } => call,
    }
}

fn answer_event(wait: &Wait, answer: &ServiceAnswer) -> CloudEvent {
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
