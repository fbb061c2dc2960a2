//! The agent's model for its plugins: within each plugin's budget of the turn, and counted in the turn (P5, L5).

use crate::models::Models;
use agent_core::message::Message;
use agent_core::model::{ModelRequest, Reply, Usage};
use agent_core::plugin::Lifecycle;
use agent_core::run::{Input, Run};
use agent_core::tokens;
use agent_core::tool::ModelUse;
use agent_core::visible::visible_request;
use agent_models::{ModelError, NoMedia, Provider, Purpose, RawReply, ReplyContext};
use agent_plugins::{ModelAnswer, ModelAsker, ModelPort, ModelQuestion, ModelRefusal};
use agent_store::digest_of;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc;

/// What the step records call a question.
pub const RECORD_KIND: &str = "host_model";

/// What plugins have asked in the open turn: what their budgets have left, and what is not committed yet.
#[derive(Default)]
pub(crate) struct ModelLedger(Mutex<Ledger>);

#[derive(Default)]
struct Ledger {
    /// Questions of the session so far.
    asks: u64,
    /// Tokens by plugin, used or held for a question that is being answered.
    tokens: BTreeMap<String, u64>,
    unsettled: VecDeque<Settlement>,
}

/// A question that came to its end, to be committed before what follows from it.
pub(crate) struct Settlement {
    pub(crate) input: Input,
    /// For the step record (D1).
    pub(crate) body: Value,
    pub(crate) texts: Vec<String>,
}

impl ModelLedger {
    /// What is stored of the open turn is where counting goes on.
    pub(crate) fn begin(&self, run: &Run) {
        let asked = run.turn.iter().flat_map(|turn| &turn.asked);
        let tokens = asked.map(|(plugin, used)| (plugin.clone(), used.usage.total())).collect();
        *self.lock() = Ledger { asks: run.asks, tokens, unsettled: VecDeque::new() };
    }

    /// The next question that is to be committed.
    pub(crate) fn next(&self) -> Option<Settlement> {
        self.lock().unsettled.pop_front()
    }

    /// Holds tokens of the budget for a question of so many and its answer of at most `wanted`.
    fn hold(self: &Arc<Self>, asker: &ModelAsker, prompt: u64, wanted: u64) -> Result<Held, ModelRefusal> {
        let mut ledger = self.lock();
        let used = ledger.tokens.entry(asker.plugin.clone()).or_default();
        let left = asker.budget.saturating_sub(*used);
        let answer = left.saturating_sub(prompt).min(wanted);
        if answer == 0 {
            return Err(ModelRefusal::Budget { left });
        }
        let tokens = prompt + answer;
        *used += tokens;
        let number = ledger.asks;
        ledger.asks += 1;
        let (ledger, asker) = (Arc::clone(self), asker.clone());
        Ok(Held { ledger, asker, number, prompt, answer, body: json!({}), texts: Vec::new(), end: None })
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens that are held for one question. What is given up before its end, its call being stopped, has used all of them:
/// nobody knows how far the model came.
struct Held {
    ledger: Arc<ModelLedger>,
    asker: ModelAsker,
    /// Of the session's questions, from 0.
    number: u64,
    prompt: u64,
    answer: u64,
    body: Value,
    texts: Vec<String>,
    /// Tokens that the budget is charged with, and what the provider counted.
    end: Option<(u64, Usage)>,
}

impl Held {
    /// What is left of the budget when so many tokens are charged.
    fn settle(mut self, tokens: u64, usage: Usage) -> u64 {
        self.end = Some((tokens, usage));
        let ledger = Arc::clone(&self.ledger);
        let (plugin, budget) = (self.asker.plugin.clone(), self.asker.budget);
        drop(self);
        let used = ledger.lock().tokens.get(&plugin).copied().unwrap_or_default();
        budget.saturating_sub(used)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let held = self.prompt + self.answer;
        let (charged, usage) = self.end.unwrap_or((held, Usage::default()));
        let plugin = self.asker.plugin.clone();
        let mut ledger = self.ledger.lock();
        let used = ledger.tokens.entry(plugin.clone()).or_default();
        *used = used.saturating_sub(held).saturating_add(charged);
        let input = Input::Asked { plugin, used: ModelUse { asks: 1, usage } };
        let (body, texts) = (self.body.take(), std::mem::take(&mut self.texts));
        ledger.unsettled.push_back(Settlement { input, body, texts });
    }
}

/// The models of an agent, as its plugins reach them.
pub(crate) struct AgentModel {
    pub(crate) models: Models,
    pub(crate) ledger: Arc<ModelLedger>,
    /// Most tokens of an answer.
    pub(crate) reply_tokens: u32,
    pub(crate) session: String,
}

#[async_trait::async_trait]
impl ModelPort for AgentModel {
    async fn ask(&self, asker: &ModelAsker, question: ModelQuestion) -> Result<ModelAnswer, ModelRefusal> {
        let prompt = u64::from(estimated(&question));
        let wanted = question.max_tokens.unwrap_or(u32::MAX).min(self.reply_tokens);
        let mut held = self.ledger.hold(asker, prompt, wanted.into())?;
        held.texts = texts_of(&question);
        held.body = json!({"plugin": asker.plugin, "call": asker.call, "question": record_of(&question)});
        let asked = self.ask_in_order(&question, &held).await;
        match asked {
            Ok(RawReply { reply, raw }) => {
                held.body["answer"] = raw;
                let Reply { text, stop, usage, model, .. } = reply;
                // Where the provider does not count, the budget does.
                let counted =
                    if usage.total() == 0 { prompt + u64::from(tokens::of_text(&text)) } else { usage.total() };
                held.body["reply"] = json!({"text": text, "stop": stop, "usage": usage, "model": model});
                let left = held.settle(counted, usage);
                Ok(ModelAnswer { text, stop, usage, left, model })
            }
            Err(refusal) => {
                held.body["error"] = json!(refusal.to_string());
                held.settle(0, Usage::default());
                Err(refusal)
            }
        }
    }
}

impl AgentModel {
    /// The first model that answers, each with its retries (M3).
    async fn ask_in_order(&self, question: &ModelQuestion, held: &Held) -> Result<RawReply, ModelRefusal> {
        let mut place = self.models.instead_of(0).unwrap_or(0);
        loop {
            let model = self.models.at(place);
            let refusal = match self.ask_one(model, question, held).await {
                Ok(reply) => return Ok(reply),
                Err(Problem::Refused(refusal)) => refusal,
                Err(Problem::Model(error)) => {
                    let (session, plugin) = (&self.session, &held.asker.plugin);
                    tracing::warn!(%session, %plugin, %error, "a plugin's question was not answered");
                    // Where the models are and what they say is not the plugin's.
                    if error.retryable() {
                        self.models.rest(place);
                        ModelRefusal::Unavailable("the model is busy or out of reach".to_owned())
                    } else {
                        ModelRefusal::Failed("the model does not answer this; the host's log says why".to_owned())
                    }
                }
            };
            match self.models.after(place) {
                Some(next) => place = next,
                None => return Err(refusal),
            }
        }
    }

    async fn ask_one(
        &self,
        model: &Arc<dyn Provider>,
        question: &ModelQuestion,
        held: &Held,
    ) -> Result<RawReply, Problem> {
        if !model.is_language_model() {
            let text = format!("{} is no language model", model.facts().model);
            return Err(Problem::Refused(ModelRefusal::Failed(text)));
        }
        let mut request = request(model, question, held).map_err(Problem::Refused)?;
        visible_request(&mut request);
        let since = Instant::now();
        let mut attempt = 1;
        loop {
            let (session, call) = (self.session.as_str(), held.number);
            let context = ReplyContext { session, purpose: Purpose::Plugin, call, attempt, media: &NoMedia };
            // Nobody listens: the answer is the plugin's.
            let (deltas, _) = mpsc::channel(1);
            let error = match model.reply(&request, context, &deltas).await {
                Ok(reply) if reply.reply.calls.is_empty() => return Ok(reply),
                Ok(_) => {
                    let text = "the model calls tools, of which it has none".to_owned();
                    return Err(Problem::Refused(ModelRefusal::Failed(text)));
                }
                Err(error) => error,
            };
            match self.models.retry.wait(attempt, since.elapsed(), &error) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(Problem::Model(error)),
            }
            attempt += 1;
        }
    }
}

/// Why one model did not answer.
enum Problem {
    Refused(ModelRefusal),
    Model(ModelError),
}

/// The question as the model gets it: no tools, no media.
fn request(model: &Arc<dyn Provider>, question: &ModelQuestion, held: &Held) -> Result<ModelRequest, ModelRefusal> {
    let model = model.facts().model.clone();
    let room = u64::from(model.window).saturating_sub(held.prompt);
    let max_tokens = u32::try_from(held.answer.min(room)).unwrap_or(u32::MAX);
    if max_tokens == 0 {
        let text = format!("it has about {} tokens, and the model's window {}", held.prompt, model.window);
        return Err(ModelRefusal::Invalid(text));
    }
    Ok(ModelRequest {
        model,
        // A question is a prompt of its own, the first and the last.
        lifecycle: Lifecycle::Init,
        system: question.system.iter().cloned().collect(),
        messages: question.messages.clone(),
        downscaled: Vec::new(),
        tools: Vec::new(),
        output_schema: question.output_schema.clone(),
        max_tokens,
    })
}

fn estimated(question: &ModelQuestion) -> u32 {
    let system = question.system.as_deref().map_or(0, tokens::of_text);
    let schema = question.output_schema.as_ref().map_or(0, |schema| tokens::of_text(&schema.to_string()));
    let messages = question.messages.iter().map(|message| tokens::of_parts(&message.parts));
    messages.fold(system.saturating_add(schema), u32::saturating_add)
}

fn texts_of(question: &ModelQuestion) -> Vec<String> {
    let messages = question.messages.iter().map(Message::plain_text);
    question.system.iter().cloned().chain(messages).collect()
}

/// By reference, as all prompts are recorded (D1).
pub(crate) fn record_of(question: &ModelQuestion) -> Value {
    let digest = |text: &str| digest_of(text.as_bytes()).to_string();
    let messages = question.messages.iter();
    let messages: Vec<_> =
        messages.map(|message| json!([message.role.as_str(), digest(&message.plain_text())])).collect();
    json!({
        "system": question.system.as_deref().map(digest),
        "messages": messages,
        "output_schema": question.output_schema,
        "max_tokens": question.max_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(plugin: &str, budget: u64) -> ModelAsker {
        ModelAsker { plugin: plugin.to_owned(), call: "1".to_owned(), budget }
    }

    fn left(result: Result<Held, ModelRefusal>) -> u64 {
        match result {
            Err(ModelRefusal::Budget { left }) => left,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is held"),
        }
    }

    /// P5: questions at once share the budget, what is not used goes back, and what is given up is spent.
    #[test]
    fn p5_a_budget_is_never_given_out_twice() {
        let ledger = Arc::new(ModelLedger::default());
        let first = ledger.hold(&asker("a", 100), 30, 50).expect("it fits");
        let second = ledger.hold(&asker("a", 100), 10, 50).expect("it fits, with a shorter answer");
        assert_eq!((first.number, second.number, second.answer), (0, 1, 10));
        assert_eq!(left(ledger.hold(&asker("a", 100), 1, 1)), 0);
        assert!(ledger.hold(&asker("b", 100), 1, 1).is_ok(), "another plugin has its own");
        let usage = Usage { prompt_tokens: 20, completion_tokens: 5 };
        assert_eq!(first.settle(25, usage), 100 - 25 - 20);
        drop(second);
        assert_eq!(left(ledger.hold(&asker("a", 100), 55, 1)), 55);
        let inputs: Vec<_> = std::iter::from_fn(|| ledger.next()).map(|settlement| settlement.input).collect();
        let used = |plugin: &str, usage| Input::Asked { plugin: plugin.to_owned(), used: ModelUse { asks: 1, usage } };
        assert_eq!(inputs, [used("b", Usage::default()), used("a", usage), used("a", Usage::default())]);
    }

    /// P5: the budget is the turn's, also where another process goes on with it.
    #[test]
    fn p5_counting_goes_on_from_what_is_stored() {
        let mut run = Run::new("a/1", "a");
        run.asks = 7;
        let ledger = Arc::new(ModelLedger::default());
        ledger.begin(&run);
        assert_eq!(ledger.hold(&asker("a", 100), 30, 50).expect("it fits").number, 7);
    }
}
