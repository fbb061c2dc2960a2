//! Keys of `[approval]`, which decide which tool calls need an approval.

use super::{Default, Key, NONE, Section, TextFormat, Value};

/// Policies that a rule may set.
const POLICIES: &[&str] = &["allow", "ask", "deny"];

pub(super) const APPROVAL: Section = Section {
    path: &["approval"],
    example: "approval",
    title: "Approvals",
    about: "Which tools run without an approval (`allow`), which tools run only after someone approves the call \
            (`ask`), and which tools never run (`deny`). If several rules match a tool, the strictest rule applies. A \
            tool that declares that it needs an approval is treated as `ask`. Only a rule in `tools` with the exact \
            name of a tool overrides all other rules and can be less strict.",
    keys: &[
        Key {
            name: "default",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""allow""#),
            meaning: "Applies to all tools except the host's built-in tools.",
            example: r#""ask""#,
        },
        Key {
            name: "destructive",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""ask""#),
            meaning: "Applies to tools that declare that they may delete or overwrite something. A tool of an MCP server that \
                      declares nothing counts as such a tool.",
            example: r#""allow""#,
        },
        Key {
            name: "open_world",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""allow""#),
            meaning: "Applies to tools that declare that they interact with external systems, such as the web.",
            example: r#""ask""#,
        },
        Key {
            name: "decide_within_ms",
            value: Value::Number(1, 2_678_400_000),
            default: Default::Words("no limit"),
            meaning: "Milliseconds after which a call that nobody has decided about is not allowed. The model is told, and \
                      the turn continues.",
            example: "86400000",
        },
        Key {
            name: "bind_arguments",
            value: Value::Texts(TextFormat::Line),
            default: Default::Words("none: a remembered approval applies to any arguments"),
            meaning: "Names of tools, in which `*` matches any characters. A remembered approval of these tools applies \
                      only to calls with the same arguments.",
            example: r#"["files.*"]"#,
        },
        Key {
            name: "tools",
            value: Value::Pairs(TextFormat::Line, TextFormat::Policy),
            default: NONE,
            meaning: "Policies for single tools by name, in which `*` matches any characters.",
            example: r#"{ "files.write*" = "ask", "files.read" = "allow" }"#,
        },
    ],
};
