//! Which tools may run unasked (L17): the rules of a configuration, and what they say of one tool.

use super::ApprovalPolicy;
use crate::tool::{ToolDefinition, ToolSource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a configuration says about approvals. Default: every tool runs unasked that does not itself ask for an approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApprovalRules {
    /// Of all tools but the host's own.
    pub default: ApprovalPolicy,
    /// Of tools that say that they are destructive.
    pub destructive: ApprovalPolicy,
    /// Of tools that say that they deal with an open world.
    pub open_world: ApprovalPolicy,
    /// By name, or by pattern: `*` stands for any characters.
    pub tools: BTreeMap<String, ApprovalPolicy>,
    /// Names and patterns of tools whose remembered grants hold for the same arguments only.
    pub bind_arguments: Vec<String>,
}

/// What the rules say of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it may run.
    pub policy: ApprovalPolicy,
    /// The key of the configuration that says so, or that the tool itself does.
    pub because: String,
}

impl Ruling {
    /// The stricter one; where both are the same, this one.
    #[must_use]
    pub fn strictest(self, other: Ruling) -> Ruling {
        if other.policy > self.policy { other } else { self }
    }
}

impl ApprovalRules {
    /// The rule that holds for a tool. A rule with its exact name decides alone, and only that may relax what other rules
    /// or the tool itself ask for; of all others that fit, the strictest holds.
    pub fn ruling(&self, definition: &ToolDefinition, source: &ToolSource) -> Ruling {
        let name = definition.name.as_str();
        if let Some(policy) = self.tools.get(name) {
            return Ruling { policy: *policy, because: key_of(name) };
        }
        self.general_ruling(definition, source)
    }

    /// What holds for a tool beside a rule with its exact name: the strictest of all other rules that fit.
    pub fn general_ruling(&self, definition: &ToolDefinition, source: &ToolSource) -> Ruling {
        let (name, traits) = (definition.name.as_str(), definition.traits);
        // The host's own tools read what is granted and what is the session's: `default` speaks of foreign ones.
        let default = if *source == ToolSource::BuiltIn { ApprovalPolicy::Allow } else { self.default };
        let mut strictest = Ruling { policy: default, because: "approval.default".to_owned() };
        let mut say = |policy: ApprovalPolicy, because: &dyn Fn() -> String| {
            if policy > strictest.policy {
                strictest = Ruling { policy, because: because() };
            }
        };
        for (pattern, policy) in self.tools.iter().filter(|(pattern, _)| fits(pattern, name)) {
            say(*policy, &|| key_of(pattern));
        }
        if traits.destructive {
            say(self.destructive, &|| "approval.destructive".to_owned());
        }
        if traits.open_world {
            say(self.open_world, &|| "approval.open_world".to_owned());
        }
        if traits.needs_approval {
            say(ApprovalPolicy::Ask, &|| "the tool itself".to_owned());
        }
        strictest
    }

    /// Whether remembered grants of a tool hold for the same arguments only.
    pub fn binds_arguments(&self, tool: &str) -> bool {
        self.bind_arguments.iter().any(|pattern| fits(pattern, tool))
    }

    /// Names and patterns that fit none of these tools: most likely a slip, after which a tool runs unasked.
    pub fn idle<'a>(&'a self, tools: &[&str]) -> Vec<&'a str> {
        let all = self.tools.keys().chain(&self.bind_arguments);
        all.filter(|pattern| !tools.iter().any(|tool| fits(pattern, tool))).map(String::as_str).collect()
    }
}

/// What stands before the first `.` of a tool's name, or of a pattern that says so much: where its tools come from.
pub fn source_of(rule: &str) -> Option<&str> {
    rule.split_once('.').map(|(source, _)| source).filter(|source| !source.contains('*'))
}

/// Whether a tool's name fits a pattern, in which `*` stands for any characters and everything else for itself.
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    // Each piece as early as it can be: what follows has the more room.
    for piece in pieces {
        match name.find(piece) {
            Some(place) => name = &name[place + piece.len()..],
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
    const NEEDS: Traits = Traits {
        read_only: false,
        destructive: false,
        idempotent: false,
        sequential: false,
        open_world: false,
        needs_approval: true,
    };

    /// L17
    #[test]
    fn l17_the_strictest_rule_holds_and_an_exact_name_decides_alone() {
        use ApprovalPolicy::{Allow, Ask, Deny};
        let destructive = Traits { destructive: true, ..Traits::default() };
        let open = Traits { open_world: true, ..Traits::default() };
        let of = |rules: &ApprovalRules, name: &str, traits| {
            let Ruling { policy, because } = rules.ruling(&tool(name, traits), &SERVER);
            (policy, because)
        };
        let none = ApprovalRules::default();
        assert_eq!(of(&none, "a", destructive), (Allow, "approval.default".into()));
        assert_eq!(of(&none, "a", NEEDS), (Ask, "the tool itself".into()));
        let patterns = rules(&[("files.*", Ask), ("files.wr*", Deny), ("files.wrap", Allow), ("*", Allow)]);
        assert_eq!(of(&patterns, "files.read", Traits::default()), (Ask, "approval.tools.\"files.*\"".into()));
        assert_eq!(of(&patterns, "files.write", NEEDS), (Deny, "approval.tools.\"files.wr*\"".into()));
        assert_eq!(of(&patterns, "files.wrap", NEEDS), (Allow, "approval.tools.\"files.wrap\"".into()));
        assert_eq!(of(&rules(&[("*", Allow)]), "a", NEEDS).0, Ask, "a pattern relaxes nothing");
        let annotated = ApprovalRules { destructive: Ask, open_world: Deny, ..Default::default() };
        assert_eq!(of(&annotated, "a", destructive), (Ask, "approval.destructive".into()));
        assert_eq!(of(&annotated, "a", open), (Deny, "approval.open_world".into()));
        assert_eq!(of(&annotated, "a", Traits { open_world: true, ..destructive }).0, Deny);
        assert_eq!(of(&annotated, "a", Traits::default()).0, Allow);
    }

    /// L17
    #[test]
    fn l17_the_default_speaks_of_foreign_tools_only() {
        let rules = ApprovalRules { default: ApprovalPolicy::Deny, ..Default::default() };
        let read = tool("read_result", Traits::default());
        assert_eq!(rules.ruling(&read, &ToolSource::BuiltIn).policy, ApprovalPolicy::Allow);
        assert_eq!(rules.ruling(&read, &SERVER).policy, ApprovalPolicy::Deny);
        let named = ApprovalRules { tools: [("read_*".into(), ApprovalPolicy::Ask)].into(), ..rules };
        assert_eq!(named.ruling(&read, &ToolSource::BuiltIn).policy, ApprovalPolicy::Ask);
    }

    #[test]
    fn patterns_fit_whole_names() {
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
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn rules_that_fit_nothing_are_found() {
        let mut rules = rules(&[("files.*", ApprovalPolicy::Ask), ("fiels.write", ApprovalPolicy::Ask)]);
        rules.bind_arguments = vec!["pay".into(), "files.read".into()];
        assert_eq!(rules.idle(&["files.read"]), ["fiels.write", "pay"]);
        assert!(rules.binds_arguments("pay") && !rules.binds_arguments("payer"));
    }
}
