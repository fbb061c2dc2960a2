//! Applies the approval rules of an agent's configuration before anybody is asked: a denied tool is not offered.

use super::availability::Availability;
use agent_core::approval::{ApprovalPolicy, ApprovalRules};
use agent_core::tool::{ToolDefinition, ToolSource};

/// The availability of a tool under these rules. A tool that they deny is withheld, with a message that names the rule.
pub(crate) fn availability(
    rules: &ApprovalRules,
    (definition, source): (&ToolDefinition, &ToolSource),
    otherwise: Availability,
) -> Availability {
    let ruling = rules.ruling(definition, source);
    match ruling.policy {
        ApprovalPolicy::Deny => {
            let message = denied(&definition.name, &ruling.because);
            Availability::Withheld { message, advice: allowing(&ruling.because) }
        }
        ApprovalPolicy::Allow | ApprovalPolicy::Ask => otherwise,
    }
}

/// Message that the rule denies the tool.
pub(crate) fn denied(tool: &str, because: &str) -> String {
    format!("the agent's configuration denies `{tool}`: {because} = \"deny\"")
}

/// Advice which rule to change to allow the tool.
pub(crate) fn allowing(because: &str) -> String {
    format!("change {because} = \"deny\" in the agent's configuration")
}
