//! Budgets: how many tokens, how much money and how much time turns, sessions, agents and users may use (O4). The
//! functions are pure. Their caller knows what has been used.

use crate::cost::Cost;
use crate::model::ModelRequest;
use crate::tokens;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The budgets of one turn, taken from its agent when the turn begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budgets {
    /// The budget of each turn, including the work that the turn delegates.
    #[serde(skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub turn: BudgetLimits,
    /// The budget of each session, including the work that the session delegates.
    #[serde(skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub session: BudgetLimits,
    /// The budget of the agent on one day, for all users.
    #[serde(skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub agent_day: BudgetLimits,
    /// The budget of the turn's user on one day, for all agents.
    #[serde(skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub user_day: BudgetLimits,
    /// Name of the time zone in which days begin, such as `Europe/Berlin`. `None` means UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The turns that have delegated this work, the nearest first (L16). The work counts towards their budgets, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
}

/// A turn that has delegated work, with its budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegator {
    /// Subject that identifies the session of the turn.
    pub session: String,
    /// Number of the turn in its session.
    pub number: u32,
    /// The budget of the turn.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub turn_limits: BudgetLimits,
    /// The budget of the session.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_unlimited")]
    pub session_limits: BudgetLimits,
}

/// The limits of one budget. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetLimits {
    /// Maximum number of tokens of prompts and replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in nanodollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanodollars: Option<u64>,
    /// Maximum time of work, in milliseconds. The time in which a turn waits for people and services does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
}

/// What has been used, or what a model call may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// Number of tokens of prompts and replies.
    pub tokens: u64,
    /// Cost in nanodollars, as far as prices are known.
    pub nanodollars: u64,
    /// Time of work, in milliseconds.
    pub milliseconds: u64,
}

/// The most that a model call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEstimate {
    /// Number of tokens of the prompt and of the longest reply.
    pub tokens: u64,
    /// The cost of these tokens. `None` if the price of the model is not known.
    pub cost: Option<Cost>,
}

/// Whose budget it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// The budget of one turn.
    Turn,
    /// The budget of one session.
    Session,
    /// The budget of an agent on one day.
    AgentDay,
    /// The budget of a user on one day.
    UserDay,
}

/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetResource {
    /// Tokens of prompts and replies.
    Tokens,
    /// Money, in nanodollars.
    Cost,
    /// Time of work, in milliseconds.
    Time,
}

/// A budget that does not allow the next model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceededBudget {
    /// Whose budget it is.
    pub scope: BudgetScope,
    /// The session, the agent or the user whose budget it is.
    pub owner: String,
    /// What is missing for the next model call.
    #[serde(flatten)]
    pub shortage: Shortage,
}

/// A limit that does not allow the next model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// What the budget limits.
    pub resource: BudgetResource,
    /// The limit: a number of tokens, nanodollars or milliseconds.
    pub limit: u64,
    /// What has been used.
    pub used: u64,
    /// What the next model call may use. `None` if this is not known because the model has no known price. For time, this
    /// is 0.
    pub needed: Option<u64>,
}

impl BudgetLimits {
    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the lower limit of each resource.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        let lower = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            tokens: lower(self.tokens, other.tokens),
            nanodollars: lower(self.nanodollars, other.nanodollars),
            milliseconds: lower(self.milliseconds, other.milliseconds),
        }
    }

    /// Decides whether a model call may be made after `used` was used. The error contains the first limit that does not
    /// allow it.
    ///
    /// Tokens and money are limited by the most that the call can use, so that the call cannot exceed the budget. Time is
    /// limited by what was used, because the time of a call is not known before. A call whose cost is not known does not
    /// fit into a budget of money.
    pub fn admit(&self, used: &Spending, call: &CallEstimate) -> Result<(), Shortage> {
        let fits = |limit: u64, used: u64, needed: u64| used.saturating_add(needed) <= limit;
        let shortage = |resource, limit, used, needed| Err(Shortage { resource, limit, used, needed });
        if let Some(limit) = self.milliseconds
            && used.milliseconds >= limit
        {
            return shortage(BudgetResource::Time, limit, used.milliseconds, Some(0));
        }
        if let Some(limit) = self.tokens
            && !fits(limit, used.tokens, call.tokens)
        {
            return shortage(BudgetResource::Tokens, limit, used.tokens, Some(call.tokens));
        }
        if let Some(limit) = self.nanodollars {
            let needed = call.cost.map(|cost| cost.nanodollars);
            if !needed.is_some_and(|needed| fits(limit, used.nanodollars, needed)) {
                return shortage(BudgetResource::Cost, limit, used.nanodollars, needed);
            }
        }
        Ok(())
    }
}

impl Budgets {
    /// Whether neither this turn nor a turn that has delegated it has a limit.
    pub fn are_unlimited(&self) -> bool {
        self.all().all(BudgetLimits::is_unlimited)
    }

    /// Returns the budgets of the agent that have limits.
    pub fn limits(&self) -> impl Iterator<Item = (BudgetScope, &BudgetLimits)> {
        let all = [
            (BudgetScope::Turn, &self.turn),
            (BudgetScope::Session, &self.session),
            (BudgetScope::AgentDay, &self.agent_day),
            (BudgetScope::UserDay, &self.user_day),
        ];
        all.into_iter().filter(|(_, limits)| !limits.is_unlimited())
    }

    /// Whether this turn or a turn that has delegated it has a limit of time.
    pub fn limit_time(&self) -> bool {
        self.all().any(|limits| limits.milliseconds.is_some())
    }

    /// Returns the limits of this turn and of the turns that have delegated it.
    fn all(&self) -> impl Iterator<Item = &BudgetLimits> {
        let own = [&self.turn, &self.session, &self.agent_day, &self.user_day];
        own.into_iter().chain(self.delegators.iter().flat_map(|turn| [&turn.turn_limits, &turn.session_limits]))
    }

    /// Returns the budgets with the lower limit of each pair, and with the time zone of `current`. The delegating turns stay
    /// the same.
    #[must_use]
    pub fn within(&self, current: &Self) -> Self {
        Self {
            turn: self.turn.within(&current.turn),
            session: self.session.within(&current.session),
            agent_day: self.agent_day.within(&current.agent_day),
            user_day: self.user_day.within(&current.user_day),
            time_zone: current.time_zone.clone(),
            delegators: self.delegators.clone(),
        }
    }

    /// Returns the turns that count the work which the turn `number` of `session` delegates.
    pub fn delegators_of_child(&self, session: &str, number: u32) -> Vec<Delegator> {
        let (turn_limits, session_limits) = (self.turn, self.session);
        let own = Delegator { session: session.to_owned(), number, turn_limits, session_limits };
        [own].into_iter().chain(self.delegators.iter().cloned()).collect()
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.nanodollars = self.nanodollars.saturating_add(other.nanodollars);
        self.milliseconds = self.milliseconds.saturating_add(other.milliseconds);
    }
}

/// Assumed number of bytes per token. A token usually has more bytes than this constant, so the estimate is usually too
/// high.
const BYTES_PER_TOKEN: u64 = 3;
/// Assumed number of tokens for the parts of a request that surround a message or a tool.
const TOKENS_PER_ITEM: u64 = 8;

/// Estimates the number of tokens of a request's prompt, so that the estimate is usually too high.
pub fn prompt_tokens(request: &ModelRequest) -> u64 {
    let text = |text: &str| (text.len() as u64).div_ceil(BYTES_PER_TOKEN);
    let system = request.system.iter().map(|section| text(section) + 1);
    // The estimate of `tokens` assumes four bytes per token.
    let messages =
        request.messages.iter().map(|message| u64::from(tokens::of_parts(&message.parts)) * 4 / BYTES_PER_TOKEN);
    let tools = request.tools.iter().map(|tool| {
        text(&tool.name) + text(&tool.description) + text(&tool.input_schema.to_string()) + TOKENS_PER_ITEM
    });
    let schema = request.output_schema.iter().map(|schema| text(&schema.to_string()));
    // `of_parts` counts each media item as an average image.
    let media = request.messages.iter().flat_map(|message| tokens::media_in(&message.parts));
    let media = media.map(tokens::at_most_of_media);
    let messages = messages.map(|tokens| tokens + TOKENS_PER_ITEM);
    system.chain(messages).chain(tools).chain(schema).chain(media).fold(TOKENS_PER_ITEM, u64::saturating_add)
}

impl fmt::Display for BudgetScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BudgetScope::Turn => "turn",
            BudgetScope::Session => "session",
            BudgetScope::AgentDay => "agent_day",
            BudgetScope::UserDay => "user_day",
        })
    }
}

impl ExceededBudget {
    /// Returns how many tokens are left of a budget of tokens. 0 if the budget limits something else.
    pub fn tokens_left(&self) -> u64 {
        match self.shortage {
            Shortage { resource: BudgetResource::Tokens, limit, used, .. } => limit.saturating_sub(used),
            _ => 0,
        }
    }
}

impl BudgetResource {
    /// The key of `agent.toml` in the table of the budget.
    pub fn key(self) -> &'static str {
        match self {
            BudgetResource::Tokens => "tokens",
            BudgetResource::Cost => "cost",
            BudgetResource::Time => "seconds",
        }
    }

    /// Formats an amount with its unit.
    pub fn amount(self, amount: u64) -> String {
        match self {
            BudgetResource::Tokens => format!("{amount} tokens"),
            BudgetResource::Cost => Cost { nanodollars: amount, partial: false }.to_string(),
            BudgetResource::Time => format!("{:.1} s", Duration::from_millis(amount).as_secs_f64()),
        }
    }
}

impl fmt::Display for ExceededBudget {
    /// Says which budget is exhausted, and what to do.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, owner, shortage: Shortage { resource, limit, used, needed } } = self;
        let whose = match scope {
            BudgetScope::Turn => format!("the turn of `{owner}`"),
            BudgetScope::Session => format!("the session `{owner}`"),
            BudgetScope::AgentDay => format!("the agent `{owner}` today"),
            BudgetScope::UserDay => format!("the user `{owner}` today"),
        };
        let (limit, used, key) = (resource.amount(*limit), resource.amount(*used), resource.key());
        write!(formatter, "the budget of {whose} is {limit}, and {used} are used")?;
        match needed {
            None => write!(
                formatter,
                "; the price of the model is not known, so the cost of the next call cannot be limited: set `prompt_price` and \
                 `completion_price` of the model, or remove `{key}` from `[budget.{scope}]`"
            ),
            Some(0) => write!(formatter, "; raise `{key}` in `[budget.{scope}]`"),
            Some(needed) => write!(
                formatter,
                "; the next model call may use up to {}; raise `{key}` in `[budget.{scope}]`, or lower `reply_tokens`",
                resource.amount(*needed)
            ),
        }?;
        match scope {
            BudgetScope::AgentDay | BudgetScope::UserDay => formatter.write_str(", or wait until tomorrow"),
            BudgetScope::Session => formatter.write_str(", or begin a new session"),
            BudgetScope::Turn => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{CallId, Content, Digest, Media, Message, Part, Role, ToolResult};
    use crate::model::{Lifecycle, Model};

    fn limits(tokens: u64, nanodollars: u64, milliseconds: u64) -> BudgetLimits {
        let some = |limit| (limit > 0).then_some(limit);
        BudgetLimits { tokens: some(tokens), nanodollars: some(nanodollars), milliseconds: some(milliseconds) }
    }

    fn call(tokens: u64, nanodollars: Option<u64>) -> CallEstimate {
        CallEstimate { tokens, cost: nanodollars.map(|nanodollars| Cost { nanodollars, partial: false }) }
    }

    /// O4: a call is made only if the most that it can use fits into the budget.
    #[test]
    fn o4_a_call_must_fit_completely() {
        let used = Spending { tokens: 600, nanodollars: 50, milliseconds: 2_000 };
        let resource = |limits: BudgetLimits, call| limits.admit(&used, &call).err().map(|shortage| shortage.resource);
        let cases = [
            (limits(0, 0, 0), call(u64::MAX, None), None),
            (limits(1_000, 0, 0), call(400, None), None),
            (limits(1_000, 0, 0), call(401, None), Some(BudgetResource::Tokens)),
            (limits(500, 0, 0), call(1, None), Some(BudgetResource::Tokens)),
            (limits(1_000, 0, 0), call(u64::MAX, None), Some(BudgetResource::Tokens)),
            (limits(0, 60, 0), call(1, Some(10)), None),
            (limits(0, 60, 0), call(1, Some(11)), Some(BudgetResource::Cost)),
            (limits(0, 60, 0), call(1, None), Some(BudgetResource::Cost)),
            (limits(0, 0, 2_001), call(1, None), None),
            (limits(0, 0, 2_000), call(1, None), Some(BudgetResource::Time)),
        ];
        for (limits, call, expected) in cases {
            assert_eq!(resource(limits, call), expected, "{limits:?} {call:?}");
        }
    }

    /// O4: what a request can use grows with the size of its documents and recordings, whose pages and seconds the host does not
    /// count.
    #[test]
    fn o4_large_media_items_need_large_budgets() {
        let prompt = |mime_type: &str, size: u64| {
            let media = Media {
                digest: Digest::from_sha256([0; 32]),
                mime_type: mime_type.to_owned(),
                size,
                dimensions: None,
                name: None,
            };
            let result = ToolResult {
                call_id: CallId("1.1.1".to_owned()),
                name: "look".to_owned(),
                content: vec![Content::Media(media.clone())],
                is_error: false,
            };
            let request = |parts| ModelRequest {
                model: Model { provider: "p".to_owned(), name: "m".to_owned(), window: 100_000 },
                lifecycle: Lifecycle::Init,
                system: Vec::new(),
                messages: vec![Message { parts, ..Message::text(Role::User, "Look.") }],
                downscaled: Vec::new(),
                tools: Vec::new(),
                output_schema: None,
                max_tokens: 100,
            };
            let in_input = prompt_tokens(&request(vec![Part::Media(media)]));
            let in_result = prompt_tokens(&request(vec![Part::ToolResult(result)]));
            assert!(in_result >= in_input);
            in_input
        };
        for kind in ["application/pdf", "audio/mpeg", "video/mp4", "text/csv"] {
            let (small, large) = (prompt(kind, 1 << 20), prompt(kind, 4 << 20));
            assert!(large > 3 * small || large > 2_000_000, "{kind}: {small} and {large}");
            assert!(small > 30_000, "{kind}: {small}");
        }
        assert_eq!(prompt("image/png", 1 << 20), prompt("image/png", 8 << 20), "providers scale images down");
    }

    /// O4, P14: a stored budget can narrow the configured budget, but never widen it.
    #[test]
    fn o4_the_lower_limit_applies() {
        let (one, other) = (limits(10, 0, 7), limits(20, 5, 0));
        assert_eq!(one.within(&other), limits(10, 5, 7));
        assert_eq!(other.within(&one), limits(10, 5, 7));
        let budgets = Budgets { user_day: one, ..Budgets::default() };
        assert_eq!(Budgets::default().within(&budgets), budgets);
        assert!(!budgets.are_unlimited() && Budgets::default().are_unlimited());
    }

    /// O4, L16: delegated work counts towards the budgets of all turns above it.
    #[test]
    fn o4_delegated_work_counts_for_each_delegating_turn() {
        let lead = Budgets { session: limits(9, 0, 0), ..Budgets::default() };
        let child = Budgets { delegators: lead.delegators_of_child("lead/1", 3), ..Budgets::default() };
        assert!(!child.are_unlimited());
        let grandchild = child.delegators_of_child("child/1", 1);
        let places: Vec<_> = grandchild.iter().map(|turn| (turn.session.as_str(), turn.number)).collect();
        assert_eq!(places, [("child/1", 1), ("lead/1", 3)]);
        assert_eq!(grandchild[1].session_limits, limits(9, 0, 0));
    }

    #[test]
    fn o4_errors_say_what_to_do() {
        let exceeded = |scope, resource, needed| {
            let shortage = Shortage { resource, limit: 2_000_000_000, used: 1_990_000_000, needed };
            ExceededBudget { scope, owner: "clerk".to_owned(), shortage }.to_string()
        };
        assert_eq!(
            exceeded(BudgetScope::UserDay, BudgetResource::Cost, Some(20_000_000)),
            "the budget of the user `clerk` today is $2.00, and $1.99 are used; the next model call may use up to $0.0200; \
             raise `cost` in `[budget.user_day]`, or lower `reply_tokens`, or wait until tomorrow"
        );
        assert!(exceeded(BudgetScope::Turn, BudgetResource::Cost, None).contains("set `prompt_price`"));
        assert!(
            exceeded(BudgetScope::Turn, BudgetResource::Time, Some(0)).ends_with("raise `seconds` in `[budget.turn]`")
        );
    }
}
