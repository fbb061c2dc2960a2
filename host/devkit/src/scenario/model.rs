//! The scripted model of a scenario. Each turn has its own list of replies, and unused replies are reported.

use super::file::Scenario;
use agent_core::model::{Delta, ModelRequest};
use agent_models::{
    ModelError, ModelInfo, Provider, Purpose, RawReply, ReplyContext, ScriptedModel, ScriptedReplies, ScriptedReply,
};
use async_trait::async_trait;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::Sender;
use toml::Spanned;

/// A model provider that returns the replies of the scenario.
pub(crate) struct ScenarioModel {
    turns: Vec<ScriptedModel>,
    /// The model that answers all requests except the requests for the next reply of a turn: requests for summaries,
    /// and requests of plugins.
    side: ScriptedModel,
    progress: Mutex<TurnProgress>,
    side_replies: Mutex<SideReplies>,
}

/// The progress of the current turn.
#[derive(Clone, Debug, Default)]
struct TurnProgress {
    turn: usize,
    /// Number of replies that the session used before this turn.
    before: u64,
    /// Number of replies that were used in this turn.
    used: usize,
    problems: Vec<RequestProblem>,
}

/// The replies that were used to answer requests outside of turns, and the problems of these requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideReplies {
    pub(crate) summaries: ReplyUse,
    pub(crate) answers: ReplyUse,
}

/// Number of replies that were used from one list of replies, and the problems of the requests that used these replies.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyUse {
    /// Number of replies in the list that were used.
    pub(crate) used: usize,
    pub(crate) problems: Vec<RequestProblem>,
}

/// A request that did not match the `expect` key of its reply, or for which the list contains no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestProblem {
    /// Index of the reply in its list, counted from 0.
    pub(crate) reply: usize,
    /// Description of the problem with the request.
    pub(crate) problem: String,
}

impl ScenarioModel {
    /// Creates the model. `turns` contains the replies of each turn.
    pub(crate) fn new(scenario: &Scenario, turns: Vec<Vec<ScriptedReply>>) -> Self {
        let (script, path) = (&scenario.script, &scenario.path);
        let unspanned =
            |replies: &[Spanned<ScriptedReply>]| replies.iter().map(|reply| reply.get_ref().clone()).collect();
        let scripted_model = |replies: ScriptedReplies| ScriptedModel::from_replies(path, script.window, replies);
        let side = ScriptedReplies {
            summaries: unspanned(&script.summaries),
            answers: unspanned(&script.answers),
            turns: Vec::new(),
        };
        let turns = turns
            .into_iter()
            .map(|turns| scripted_model(ScriptedReplies { turns, ..ScriptedReplies::default() }))
            .collect();
        Self { turns, side: scripted_model(side), progress: Mutex::default(), side_replies: Mutex::default() }
    }

    /// Starts a turn. `before` is the number of replies that the session has used so far.
    pub(crate) fn begin(&self, turn: usize, before: u64) {
        *self.lock() = TurnProgress { turn, before, ..TurnProgress::default() };
    }

    /// Returns the number of replies that the turn used, and the problems of its requests.
    pub(crate) fn end(&self) -> (usize, Vec<RequestProblem>) {
        let progress = self.lock();
        (progress.used, progress.problems.clone())
    }

    /// Returns how many replies to requests outside of turns were used, and the problems of these requests.
    pub(crate) fn side_replies(&self) -> SideReplies {
        self.side_replies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn side_reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let replied = self.side.reply(request, context, deltas).await;
        let mut side_replies = self.side_replies.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match context.purpose {
            Purpose::Turn => return replied,
            Purpose::Summary => &mut side_replies.summaries,
            Purpose::Plugin => &mut side_replies.answers,
        };
        let reply = usize::try_from(context.call).unwrap_or(usize::MAX);
        list.used = list.used.max(reply.saturating_add(1));
        if let Err(ModelError::UnexpectedRequest { problems, .. } | ModelError::InvalidRequest { problems, .. }) =
            &replied
        {
            add_problem(&mut list.problems, RequestProblem { reply, problem: problems.join("; ") });
        }
        replied
    }

    fn lock(&self) -> MutexGuard<'_, TurnProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Provider for ScenarioModel {
    fn info(&self) -> &ModelInfo {
        self.side.info()
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        if context.purpose != Purpose::Turn {
            return self.side_reply(request, context, deltas).await;
        }
        let (turn, call) = {
            let mut progress = self.lock();
            let call = context.call.saturating_sub(progress.before);
            progress.used = progress.used.max(usize::try_from(call).unwrap_or(usize::MAX).saturating_add(1));
            (progress.turn, call)
        };
        let Some(scripted) = self.turns.get(turn) else { return self.side_reply(request, context, deltas).await };
        let replied = scripted.reply(request, ReplyContext { call, ..context }, deltas).await;
        let problem = match &replied {
            Err(ModelError::UnexpectedRequest { problems, .. } | ModelError::InvalidRequest { problems, .. }) => {
                Some(problems.join("; "))
            }
            Err(ModelError::ScriptExhausted { replies, .. }) => {
                Some(format!("the turn sends more model requests than the turn has scripted replies ({replies})"))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let reply = usize::try_from(call).unwrap_or(usize::MAX);
            add_problem(&mut self.lock().problems, RequestProblem { reply, problem });
        }
        replied
    }
}

/// Adds a problem, unless the list already contains a problem with the same reply: if a request is retried, each
/// attempt uses the same reply.
fn add_problem(problems: &mut Vec<RequestProblem>, problem: RequestProblem) {
    if problems.iter().all(|known| known.reply != problem.reply) {
        problems.push(problem);
    }
}
