//! Offers agents to MCP clients (I4): either the tools of an agent, or the agent as one tool. Each call is a turn of a
//! session, so that it passes the same checks as the call of a model, and leaves the same records.

mod agent_offer;
mod calls;
mod endpoints;
mod output;
mod tool_offer;
mod turn_call;

pub use agent_offer::AgentOffer;
pub use calls::{ClientCalls, McpClient};
pub(crate) use endpoints::McpEndpoints;
pub use endpoints::{Expose, McpAgent};
pub use tool_offer::ToolOffer;
