//! Questions about the missing grants of plugins, which people answer in the inbox (P6, I3).
//!
//! A question waits only while somebody who may answer it says that they look at the inbox. Otherwise, an agent that works without
//! people would wait for nobody. Turns of schedules and webhooks never wait. What a plugin did without is listed afterwards.

use agent_config::first_use::{FirstUseAnswer, FirstUseQuestion, Keeping};
use agent_plugins::{CallNeeds, UnmetNeed};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

/// Time for which somebody counts as present after their last sign. The web console sends one every few seconds.
const PRESENCE: Duration = Duration::from_secs(30);
/// Maximum time for which a question waits.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);
/// Maximum number of questions that wait at the same time.
const MAX_QUESTIONS: usize = 256;
/// Maximum number of questions that wait at the same time in the sessions of one user with one agent, so that one user cannot
/// take the places of others.
const QUESTIONS_OF_USER: usize = 8;
/// Maximum number of readers of the inbox that are remembered.
const MAX_READERS: usize = 256;
/// Maximum number of denied grants that are listed.
const MAX_DENIED: usize = 256;
/// Maximum number of denied grants that are listed for the sessions of one user with one agent.
const DENIED_OF_USER: usize = 16;
/// Time between two checks whether somebody is still present.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The questions that wait for a person. All clones share the same questions.
#[derive(Clone, Debug, Default)]
pub struct FirstUseQuestions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By the id of the question.
    waiting: BTreeMap<String, Waiting>,
    /// What plugins did without, the oldest first.
    denied: Vec<DeniedFirstUse>,
    /// Who has said that they look at the inbox and may answer, and when.
    readers: Vec<(Reader, Instant)>,
}

/// A question that nobody was there to answer, so that the plugin ran without the grants.
#[derive(Clone, Debug)]
pub(crate) struct DeniedFirstUse {
    pub(crate) id: String,
    pub(crate) question: OpenFirstUse,
    /// What the plugin lacked.
    pub(crate) lacked: Vec<UnmetNeed>,
    /// What was known about the needs of the call.
    pub(crate) call: CallNeeds,
}

#[derive(Debug)]
struct Waiting {
    question: OpenFirstUse,
    answer: oneshot::Sender<GivenAnswer>,
}

/// Whose sessions a reader of the inbox sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Names of the agents.
    pub(crate) agents: Vec<String>,
    /// The user whose sessions the reader sees. `None` means the sessions of all users.
    pub(crate) user: Option<String>,
}

impl Reader {
    fn sees(&self, session: &SessionOfQuestion) -> bool {
        self.agents.contains(&session.agent) && (self.user.is_none() || self.user == session.user)
    }
}

/// The session for which a plugin is about to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOfQuestion {
    /// Id (subject) of the session.
    pub session: String,
    /// Name of the agent of the session.
    pub agent: String,
    /// The user for whom the session works.
    pub user: Option<String>,
    /// Beginning of the session's first prompt.
    pub title: Option<String>,
    /// What began the turn.
    pub turn: TurnOrigin,
}

/// What began a turn that uses a plugin. A turn of a delegate has the origin of the turn that delegated the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOrigin {
    /// A prompt or a call.
    Prompt,
    /// A schedule or a webhook. Such a turn never waits for a person who could give grants.
    Unattended,
}

/// A question that waits.
#[derive(Clone, Debug)]
pub(crate) struct OpenFirstUse {
    pub(crate) session: SessionOfQuestion,
    /// Name of the plugin.
    pub(crate) plugin: String,
    /// Digest of the plugin's component.
    pub(crate) digest: String,
    /// The tool that is called. `None` if the plugin builds the context.
    pub(crate) tool: Option<String>,
    pub(crate) offered: Vec<OfferedGrant>,
    pub(crate) not_offered: Vec<MissingGrant>,
    /// Whether an answer can be written into the agent's file.
    pub(crate) can_be_kept: bool,
    /// Time at which the question was asked, as RFC 3339.
    pub(crate) since: String,
    /// Time after which the question no longer waits, as RFC 3339. `None` if it does not wait.
    pub(crate) expires: Option<String>,
}

/// A grant that the plugin gets if a person allows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OfferedGrant {
    /// What the grant allows, in words.
    meaning: String,
    /// The table of the agent's file to which the line belongs.
    #[schema(example = "[plugins.files.grants]")]
    table: String,
    /// The line that the answer `always` writes into the agent's file.
    pub(crate) line: String,
}

/// A request of the plugin that no answer can grant.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct MissingGrant {
    /// What the plugin requests.
    thing: String,
    /// Why it cannot be granted here.
    why: String,
    /// The table of the configuration to which the line belongs. Empty if no configuration can grant it.
    table: String,
    /// The line of the configuration that would grant it, or what to do instead if `table` is empty.
    line: String,
}

/// An answer to a question about grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GrantAnswer {
    /// The plugin gets the offered grants in this session, until the server stops.
    ThisSession,
    /// The plugin gets the offered grants, and they are written into the agent's file.
    Always,
    /// The plugin does not get them in this session.
    No,
    /// The plugin does not get them, and nobody is asked again: `ask = false` is written into the agent's file.
    Never,
}

impl GrantAnswer {
    /// The name of the answer in requests and in the audit log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ThisSession => "this_session",
            Self::Always => "always",
            Self::No => "no",
            Self::Never => "never",
        }
    }
}

impl From<GrantAnswer> for FirstUseAnswer {
    fn from(answer: GrantAnswer) -> Self {
        match answer {
            GrantAnswer::ThisSession => Self::ThisSession,
            GrantAnswer::Always => Self::Always,
            GrantAnswer::No => Self::No,
            GrantAnswer::Never => Self::Never,
        }
    }
}

/// An answer, and where its effect is reported.
#[derive(Debug)]
pub struct GivenAnswer {
    /// The answer.
    pub answer: FirstUseAnswer,
    /// Receives the effect of the answer. If it is dropped, the answer was not used.
    pub effect: EffectReport,
}

/// Reports the effect of an answer to the person who gave it.
#[derive(Debug)]
pub struct EffectReport(oneshot::Sender<AnswerEffect>);

impl EffectReport {
    /// Reports the effect. If nobody waits for the report any more, it is dropped.
    pub fn send(self, effect: AnswerEffect) {
        let _ = self.0.send(effect);
    }
}

/// What an answer changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEffect {
    /// The answer is used in the session.
    Used,
    /// The answer is used, and it was written into the agent's file.
    Kept,
    /// The answer is used in the session, and it was not written into the agent's file.
    NotKept {
        /// Why it was not written.
        reason: String,
    },
    /// The plugin did not get the grants.
    NotUsed {
        /// Why the answer could not be used.
        reason: String,
    },
}

/// Why an answer was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnswered {
    /// The question no longer waits, or never existed.
    NotWaiting,
    /// Nobody was asked, and the plugin has run without the grants.
    AlreadyDenied,
    /// The agent has no file into which the answer could be written.
    CannotBeKept,
}

impl FirstUseQuestions {
    /// Asks a question, and waits for its answer. Returns `None` if nobody who may answer looks at the inbox, if a schedule or a
    /// webhook has begun the turn, after 10 minutes, and if `stop` is cancelled. What the plugin then does without is listed in
    /// the inbox, unless `stop` was cancelled.
    pub async fn ask(
        &self,
        session: SessionOfQuestion,
        question: &FirstUseQuestion<'_>,
        stop: &CancellationToken,
    ) -> Option<GivenAnswer> {
        let asked = open_question(session, question);
        let answer = self.answer_to(asked.clone(), stop).await;
        if answer.is_none() && !stop.is_cancelled() {
            self.note_denied(asked, question.offers().requested(), question.call.clone());
        }
        answer
    }

    async fn answer_to(&self, asked: OpenFirstUse, stop: &CancellationToken) -> Option<GivenAnswer> {
        let session = asked.session.clone();
        let (answer, answered) = oneshot::channel();
        let id = self.begin(asked, answer)?;
        // The question no longer waits, even if the future is dropped.
        let _waiting = EndOnDrop(self, id);
        let expired = tokio::time::sleep(MAX_WAIT);
        let left_alone = async {
            while self.is_watched(&session) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            answer = answered => answer.ok(),
            () = expired => None,
            () = left_alone => None,
            () = stop.cancelled() => None,
        }
    }

    fn begin(&self, question: OpenFirstUse, answer: oneshot::Sender<GivenAnswer>) -> Option<String> {
        if question.session.turn == TurnOrigin::Unattended || !self.is_watched(&question.session) {
            return None;
        }
        let mut state = self.state();
        let own = state.waiting.values().filter(|waiting| waiting.question.has_same_owner(&question)).count();
        if state.waiting.len() >= MAX_QUESTIONS || own >= QUESTIONS_OF_USER {
            return None;
        }
        let id = Uuid::new_v4().to_string();
        state.waiting.insert(id.clone(), Waiting { question, answer });
        Some(id)
    }

    /// Lists what a plugin did without, instead of what the same plugin did without before.
    fn note_denied(&self, question: OpenFirstUse, lacked: Vec<UnmetNeed>, call: CallNeeds) {
        let mut state = self.state();
        state.denied.retain(|denied| {
            let is_same = denied.question.has_same_owner(&question) && denied.question.plugin == question.plugin;
            !is_same || denied.lacked != lacked || denied.call != call
        });
        let own = |denied: &DeniedFirstUse| denied.question.has_same_owner(&question);
        if state.denied.iter().filter(|denied| own(denied)).count() >= DENIED_OF_USER {
            if let Some(oldest) = state.denied.iter().position(own) {
                state.denied.remove(oldest);
            }
        } else if state.denied.len() >= MAX_DENIED {
            state.denied.remove(0);
        }
        let question = OpenFirstUse { expires: None, ..question };
        state.denied.push(DeniedFirstUse { id: Uuid::new_v4().to_string(), question, lacked, call });
    }

    /// Returns what plugins did without in sessions that the reader sees. What `is_outdated` says is forgotten.
    pub(crate) fn denied_for(
        &self,
        reader: &Reader,
        is_outdated: impl Fn(&DeniedFirstUse) -> bool,
    ) -> Vec<DeniedFirstUse> {
        let mut state = self.state();
        state.denied.retain(|denied| !is_outdated(denied));
        state.denied.iter().filter(|denied| reader.sees(&denied.question.session)).cloned().collect()
    }

    /// Forgets what a plugin did without in this session, because a person has seen it.
    pub(crate) fn dismiss(&self, session: &str, id: &str) -> Result<(), NotAnswered> {
        let mut state = self.state();
        let is_meant = |denied: &DeniedFirstUse| denied.id == id && denied.question.session.session == session;
        let place = state.denied.iter().position(is_meant).ok_or(NotAnswered::NotWaiting)?;
        state.denied.remove(place);
        Ok(())
    }

    /// Notes that somebody who may answer questions looks at the inbox.
    pub(crate) fn note_reader(&self, reader: Reader) {
        let mut state = self.state();
        state.readers.retain(|(known, time)| *known != reader && time.elapsed() < PRESENCE);
        if state.readers.len() < MAX_READERS {
            state.readers.push((reader, Instant::now()));
        }
    }

    fn is_watched(&self, session: &SessionOfQuestion) -> bool {
        let state = self.state();
        state.readers.iter().any(|(reader, time)| time.elapsed() < PRESENCE && reader.sees(session))
    }

    /// Returns the questions about sessions that the reader sees, with their ids.
    pub(crate) fn waiting_for(&self, reader: &Reader) -> Vec<(String, OpenFirstUse)> {
        let state = self.state();
        let seen = state.waiting.iter().filter(|(_, waiting)| reader.sees(&waiting.question.session));
        seen.map(|(id, waiting)| (id.clone(), waiting.question.clone())).collect()
    }

    /// Answers a question of this session. Returns the question, and the effect of the answer when it is known.
    pub(crate) fn answer(
        &self,
        session: &str,
        id: &str,
        answer: GrantAnswer,
    ) -> Result<(OpenFirstUse, oneshot::Receiver<AnswerEffect>), NotAnswered> {
        let mut state = self.state();
        if state.denied.iter().any(|denied| denied.id == id && denied.question.session.session == session) {
            return Err(NotAnswered::AlreadyDenied);
        }
        let waiting = state.waiting.get(id).filter(|waiting| waiting.question.session.session == session);
        let waiting = waiting.ok_or(NotAnswered::NotWaiting)?;
        if matches!(answer, GrantAnswer::Always | GrantAnswer::Never) && !waiting.question.can_be_kept {
            return Err(NotAnswered::CannotBeKept);
        }
        let Waiting { question, answer: sender } = state.waiting.remove(id).ok_or(NotAnswered::NotWaiting)?;
        let (report, effect) = oneshot::channel();
        let given = GivenAnswer { answer: answer.into(), effect: EffectReport(report) };
        sender.send(given).map_err(|_| NotAnswered::NotWaiting)?;
        Ok((question, effect))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFirstUse {
    /// Whether another question is about a session of the same user with the same agent.
    fn has_same_owner(&self, other: &Self) -> bool {
        self.session.agent == other.session.agent && self.session.user == other.session.user
    }
}

/// Describes a question for people.
fn open_question(session: SessionOfQuestion, question: &FirstUseQuestion<'_>) -> OpenFirstUse {
    let now = Timestamp::now();
    let offers = question.offers();
    let offered = offers.offered.iter().map(|offer| OfferedGrant {
        meaning: offer.meaning.clone(),
        table: offer.unmet.advice.table.clone(),
        line: offer.line(),
    });
    let not_offered = offers.not_offered.iter().map(|request| MissingGrant {
        thing: request.unmet.thing.clone(),
        why: request.why.clone(),
        table: request.unmet.advice.table.clone(),
        line: request.unmet.advice.line.clone(),
    });
    OpenFirstUse {
        plugin: question.plugin.name.clone(),
        digest: question.plugin.digest.to_string(),
        tool: question.tool.map(str::to_owned),
        offered: offered.collect(),
        not_offered: not_offered.collect(),
        can_be_kept: question.keeping == Keeping::File,
        since: now.to_string(),
        expires: Some(now.checked_add(MAX_WAIT).unwrap_or(now).to_string()),
        session,
    }
}

/// Removes a question when its asker no longer waits.
struct EndOnDrop<'q>(&'q FirstUseQuestions, String);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.state().waiting.remove(&self.1);
    }
}
