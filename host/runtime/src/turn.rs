//! Turns: the driver asks the run for the next action, performs it, and commits the outcome. Each action is a function
//! that receives an [`ActionContext`](action::ActionContext) and returns the input that is then applied to the session.

mod action;
mod calls;
mod children;
mod context;
mod driver;
mod media_policy;
mod model_step;
mod outgoing;
mod plan_step;
mod run;
mod service_request;
pub mod summary;
mod text_dialect;
mod tool_selection;
mod validation;

pub use run::TURN_SPANS;
