//! Tests of the agent loop through its public interface: examples for each line of the specification, and random
//! inputs. Every input is applied through [`session::Session`], which checks the invariants of the loop each time.

mod approvals;
mod beginnings;
mod bounds;
mod budgets;
mod calls;
mod delegation;
mod endings;
mod events;
mod eviction;
mod forks;
mod ledger;
mod loop_breaks;
mod models;
mod output;
mod planning;
mod properties;
mod recovery;
mod refusals;
mod repetition;
mod seen_counts;
mod service_approvals;
mod session;
mod steering;
mod stored_states;
mod stored_ways;
mod summaries;
mod unreadable_calls;
mod views;
mod waiting;
