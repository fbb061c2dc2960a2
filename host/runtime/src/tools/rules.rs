//! Applies the approval rules of an agent's configuration to its tools. A tool that a rule denies is not offered to
//! the model.

use super::availability::Availability;
use agent_core::approval::{ApprovalPolicy, ApprovalRules};
use agent_core::tool::{ToolDefinition, ToolSource};

/// Returns the availability of a tool under these rules. If a rule denies the tool, the tool is withheld, and the
/// message for the model names the rule. If no rule denies the tool, the result is `otherwise`.
pub(crate) fn availability(
    rules: &ApprovalRules,
    (definition, source): (&ToolDefinition, &ToolSource),
    otherwise: Availability,
) -> Availability {
    let ruling = rules.ruling(definition, source);
    match ruling.policy {
        ApprovalPolicy::Deny => {
            let message = denial_message(&definition.name, &ruling.because);
            Availability::Withheld { message, advice: advice_to_allow(&ruling.because) }
        }
        ApprovalPolicy::Allow | ApprovalPolicy::Ask => otherwise,
    }
}

/// Returns the message for a call to a tool that a rule denies. `because` is the configuration key of the rule.
pub(crate) fn denial_message(tool: &str, because: &str) -> String {
    format!("the agent's configuration denies `{tool}`: {because} = \"deny\"")
}

/// Returns the advice to change the rule that denies a tool. `because` is the configuration key of the rule.
pub(crate) fn advice_to_allow(because: &str) -> String {
    format!("change {because} = \"deny\" in the agent's configuration")
}
