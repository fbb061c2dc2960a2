//! The loop as a value, over its public interface: every spec line by example, then all of them by random driving.
//! Each input goes through [`session::Session`], which checks the loop's invariants after every single one.

mod beginnings;
mod bounds;
mod calls;
mod dialect;
mod endings;
mod events;
mod ledger;
mod models;
mod output;
mod planning;
mod properties;
mod recovery;
mod seen_counts;
mod session;
mod views;
