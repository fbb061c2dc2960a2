//! Handles what a turn can wait for: approvals and answers from users, answers from services, and results from
//! other agents and from clients.

mod approval_answers;
mod children;
mod client_results;
mod delegate_result;
mod first_use;
mod forwarded;
mod questions;
mod requests;
mod responses;

pub(crate) use children::{ChildTurn, open_child};
pub(crate) use client_results::settled_results;
pub(crate) use delegate_result::delegate_result;
pub(crate) use first_use::{FirstUseQuestions, ask_about_builder};
pub(crate) use forwarded::forwarded_call;
pub use questions::question;
pub(crate) use requests::{check_delegation, check_turn, check_user, queued_prompt, turn_runs, with_attachments};
pub(crate) use responses::respond_during_action;
pub use responses::{RespondError, ResponseOutcome};
