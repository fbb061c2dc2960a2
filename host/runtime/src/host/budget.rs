//! Decides before each model call whether the budgets of its turn, session, agent and user allow it (O4).
//!
//! Before a call, the most that the call can use is reserved. The reservation ends when the usage of the call is committed.
//! A call may begin if the committed usage, the reservations that were made before in this process, and the most that the
//! call can use fit into every budget. Therefore, the calls of one process together never exceed a budget of tokens or
//! money by more than the error of the estimates, and several processes exceed it by at most the calls that the other
//! processes have in flight.

use agent_core::budget::{
    BudgetLimits, BudgetScope, Budgets, CallEstimate, ExceededBudget, Shortage, Spending, prompt_tokens,
};
use agent_core::cost::Cost;
use agent_core::model::{ModelRequest, Usage};
use agent_core::run::Run;
use agent_models::Provider;
use agent_store::{ChargedTo, Store, StoreError};
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Number of times that a refusal is checked again if the usage of a call that has ended is being committed, and the time
/// between two checks.
const RECHECKS: u32 = 5;
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The model calls of a process that are running. All clones share the same calls.
#[derive(Clone, Default)]
pub struct CallsInFlight(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a reservation ends or becomes smaller.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Number of the next reservation.
    next: u64,
    /// The reservations by their number.
    reservations: BTreeMap<u64, Reserved>,
}

struct Reserved {
    owners: Vec<Owner>,
    amounts: Spending,
    /// Whether the call has ended, so that `amounts` is what it has used. Its usage is not committed yet.
    has_ended: bool,
}

/// Who has a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Turn(String, u32),
    Session(String),
    Agent(String),
    User(Option<String>),
}

/// A budget, and what was used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// Whose budget it is.
    pub scope: BudgetScope,
    /// The limits of the budget.
    pub limits: BudgetLimits,
    /// What was used.
    pub used: Spending,
}

/// What a model call has reserved of its budgets. The reservation ends when the value is dropped.
pub(crate) struct Reservation {
    number: u64,
    calls: CallsInFlight,
}

/// Whose budgets a turn uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    session: String,
    turn: u32,
    agent: String,
    user: Option<String>,
    budgets: Budgets,
}

/// Why a model call may not begin.
#[derive(Debug)]
pub(crate) enum BudgetRefusal {
    /// A budget does not allow it.
    Exceeded(ExceededBudget),
    /// The store cannot tell what has been used.
    Store(StoreError),
}

/// A budget with limits.
struct Limited {
    scope: BudgetScope,
    owner: Owner,
    limits: BudgetLimits,
}

/// Decides whether model calls may begin.
#[derive(Clone)]
pub(crate) struct BudgetGate {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) calls: CallsInFlight,
}

/// Returns the most that a request to a model can use. A provider that is not a language model costs nothing.
pub(crate) fn estimate(model: &Arc<dyn Provider>, request: &ModelRequest) -> CallEstimate {
    if !model.is_language_model() {
        return CallEstimate { tokens: 0, cost: Some(Cost::default()) };
    }
    let (prompt, reply) = (prompt_tokens(request), u64::from(request.max_tokens));
    let cost = model.info().price.map(|price| price.highest_cost(prompt, reply));
    CallEstimate { tokens: prompt.saturating_add(reply), cost }
}

impl Account {
    /// Returns the account of the open turn. `None` if no turn is open.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let turn = run.turn.as_ref().filter(|_| run.is_open())?;
        Some(Self {
            session: run.session.clone(),
            turn: turn.number,
            agent: run.agent.clone(),
            user: turn.config.user.clone(),
            budgets: turn.config.budgets.clone(),
        })
    }

    /// Returns the account of the last turn of a session with these budgets.
    pub(crate) fn of_session(run: &Run, user: Option<String>, budgets: Budgets) -> Self {
        Self { session: run.session.clone(), turn: run.turns, agent: run.agent.clone(), user, budgets }
    }

    /// Returns everybody whose budget the calls of the turn use.
    fn owners(&self) -> Vec<Owner> {
        let own = (&self.session, self.turn);
        let turns = [own].into_iter().chain(self.budgets.delegators.iter().map(|turn| (&turn.session, turn.number)));
        let sessions =
            turns.flat_map(|(session, turn)| [Owner::Turn(session.clone(), turn), Owner::Session(session.clone())]);
        sessions.chain([Owner::Agent(self.agent.clone()), Owner::User(self.user.clone())]).collect()
    }

    /// Returns the budgets that have limits, the turn's own budget first.
    fn limited(&self) -> Vec<Limited> {
        let Budgets { turn, session, agent_day, user_day, delegators, .. } = &self.budgets;
        let of_turn = |session: &str, number, turn: &BudgetLimits, whole: &BudgetLimits| {
            let owner = Owner::Turn(session.to_owned(), number);
            let turn = Limited { scope: BudgetScope::Turn, owner, limits: *turn };
            let owner = Owner::Session(session.to_owned());
            [turn, Limited { scope: BudgetScope::Session, owner, limits: *whole }]
        };
        let own = of_turn(&self.session, self.turn, turn, session);
        let above = delegators.iter().flat_map(|delegator| {
            of_turn(&delegator.session, delegator.number, &delegator.turn_limits, &delegator.session_limits)
        });
        let (agent, user) = (Owner::Agent(self.agent.clone()), Owner::User(self.user.clone()));
        let days = [
            Limited { scope: BudgetScope::AgentDay, owner: agent, limits: *agent_day },
            Limited { scope: BudgetScope::UserDay, owner: user, limits: *user_day },
        ];
        own.into_iter().chain(above).chain(days).filter(|limited| !limited.limits.is_unlimited()).collect()
    }

    /// Returns the beginning of the day in the time zone of the budgets, in microseconds since 1970. A time zone that is not
    /// known counts as UTC.
    fn day_begins(&self, now: Timestamp) -> i64 {
        let zone = self.budgets.time_zone.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
        let begins = now.to_zoned(zone).start_of_day().as_ref().map(Zoned::timestamp).unwrap_or(now);
        begins.as_microsecond()
    }
}

impl BudgetGate {
    /// Waits until all budgets allow a model call, and reserves the most that it can use. If calls that are running now
    /// have reserved the rest of a budget, waits until it is known what they have used.
    pub(crate) async fn admit(&self, account: &Account, call: CallEstimate) -> Result<Reservation, BudgetRefusal> {
        let reservation = self.calls.reserve(account.owners(), &call);
        let limited = account.limited();
        if limited.is_empty() {
            return Ok(reservation);
        }
        let mut rechecks = 0;
        loop {
            let mut changed = pin!(self.calls.0.changed.notified());
            changed.as_mut().enable();
            let owners: Vec<_> = limited.iter().map(|limited| &limited.owner).collect();
            let (running, ended) = self.calls.of_others(&reservation, &owners);
            let charged = self.charged(account, &limited).await.map_err(BudgetRefusal::Store)?;
            let used = sums(&charged, &ended);
            if first_exceeded(&limited, &sums(&used, &running), &call).is_none() {
                return Ok(reservation);
            }
            match first_exceeded(&limited, &used, &call) {
                None => changed.await,
                // The usage of a call that has ended may have been committed since its reservation was read.
                Some(_) if used != charged && rechecks < RECHECKS => {
                    rechecks += 1;
                    tokio::time::sleep(RECHECK_INTERVAL).await;
                }
                Some(exceeded) => return Err(BudgetRefusal::Exceeded(exceeded)),
            }
        }
    }

    /// Returns what was charged to the owners of these budgets.
    async fn charged(&self, account: &Account, limited: &[Limited]) -> Result<Vec<Spending>, StoreError> {
        let now = Timestamp::from_microsecond(self.store.now()).unwrap_or_else(|_| Timestamp::now());
        let since = account.day_begins(now);
        let to = limited.iter().map(|limited| match limited.owner.clone() {
            Owner::Turn(session, turn) => ChargedTo::Turn { session, turn },
            Owner::Session(session) => ChargedTo::Session { session },
            Owner::Agent(agent) => ChargedTo::Agent { agent, since },
            Owner::User(user) => ChargedTo::User { user, since },
        });
        self.store.charged(to.collect()).await
    }

    /// Returns the limits of each budget of the account, and what was used of it.
    pub(crate) async fn used(&self, account: &Account) -> Result<Vec<BudgetUse>, StoreError> {
        let limited = account.limited();
        let charged = self.charged(account, &limited).await?;
        let budget = |(Limited { scope, limits, .. }, used)| BudgetUse { scope, limits, used };
        Ok(limited.into_iter().zip(charged).map(budget).collect())
    }
}

/// Adds up the elements of two lists, one by one.
fn sums(left: &[Spending], right: &[Spending]) -> Vec<Spending> {
    let sum = |(left, right): (&Spending, &Spending)| {
        let mut sum = *left;
        sum += *right;
        sum
    };
    left.iter().zip(right).map(sum).collect()
}

/// Returns the first budget that does not allow the call.
fn first_exceeded(limited: &[Limited], used: &[Spending], call: &CallEstimate) -> Option<ExceededBudget> {
    limited.iter().zip(used).find_map(|(Limited { scope, owner, limits }, used)| {
        let shortage: Shortage = limits.admit(used, call).err()?;
        let owner = match owner {
            Owner::Turn(name, _) | Owner::Session(name) | Owner::Agent(name) => name.clone(),
            Owner::User(user) => user.clone().unwrap_or_else(|| "nobody".to_owned()),
        };
        Some(ExceededBudget { scope: *scope, owner, shortage })
    })
}

impl CallsInFlight {
    fn reserve(&self, owners: Vec<Owner>, call: &CallEstimate) -> Reservation {
        let nanodollars = call.cost.map_or(0, |cost| cost.nanodollars);
        let amounts = Spending { tokens: call.tokens, nanodollars, milliseconds: 0 };
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.reservations.insert(number, Reserved { owners, amounts, has_ended: false });
        Reservation { number, calls: self.clone() }
    }

    /// Returns for each owner what calls that began earlier and still run have reserved, and what calls have used that have
    /// ended and are not committed yet.
    fn of_others(&self, own: &Reservation, owners: &[&Owner]) -> (Vec<Spending>, Vec<Spending>) {
        let state = self.lock();
        let sum = |owner: &Owner, has_ended: bool| {
            let others = state.reservations.iter().filter(|(number, other)| {
                other.has_ended == has_ended && (has_ended || **number < own.number) && other.owners.contains(owner)
            });
            others.fold(Spending::default(), |mut sum, (_, other)| {
                sum += other.amounts;
                sum
            })
        };
        let of_all = |has_ended| owners.iter().map(|owner| sum(owner, has_ended)).collect();
        (of_all(false), of_all(true))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Reduces the reservation to what the call has used, because the call has ended.
    pub(crate) fn end(&self, usage: Usage) {
        if let Some(reserved) = self.calls.lock().reservations.get_mut(&self.number) {
            let nanodollars = usage.cost.map_or(0, |cost| cost.nanodollars);
            reserved.amounts = Spending { tokens: usage.details().total(), nanodollars, milliseconds: 0 };
            reserved.has_ended = true;
        }
        self.calls.0.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.calls.lock().reservations.remove(&self.number);
        self.calls.0.changed.notify_waiters();
    }
}
