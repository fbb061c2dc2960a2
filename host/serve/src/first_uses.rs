//! Questions about the missing grants of plugins, which people answer in the inbox (P6, I3).
//!
//! A question waits only while somebody who may answer it looks at the inbox. Otherwise, an agent that works without people,
//! such as one with a schedule, would wait for nobody.

use agent_config::first_use::{FirstUseAnswer, FirstUseQuestion, Keeping};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

/// Time for which somebody counts as present after the inbox was read. The web console reads it every few seconds.
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
/// Time between two checks whether somebody is still present.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The questions that wait for a person. All clones share the same questions.
#[derive(Clone, Debug, Default)]
pub struct FirstUseQuestions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By the id of the question.
    waiting: BTreeMap<String, Waiting>,
    /// Who has read the inbox and may answer, and when.
    readers: Vec<(Reader, Instant)>,
}

#[derive(Debug)]
struct Waiting {
    question: OpenFirstUse,
    answer: oneshot::Sender<FirstUseAnswer>,
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
    /// Time after which the question no longer waits, as RFC 3339.
    pub(crate) expires: String,
}

/// A grant that the plugin gets if a person allows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OfferedGrant {
    /// What the grant allows, in words.
    meaning: String,
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
    /// The lines of the configuration that would grant it.
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

/// Why an answer was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnswered {
    /// The question no longer waits, or never existed.
    NotWaiting,
    /// The agent has no file into which the answer could be written.
    CannotBeKept,
}

impl FirstUseQuestions {
    /// Asks a question, and waits for its answer. Returns [`FirstUseAnswer::Stopped`] if nobody who may answer looks at the
    /// inbox, after 10 minutes, and if `stop` is cancelled.
    pub async fn ask(
        &self,
        session: SessionOfQuestion,
        question: &FirstUseQuestion<'_>,
        stop: &CancellationToken,
    ) -> FirstUseAnswer {
        let (answer, answered) = oneshot::channel();
        let Some(id) = self.begin(session.clone(), question, answer) else { return FirstUseAnswer::Stopped };
        // The question no longer waits, even if the future is dropped.
        let _waiting = EndOnDrop(self, id);
        let expired = tokio::time::sleep(MAX_WAIT);
        let left_alone = async {
            while self.is_watched(&session) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            answer = answered => answer.unwrap_or(FirstUseAnswer::Stopped),
            () = expired => FirstUseAnswer::Stopped,
            () = left_alone => FirstUseAnswer::Stopped,
            () = stop.cancelled() => FirstUseAnswer::Stopped,
        }
    }

    fn begin(
        &self,
        session: SessionOfQuestion,
        question: &FirstUseQuestion<'_>,
        answer: oneshot::Sender<FirstUseAnswer>,
    ) -> Option<String> {
        let now = Timestamp::now();
        let offers = question.offers();
        let offered =
            offers.offered.iter().map(|offer| OfferedGrant { meaning: offer.meaning.clone(), line: offer.line() });
        let not_offered = offers.not_offered.iter().map(|request| MissingGrant {
            thing: request.unmet.thing.clone(),
            why: request.why.clone(),
            line: format!("{} {}", request.unmet.advice.table, request.unmet.advice.line),
        });
        let question = OpenFirstUse {
            plugin: question.plugin.name.clone(),
            digest: question.plugin.digest.to_string(),
            tool: question.tool.map(str::to_owned),
            offered: offered.collect(),
            not_offered: not_offered.collect(),
            can_be_kept: question.keeping == Keeping::File,
            since: now.to_string(),
            expires: now.checked_add(MAX_WAIT).unwrap_or(now).to_string(),
            session,
        };
        if !self.is_watched(&question.session) {
            return None;
        }
        let mut state = self.state();
        let is_same = |waiting: &&Waiting| {
            let SessionOfQuestion { agent, user, .. } = &waiting.question.session;
            *agent == question.session.agent && *user == question.session.user
        };
        let own = state.waiting.values().filter(is_same).count();
        if state.waiting.len() >= MAX_QUESTIONS || own >= QUESTIONS_OF_USER {
            return None;
        }
        let id = Uuid::new_v4().to_string();
        state.waiting.insert(id.clone(), Waiting { question, answer });
        Some(id)
    }

    /// Notes that somebody who may answer questions has read the inbox.
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

    /// Answers a question of this session, and returns the question.
    pub(crate) fn answer(&self, session: &str, id: &str, answer: GrantAnswer) -> Result<OpenFirstUse, NotAnswered> {
        let mut state = self.state();
        let waiting = state.waiting.get(id).filter(|waiting| waiting.question.session.session == session);
        let waiting = waiting.ok_or(NotAnswered::NotWaiting)?;
        if matches!(answer, GrantAnswer::Always | GrantAnswer::Never) && !waiting.question.can_be_kept {
            return Err(NotAnswered::CannotBeKept);
        }
        let Waiting { question, answer: sender } = state.waiting.remove(id).ok_or(NotAnswered::NotWaiting)?;
        sender.send(answer.into()).map_err(|_| NotAnswered::NotWaiting)?;
        Ok(question)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a question when its asker no longer waits.
struct EndOnDrop<'q>(&'q FirstUseQuestions, String);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.state().waiting.remove(&self.1);
    }
}
