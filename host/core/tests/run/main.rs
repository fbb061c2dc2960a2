//! The loop as a value, over its public interface: every spec line by example, then all of them by random driving.
//! Each input goes through [`session::Session`], which checks the loop's invariants after every single one.

mod approvals;
mod beginnings;
mod bounds;
mod calls;
mod delegation;
mod dialect;
mod endings;
mod events;
mod eviction;
mod forks;
mod held;
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
mod session;
mod stored_states;
mod stored_ways;
mod summaries;
mod views;
mod waiting;
