//! The scripted model of a scenario: each turn has its own replies, and what a turn leaves over is known.

use super::file::Scenario;
use agent_core::model::{Delta, ModelRequest};
use agent_models::{Facts, ModelError, Provider, Purpose, RawReply, Replies, ReplyContext, Scripted, ScriptedReply};
use async_trait::async_trait;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::Sender;
use toml::Spanned;

/// Says what the scenario says.
pub(crate) struct StagedModel {
    turns: Vec<Scripted>,
    /// Beside the turns: summaries, and answers to plugins.
    aside: Scripted,
    playing: Mutex<Playing>,
    besides: Mutex<Besides>,
}

/// Where the model is.
#[derive(Clone, Debug, Default)]
struct Playing {
    turn: usize,
    /// Replies of the session before this turn.
    before: u64,
    /// Replies of this turn that were asked for.
    asked: usize,
    complaints: Vec<Complaint>,
}

/// What was asked beside the turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Besides {
    pub(crate) summaries: Asked,
    pub(crate) answers: Asked,
}

/// What became of one list of replies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Replies that were asked for.
    pub(crate) replies: usize,
    pub(crate) complaints: Vec<Complaint>,
}

/// A request that was not what a reply expects, or that nothing is left for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// The reply in its list, from 0.
    pub(crate) reply: usize,
    /// What is wrong.
    pub(crate) problem: String,
}

impl StagedModel {
    /// `turns`: the replies of each turn that is played.
    pub(crate) fn new(scenario: &Scenario, turns: Vec<Vec<ScriptedReply>>) -> Self {
        let (script, path) = (&scenario.script, &scenario.path);
        let unspanned =
            |replies: &[Spanned<ScriptedReply>]| replies.iter().map(|reply| reply.get_ref().clone()).collect();
        let of = |replies: Replies| Scripted::of_replies(path, script.window, replies);
        let aside =
            Replies { summaries: unspanned(&script.summaries), answers: unspanned(&script.answers), turns: Vec::new() };
        let turns = turns.into_iter().map(|turns| of(Replies { turns, ..Replies::default() })).collect();
        Self { turns, aside: of(aside), playing: Mutex::default(), besides: Mutex::default() }
    }

    /// From now on the replies of this turn are given; `before` is how many the session has had.
    pub(crate) fn begin(&self, turn: usize, before: u64) {
        *self.lock() = Playing { turn, before, ..Playing::default() };
    }

    /// How many replies of the turn were asked for, and what was wrong with the requests.
    pub(crate) fn end(&self) -> (usize, Vec<Complaint>) {
        let playing = self.lock();
        (playing.asked, playing.complaints.clone())
    }

    /// What was asked beside the turns so far.
    pub(crate) fn besides(&self) -> Besides {
        self.besides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn aside(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let replied = self.aside.reply(request, context, deltas).await;
        let mut besides = self.besides.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = match context.purpose {
            Purpose::Turn => return replied,
            Purpose::Summary => &mut besides.summaries,
            Purpose::Plugin => &mut besides.answers,
        };
        let reply = usize::try_from(context.call).unwrap_or(usize::MAX);
        asked.replies = asked.replies.max(reply.saturating_add(1));
        if let Err(ModelError::Unexpected { problems, .. } | ModelError::BrokenRequest { problems, .. }) = &replied {
            complain(&mut asked.complaints, Complaint { reply, problem: problems.join("; ") });
        }
        replied
    }

    fn lock(&self) -> MutexGuard<'_, Playing> {
        self.playing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Provider for StagedModel {
    fn facts(&self) -> &Facts {
        self.aside.facts()
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        if context.purpose != Purpose::Turn {
            return self.aside(request, context, deltas).await;
        }
        let (turn, call) = {
            let mut playing = self.lock();
            let call = context.call.saturating_sub(playing.before);
            playing.asked = playing.asked.max(usize::try_from(call).unwrap_or(usize::MAX).saturating_add(1));
            (playing.turn, call)
        };
        let Some(scripted) = self.turns.get(turn) else { return self.aside(request, context, deltas).await };
        let replied = scripted.reply(request, ReplyContext { call, ..context }, deltas).await;
        let problem = match &replied {
            Err(ModelError::Unexpected { problems, .. } | ModelError::BrokenRequest { problems, .. }) => {
                Some(problems.join("; "))
            }
            Err(ModelError::Exhausted { replies, .. }) => {
                Some(format!("the model is asked once more than the turn has replies ({replies})"))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let reply = usize::try_from(call).unwrap_or(usize::MAX);
            complain(&mut self.lock().complaints, Complaint { reply, problem });
        }
        replied
    }
}

/// A reply that is asked for again is not told again.
fn complain(complaints: &mut Vec<Complaint>, complaint: Complaint) {
    if complaints.iter().all(|told| told.reply != complaint.reply) {
        complaints.push(complaint);
    }
}
