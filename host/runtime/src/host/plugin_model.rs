//! Lets plugins ask the agent's model. In each turn, each plugin has its own token budget. The tokens that a plugin
//! uses are counted both toward this budget and toward the token usage of the turn (P5, L5).

use super::abandoned_calls::{AbandonedCalls, MeteredCall};
use super::budget::{Account, BudgetGate, BudgetRefusal, Reservation, estimate};
use crate::agent::Models;
use crate::records::{ModelQuestionRecord, PluginModelRecord, PluginModelReply};
use agent_core::message::Message;
use agent_core::model::{ModelRequest, Reply, Usage};
use agent_core::plugin::Lifecycle;
use agent_core::run::{Input, Run};
use agent_core::tokens;
use agent_core::tool::ModelUse;
use agent_core::visible::visible_request;
use agent_models::{ModelError, NoMedia, Provider, Purpose, RawReply, ReplyContext};
use agent_plugins::{ModelCaller, ModelPort, ModelPortRequest, ModelPortResponse, ModelRefusal, TimingClock};
use agent_store::digest_of;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc;

/// Keeps account of the questions that plugins ask the model in the open turn: stores how many tokens each plugin has
/// used, and which finished questions are not committed yet.
#[derive(Default)]
pub(crate) struct ModelLedger(Mutex<LedgerState>);

#[derive(Default)]
struct LedgerState {
    /// Whose budgets the open turn uses. `None` if no turn is open.
    account: Option<Account>,
    /// Number of questions that plugins have asked the model in the session so far.
    questions: u64,
    /// Number of tokens that each plugin has used or reserved in the open turn, by the name of the plugin. Tokens are
    /// reserved while a question is being answered.
    tokens: BTreeMap<String, u64>,
    finished: VecDeque<FinishedQuestion>,
}

/// A finished question of a plugin to the model. The question must be committed before any data that depends
/// on the answer.
pub(crate) struct FinishedQuestion {
    pub(crate) input: Input,
    pub(crate) record: PluginModelRecord,
    pub(crate) texts: Vec<String>,
    /// Keeps the question in the budgets until its usage is committed.
    pub(crate) reservation: Option<Reservation>,
}

impl ModelLedger {
    /// Initialises the counts for the open turn: the number of questions and the used tokens are taken from the stored
    /// state of the turn.
    pub(crate) fn begin(&self, run: &Run) {
        let uses = run.turn.iter().flat_map(|turn| &turn.plugin_model_use);
        let tokens = uses.map(|(plugin, used)| (plugin.clone(), used.usage.total())).collect();
        let account = Account::of(run);
        *self.lock() = LedgerState { account, questions: run.asks, tokens, finished: VecDeque::new() };
    }

    fn account(&self) -> Option<Account> {
        self.lock().account.clone()
    }

    /// Removes the oldest finished question that is not committed yet, and returns it.
    pub(crate) fn next(&self) -> Option<FinishedQuestion> {
        self.lock().finished.pop_front()
    }

    /// Reserves tokens of the plugin's budget for a question with `prompt` tokens and an answer of at most
    /// `max_answer` tokens.
    fn reserve(
        self: &Arc<Self>,
        asker: &ModelCaller,
        question: &ModelPortRequest,
        (prompt, max_answer): (u64, u64),
    ) -> Result<ReservedTokens, ModelRefusal> {
        let mut ledger = self.lock();
        let used = ledger.tokens.entry(asker.plugin.clone()).or_default();
        let left = asker.budget.saturating_sub(*used);
        let answer = left.saturating_sub(prompt).min(max_answer);
        if answer == 0 {
            return Err(ModelRefusal::Budget { left });
        }
        let tokens = prompt + answer;
        *used += tokens;
        let number = ledger.questions;
        ledger.questions += 1;
        let (ledger, asker) = (Arc::clone(self), asker.clone());
        let record = PluginModelRecord {
            plugin: asker.plugin.clone(),
            call: asker.call.clone(),
            question: question_record(question),
            answer: None,
            reply: None,
            error: None,
            timing: None,
        };
        let texts = texts_of(question);
        Ok(ReservedTokens {
            ledger,
            asker,
            number,
            prompt,
            answer,
            record,
            texts,
            outcome: None,
            reservation: None,
            spent: AbandonedCalls::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens that are reserved for one question. If the call is stopped before the question is answered, all reserved
/// tokens count as used, because it is unknown how many tokens the model has generated.
struct ReservedTokens {
    ledger: Arc<ModelLedger>,
    asker: ModelCaller,
    /// Index of the question among all questions of the session, starting at 0.
    number: u64,
    prompt: u64,
    answer: u64,
    record: PluginModelRecord,
    texts: Vec<String>,
    /// Number of tokens that the question takes from the plugin's budget, and the token usage that the provider
    /// reported. `None` until the question is finished.
    outcome: Option<(u64, Usage)>,
    /// What the request to the model has reserved of the budgets of the turn (O4).
    reservation: Option<Reservation>,
    /// The usage of requests that ended without an answer.
    spent: AbandonedCalls,
}

impl ReservedTokens {
    /// Counts `tokens` as used instead of the reserved tokens, and returns the plugin's remaining budget.
    fn finish(mut self, tokens: u64, usage: Usage) -> u64 {
        self.outcome = Some((tokens, usage));
        let ledger = Arc::clone(&self.ledger);
        let (plugin, budget) = (self.asker.plugin.clone(), self.asker.budget);
        drop(self);
        let used = ledger.lock().tokens.get(&plugin).copied().unwrap_or_default();
        budget.saturating_sub(used)
    }
}

impl Drop for ReservedTokens {
    fn drop(&mut self) {
        let reserved = self.prompt + self.answer;
        let spent = self.spent.take().unwrap_or_default();
        let (charged, mut usage) = self.outcome.unwrap_or((reserved, Usage::default()));
        let charged =
            if self.outcome.is_some() { charged.saturating_add(spent.total()) } else { charged.max(spent.total()) };
        usage += spent;
        let plugin = self.asker.plugin.clone();
        let mut ledger = self.ledger.lock();
        let used = ledger.tokens.entry(plugin.clone()).or_default();
        *used = used.saturating_sub(reserved).saturating_add(charged);
        let input = Input::PluginUsedModel { plugin, used: ModelUse { asks: 1, usage } };
        let (record, texts) = (self.record.clone(), std::mem::take(&mut self.texts));
        // The budgets count what the question has used, until the commit of the question charges it.
        let reservation = self.reservation.take().inspect(|reservation| reservation.end(usage));
        ledger.finished.push_back(FinishedQuestion { input, record, texts, reservation });
    }
}

/// Implements the model port for plugins: sends the questions of plugins to the agent's models.
pub(crate) struct AgentModel {
    pub(crate) models: Models,
    pub(crate) ledger: Arc<ModelLedger>,
    pub(crate) budget_gate: BudgetGate,
    /// Maximum number of tokens of the model's answer to a plugin's question.
    pub(crate) reply_tokens: u32,
    pub(crate) session: String,
}

#[async_trait::async_trait]
impl ModelPort for AgentModel {
    async fn ask(&self, asker: &ModelCaller, question: ModelPortRequest) -> Result<ModelPortResponse, ModelRefusal> {
        let prompt = u64::from(prompt_tokens(&question));
        let max_answer = question.max_tokens.unwrap_or(u32::MAX).min(self.reply_tokens);
        let mut reserved = self.ledger.reserve(asker, &question, (prompt, max_answer.into()))?;
        let clock = TimingClock::start();
        let result = self.ask_in_order(&question, &mut reserved).await;
        reserved.record.timing = Some(clock.stop());
        match result {
            Ok(RawReply { reply, raw }) => {
                reserved.record.answer = Some(raw);
                let Reply { text, stop, usage, model, .. } = reply;
                // If the provider does not report a token usage, the host estimates the number of tokens.
                let counted =
                    if usage.total() == 0 { prompt + u64::from(tokens::of_text(&text)) } else { usage.total() };
                let reply = PluginModelReply { text: text.clone(), stop, usage, model: model.clone() };
                reserved.record.reply = Some(reply);
                let left = reserved.finish(counted, usage);
                Ok(ModelPortResponse { text, stop, usage, left, model })
            }
            Err(refusal) => {
                reserved.record.error = Some(refusal.to_string());
                reserved.finish(0, Usage::default());
                Err(refusal)
            }
        }
    }
}

impl AgentModel {
    /// Asks the models of the fallback chain in order until one of them answers. A request to one model is retried
    /// before the next model is asked (M3).
    async fn ask_in_order(
        &self,
        question: &ModelPortRequest,
        reserved: &mut ReservedTokens,
    ) -> Result<RawReply, ModelRefusal> {
        let mut index = self.models.replacement_for(0).unwrap_or(0);
        loop {
            let model = self.models.at(index);
            let refusal = match self.ask_one(model, question, reserved).await {
                Ok(reply) => return Ok(reply),
                Err(QuestionError::Refused(refusal)) => refusal,
                Err(QuestionError::Model(error)) => {
                    let (session, plugin) = (&self.session, &reserved.asker.plugin);
                    tracing::warn!(%session, %plugin, %error, "the model did not answer a plugin's question");
                    // The plugin does not receive the provider's error, because the error may contain addresses and
                    // messages of the provider.
                    if error.retryable() {
                        self.models.start_cooldown(index);
                        ModelRefusal::Unavailable("the model is busy or cannot be reached".to_owned())
                    } else {
                        ModelRefusal::Failed(
                            "the model did not answer the question; the reason is in the host's log".to_owned(),
                        )
                    }
                }
            };
            match self.models.next_after(index) {
                Some(next) => index = next,
                None => return Err(refusal),
            }
        }
    }

    async fn ask_one(
        &self,
        model: &Arc<dyn Provider>,
        question: &ModelPortRequest,
        reserved: &mut ReservedTokens,
    ) -> Result<RawReply, QuestionError> {
        if !model.is_language_model() {
            let text = format!("{} is not a language model", model.info().model);
            return Err(QuestionError::Refused(ModelRefusal::Failed(text)));
        }
        let mut request = request(model, question, reserved).map_err(QuestionError::Refused)?;
        visible_request(&mut request);
        self.reserve_budget(model, &request, reserved).await.map_err(QuestionError::Refused)?;
        let since = Instant::now();
        let mut attempt = 1;
        loop {
            let (session, call) = (self.session.as_str(), reserved.number);
            let spent = reserved.spent.clone();
            let mut metered = MeteredCall::begin(model, &request, &spent);
            let (purpose, progress) = (Purpose::Plugin, metered.progress());
            let context = ReplyContext { session, purpose, call, attempt, media: &NoMedia, progress };
            // The pieces of the streamed answer are not used, because the plugin receives the complete answer at once.
            let (deltas, _) = mpsc::channel(1);
            let error = match model.reply(&request, context, &deltas).await {
                Ok(reply) if reply.reply.calls.is_empty() => {
                    metered.committed();
                    return Ok(reply);
                }
                Ok(reply) => {
                    metered.replied(reply.reply.usage);
                    let text = "the model called a tool, although no tool was offered".to_owned();
                    return Err(QuestionError::Refused(ModelRefusal::Failed(text)));
                }
                Err(error) => error,
            };
            drop(metered);
            match self.models.retry.wait(attempt, since.elapsed(), &error) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(QuestionError::Model(error)),
            }
            attempt += 1;
        }
    }
}

impl AgentModel {
    /// Reserves the most that the request can use of the budgets of the turn (O4).
    async fn reserve_budget(
        &self,
        model: &Arc<dyn Provider>,
        request: &ModelRequest,
        reserved: &mut ReservedTokens,
    ) -> Result<(), ModelRefusal> {
        // The request replaces the request to another model that has failed.
        reserved.reservation = None;
        let Some(account) = self.ledger.account() else { return Ok(()) };
        reserved.reservation = Some(match self.budget_gate.admit(&account, estimate(model, request)).await {
            Ok(reservation) => reservation,
            Err(BudgetRefusal::Exceeded(budget)) => {
                let (session, plugin) = (&self.session, &reserved.asker.plugin);
                tracing::warn!(%session, %plugin, %budget, "a plugin's question to the model was refused");
                return Err(ModelRefusal::Budget { left: budget.tokens_left() });
            }
            Err(BudgetRefusal::Store(error)) => {
                tracing::error!(session = %self.session, %error, "the budgets cannot be read");
                return Err(ModelRefusal::Unavailable("the host cannot read its budgets now".to_owned()));
            }
        });
        Ok(())
    }
}

/// The reason why a model did not answer a plugin's question.
enum QuestionError {
    Refused(ModelRefusal),
    Model(ModelError),
}

/// Creates the request to the model for a plugin's question. The request contains no tools and no media.
fn request(
    model: &Arc<dyn Provider>,
    question: &ModelPortRequest,
    reserved: &ReservedTokens,
) -> Result<ModelRequest, ModelRefusal> {
    let model = model.info().model.clone();
    let left_in_window = u64::from(model.window).saturating_sub(reserved.prompt);
    let max_tokens = u32::try_from(reserved.answer.min(left_in_window)).unwrap_or(u32::MAX);
    if max_tokens == 0 {
        let text = format!(
            "the question has about {} tokens, but the model's context window has {} tokens",
            reserved.prompt, model.window
        );
        return Err(ModelRefusal::Invalid(text));
    }
    Ok(ModelRequest {
        model,
        // Each question is a new conversation with a single request.
        lifecycle: Lifecycle::Init,
        system: question.system.iter().cloned().collect(),
        messages: question.messages.clone(),
        downscaled: Vec::new(),
        tools: Vec::new(),
        output_schema: question.output_schema.clone(),
        max_tokens,
    })
}

/// Estimates the number of tokens of a question's prompt.
fn prompt_tokens(question: &ModelPortRequest) -> u32 {
    let system = question.system.as_deref().map_or(0, tokens::of_text);
    let schema = question.output_schema.as_ref().map_or(0, |schema| tokens::of_text(&schema.to_string()));
    let messages = question.messages.iter().map(|message| tokens::of_parts(&message.parts));
    messages.fold(system.saturating_add(schema), u32::saturating_add)
}

/// Returns the texts of a question. The step record of the question contains only the digests of these texts.
fn texts_of(question: &ModelPortRequest) -> Vec<String> {
    let messages = question.messages.iter().map(Message::plain_text);
    question.system.iter().cloned().chain(messages).collect()
}

/// Creates the step record of a plugin's question. Like the records of other prompts, the record contains the digests
/// of texts instead of the texts (D1).
pub(crate) fn question_record(question: &ModelPortRequest) -> ModelQuestionRecord {
    let digest = |text: &str| digest_of(text.as_bytes()).to_string();
    let message = |message: &Message| (message.role.as_str().to_owned(), digest(&message.plain_text()));
    ModelQuestionRecord {
        system: question.system.as_deref().map(digest),
        messages: question.messages.iter().map(message).collect(),
        output_schema: question.output_schema.clone(),
        max_tokens: question.max_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(plugin: &str, budget: u64) -> ModelCaller {
        ModelCaller { plugin: plugin.to_owned(), call: "1".to_owned(), budget }
    }

    fn question() -> ModelPortRequest {
        ModelPortRequest { system: None, messages: Vec::new(), output_schema: None, max_tokens: None }
    }

    fn tokens_left(result: Result<ReservedTokens, ModelRefusal>) -> u64 {
        match result {
            Err(ModelRefusal::Budget { left }) => left,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the tokens were reserved"),
        }
    }

    /// P5: concurrent questions share the budget, unused tokens are returned, and an abandoned question uses all of its
    /// reserved tokens.
    #[test]
    fn p5_tokens_of_a_budget_are_never_reserved_twice() {
        let ledger = Arc::new(ModelLedger::default());
        let first = ledger.reserve(&asker("a", 100), &question(), (30, 50)).expect("it fits into the budget");
        let second =
            ledger.reserve(&asker("a", 100), &question(), (10, 50)).expect("a shorter answer fits into the budget");
        assert_eq!((first.number, second.number, second.answer), (0, 1, 10));
        assert_eq!(tokens_left(ledger.reserve(&asker("a", 100), &question(), (1, 1))), 0);
        assert!(ledger.reserve(&asker("b", 100), &question(), (1, 1)).is_ok(), "another plugin has its own budget");
        let usage = Usage::new(20, 5);
        assert_eq!(first.finish(25, usage), 100 - 25 - 20);
        drop(second);
        assert_eq!(tokens_left(ledger.reserve(&asker("a", 100), &question(), (55, 1))), 55);
        let inputs: Vec<_> = std::iter::from_fn(|| ledger.next()).map(|finished| finished.input).collect();
        let used = |plugin: &str, usage| Input::PluginUsedModel {
            plugin: plugin.to_owned(),
            used: ModelUse { asks: 1, usage },
        };
        assert_eq!(inputs, [used("b", Usage::default()), used("a", usage), used("a", Usage::default())]);
    }

    /// P5: if another process continues a turn, the tokens that plugins have already used in this turn still count
    /// toward the plugins' budgets for the turn.
    #[test]
    fn p5_the_question_count_continues_from_the_stored_state() {
        let mut run = Run::new("a/1", "a");
        run.asks = 7;
        let ledger = Arc::new(ModelLedger::default());
        ledger.begin(&run);
        assert_eq!(ledger.reserve(&asker("a", 100), &question(), (30, 50)).expect("it fits into the budget").number, 7);
    }
}
