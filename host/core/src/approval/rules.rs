//! The approval rules of a configuration, and how they apply to a tool (L17).

use super::ApprovalPolicy;
use crate::tool::{ToolDefinition, ToolSource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Approval rules of a configuration. By default, a tool runs without approval unless it declares that it may delete or
/// overwrite something, or that it requires an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApprovalRules {
    /// Policy for all tools except the host's built-in tools.
    pub default: ApprovalPolicy,
    /// Policy for tools that declare themselves destructive.
    pub destructive: ApprovalPolicy,
    /// Policy for tools that declare the trait `open_world`, such as tools that search the web.
    pub open_world: ApprovalPolicy,
    /// Policies for single tools. Each key is the name of a tool or a pattern that matches names. In a pattern, `*`
    /// matches any characters.
    pub tools: BTreeMap<String, ApprovalPolicy>,
    /// Names and patterns of tools for which a remembered grant is valid only for the arguments that the user approved.
    pub bind_arguments: Vec<String>,
}

impl Default for ApprovalRules {
    fn default() -> Self {
        Self {
            default: ApprovalPolicy::Allow,
            destructive: ApprovalPolicy::Ask,
            open_world: ApprovalPolicy::Allow,
            tools: BTreeMap::new(),
            bind_arguments: Vec::new(),
        }
    }
}

/// The policy that applies to a tool, and the rule from which it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Whether the tool may run.
    pub policy: ApprovalPolicy,
    /// The configuration key that sets the policy, or `the tool itself` if the tool requires the approval.
    pub because: String,
}

impl Ruling {
    /// Returns the stricter of two rulings, or `self` if they are equally strict.
    #[must_use]
    pub fn strictest(self, other: Ruling) -> Ruling {
        if other.policy > self.policy { other } else { self }
    }
}

impl ApprovalRules {
    /// Returns rules with which a tool needs an approval only if the tool itself requires one.
    pub fn none() -> Self {
        Self { destructive: ApprovalPolicy::Allow, ..Self::default() }
    }

    /// Returns the ruling for a tool. A rule with the tool's exact name takes precedence over all other rules, and over
    /// the approval that the tool itself requires. If no rule has the exact name, the strictest matching rule applies.
    pub fn ruling(&self, definition: &ToolDefinition, source: &ToolSource) -> Ruling {
        let name = definition.name.as_str();
        if let Some(policy) = self.tools.get(name) {
            return Ruling { policy: *policy, because: key_of(name) };
        }
        self.general_ruling(definition, source)
    }

    /// Returns the ruling for a tool as if no rule had the tool's exact name. The strictest matching rule applies.
    pub fn general_ruling(&self, definition: &ToolDefinition, source: &ToolSource) -> Ruling {
        let (name, traits) = (definition.name.as_str(), definition.traits);
        // Built-in tools only read data of the session or data that the session may read. The policy `default` does not
        // apply to built-in tools.
        let default = if *source == ToolSource::BuiltIn { ApprovalPolicy::Allow } else { self.default };
        let mut strictest = Ruling { policy: default, because: "approval.default".to_owned() };
        let mut consider = |policy: ApprovalPolicy, because: &dyn Fn() -> String| {
            if policy > strictest.policy {
                strictest = Ruling { policy, because: because() };
            }
        };
        for (pattern, policy) in self.tools.iter().filter(|(pattern, _)| matches_pattern(pattern, name)) {
            consider(*policy, &|| key_of(pattern));
        }
        if traits.destructive {
            consider(self.destructive, &|| "approval.destructive".to_owned());
        }
        if traits.open_world {
            consider(self.open_world, &|| "approval.open_world".to_owned());
        }
        if traits.needs_approval {
            consider(ApprovalPolicy::Ask, &|| "the tool itself".to_owned());
        }
        strictest
    }

    /// Whether a remembered grant for this tool is valid only for the arguments that the user approved.
    pub fn binds_arguments(&self, tool: &str) -> bool {
        self.bind_arguments.iter().any(|pattern| matches_pattern(pattern, tool))
    }

    /// Returns the tool names and patterns of the rules that match none of the given tools. A rule that matches no tool
    /// probably contains a typo, and the tool for which the rule was meant would run without approval.
    pub fn unmatched_patterns<'a>(&'a self, tools: &[&str]) -> Vec<&'a str> {
        let patterns = self.tools.keys().chain(&self.bind_arguments);
        patterns
            .filter(|pattern| !tools.iter().any(|tool| matches_pattern(pattern, tool)))
            .map(String::as_str)
            .collect()
    }
}

/// Returns the name of the tool's source, which is the part of a tool name or pattern before the first `.`. `None`
/// means that the rule contains no `.`, or the part before the first `.` contains a `*`.
pub fn rule_source(rule: &str) -> Option<&str> {
    rule.split_once('.').map(|(source, _)| source).filter(|source| !source.contains('*'))
}

/// Whether a tool's name matches a pattern. `*` matches any characters, and every other character matches itself.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    // Each piece of the pattern is matched as early as possible, because this leaves the most text for the pieces
    // that follow.
    for piece in pieces {
        match name.find(piece) {
            Some(position) => name = &name[position + piece.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

fn key_of(tool: &str) -> String {
    format!("approval.tools.{tool:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Traits;
    use serde_json::json;

    fn tool(name: &str, traits: Traits) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: json!({}),
            output_schema: None,
            traits,
            priority: 0,
        }
    }

    fn rules(tools: &[(&str, ApprovalPolicy)]) -> ApprovalRules {
        let tools = tools.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect();
        ApprovalRules { tools, ..Default::default() }
    }

    const SERVER: ToolSource = ToolSource::Mcp { server: String::new(), definition: None };
    const NEEDS_APPROVAL: Traits = Traits {
        read_only: false,
        destructive: false,
        idempotent: false,
        sequential: false,
        open_world: false,
        needs_approval: true,
    };

    #[test]
    fn l17_the_strictest_rule_applies_unless_a_rule_has_the_exact_name() {
        use ApprovalPolicy::{Allow, Ask, Deny};
        let destructive = Traits { destructive: true, ..Traits::default() };
        let open = Traits { open_world: true, ..Traits::default() };
        let ruling = |rules: &ApprovalRules, name: &str, traits| {
            let Ruling { policy, because } = rules.ruling(&tool(name, traits), &SERVER);
            (policy, because)
        };
        let no_rules = ApprovalRules::default();
        assert_eq!(ruling(&no_rules, "a", destructive), (Ask, "approval.destructive".into()));
        assert_eq!(ruling(&no_rules, "a", open), (Allow, "approval.default".into()));
        assert_eq!(ruling(&no_rules, "a", NEEDS_APPROVAL), (Ask, "the tool itself".into()));
        let patterns = rules(&[("files.*", Ask), ("files.wr*", Deny), ("files.wrap", Allow), ("*", Allow)]);
        assert_eq!(ruling(&patterns, "files.read", Traits::default()), (Ask, "approval.tools.\"files.*\"".into()));
        assert_eq!(ruling(&patterns, "files.write", NEEDS_APPROVAL), (Deny, "approval.tools.\"files.wr*\"".into()));
        assert_eq!(ruling(&patterns, "files.wrap", NEEDS_APPROVAL), (Allow, "approval.tools.\"files.wrap\"".into()));
        assert_eq!(
            ruling(&rules(&[("*", Allow)]), "a", NEEDS_APPROVAL).0,
            Ask,
            "a pattern cannot relax the tool's own requirement"
        );
        let annotated = ApprovalRules { destructive: Ask, open_world: Deny, ..Default::default() };
        assert_eq!(ruling(&annotated, "a", destructive), (Ask, "approval.destructive".into()));
        assert_eq!(ruling(&annotated, "a", open), (Deny, "approval.open_world".into()));
        assert_eq!(ruling(&annotated, "a", Traits { open_world: true, ..destructive }).0, Deny);
        assert_eq!(ruling(&annotated, "a", Traits::default()).0, Allow);
    }

    #[test]
    fn l17_the_default_does_not_apply_to_built_in_tools() {
        let rules = ApprovalRules { default: ApprovalPolicy::Deny, ..Default::default() };
        let read = tool("read_result", Traits::default());
        assert_eq!(rules.ruling(&read, &ToolSource::BuiltIn).policy, ApprovalPolicy::Allow);
        assert_eq!(rules.ruling(&read, &SERVER).policy, ApprovalPolicy::Deny);
        let named = ApprovalRules { tools: [("read_*".into(), ApprovalPolicy::Ask)].into(), ..rules };
        assert_eq!(named.ruling(&read, &ToolSource::BuiltIn).policy, ApprovalPolicy::Ask);
    }

    #[test]
    fn patterns_match_whole_names() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("*b", "abc", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("*x*y*", "aaxbbyc", true),
            ("*x*y*", "yx", false),
            ("a*b*b", "ab", false),
            ("*", "", true),
            ("**", "anything", true),
            ("f.r", "fxr", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_that_match_no_tool_are_found() {
        let mut rules = rules(&[("files.*", ApprovalPolicy::Ask), ("fiels.write", ApprovalPolicy::Ask)]);
        rules.bind_arguments = vec!["pay".into(), "files.read".into()];
        assert_eq!(rules.unmatched_patterns(&["files.read"]), ["fiels.write", "pay"]);
        assert!(rules.binds_arguments("pay") && !rules.binds_arguments("payer"));
    }
}
