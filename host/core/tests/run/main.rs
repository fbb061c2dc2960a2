//! Tests of the loop through its public interface: each spec line by example, then all of them with random inputs.
//! Every input goes through [`session::Session`], which checks the loop's invariants each time.

mod approvals;
mod beginnings;
mod bounds;
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
mod stored_states;
mod stored_ways;
mod summaries;
mod unreadable_calls;
mod views;
mod waiting;
