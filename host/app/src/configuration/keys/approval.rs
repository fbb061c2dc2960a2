//! The keys that say which tools run unasked.

use super::{Default, Form, Key, NONE, Section, Value};

/// What a rule may say.
const POLICIES: &[&str] = &["allow", "ask", "deny"];

pub(super) const APPROVAL: Section = Section {
    path: &["approval"],
    example: "approval",
    title: "Approvals",
    about: "Which tools run unasked (`allow`), which only when somebody says yes (`ask`), and which never (`deny`). Of all rules \
            that fit a tool the strictest holds; a tool that says itself that it needs an approval is asked for. Only a rule \
            in `tools` with a tool's exact name decides alone, and may relax the others.",
    keys: &[
        Key {
            name: "default",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""allow""#),
            meaning: "All tools but the host's own.",
            example: r#""ask""#,
        },
        Key {
            name: "destructive",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""allow""#),
            meaning: "Tools that say that they may delete or overwrite.",
            example: r#""ask""#,
        },
        Key {
            name: "open_world",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""allow""#),
            meaning: "Tools that say that they deal with an open set of things, such as the web.",
            example: r#""ask""#,
        },
        Key {
            name: "bind_arguments",
            value: Value::Texts(Form::Line),
            default: Default::Words("none: a remembered yes holds for any arguments"),
            meaning: "Tools, by name or with `*` for any characters, for which a remembered yes holds for the same arguments only.",
            example: r#"["files.*"]"#,
        },
        Key {
            name: "tools",
            value: Value::Pairs(Form::Line, Form::Policy),
            default: NONE,
            meaning: "Single tools, by name or with `*` for any characters.",
            example: r#"{ "files.write*" = "ask", "files.read" = "allow" }"#,
        },
    ],
};
