//! If a model writes a call in its text, this module uses the address in the call to find the tool (L20).

use super::registry::Registry;
use agent_core::run::{Approval, Disposition, ResolvedCall};
use agent_core::text_dialect::{TaggedCall, ToolAddress, ToolMatch};

impl Registry {
    /// Looks up the tool of a call that a model wrote in its text (L20).
    pub(crate) fn resolve_tagged(&self, call: &TaggedCall) -> ResolvedCall {
        let address = ToolAddress { server: call.server.clone(), tool: call.tool.clone() };
        let tools = self.tools().map(|tool| (tool.definition.name.as_str(), &tool.source));
        let arguments = call.arguments.to_string();
        let ToolAddress { server, tool } = &address;
        let message = match address.among(tools) {
            ToolMatch::One(name) => return self.resolve_by_author(name, &arguments),
            ToolMatch::Several(names) => {
                format!("several MCP servers have a tool `{tool}`: call it as `{}`", names.join("` or `"))
            }
            ToolMatch::None => match address.names().iter().find(|name| self.is_absent(name)) {
                Some(name) => return self.resolve_by_author(name, &arguments),
                None => format!("`{server}` has no tool `{tool}`; {}", self.list_tools()),
            },
        };
        let (disposition, approval) = (Disposition::NotFound { message }, Approval::NotNeeded);
        let (name, arguments) = (address.tool, call.arguments.clone());
        ResolvedCall { name, arguments, source: None, disposition, approval }
    }
}
