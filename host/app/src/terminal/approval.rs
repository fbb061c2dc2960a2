//! What a person is shown of a call that must be allowed or decided about, and how their answer is read (L17).

use super::text::{count, size};
use super::{BOLD, DIM, YELLOW};
use agent_core::approval::GrantScope;
use agent_core::change::CallRecord;
use agent_core::event::{ApprovalDetails, ApprovalItem};
use agent_core::tool::Traits;
use agent_core::visible::is_invisible;
use serde_json::Value;

/// Characters of one argument that are shown unasked.
const SHOWN: usize = 400;
/// Arguments that are shown unasked.
const FIELDS: usize = 16;

/// What somebody types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes, for so long.
    Allow(GrantScope, Reach),
    /// No, and why.
    Deny(Option<String>, Reach),
    /// With other arguments: these, or those of an editor.
    Edit(Option<String>),
    /// Show all of the arguments.
    Whole,
    /// Say what may be typed.
    Help,
}

/// Of which calls an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Of the one that is shown.
    This,
    /// Of this one and all behind it.
    Rest,
}

/// What may be typed.
pub(crate) const HELP: &str = "\
  y  yes, this once             y all  and all that follow
  s  yes, in this session       s all
  a  always, until revoked      a all  (`agent-host approvals revoke` takes it back)
  n  no; n WHY tells the model  n all
  e  change the arguments in $EDITOR, or at once: e {\"name\": \"value\"}
  v  show the arguments whole
  Ctrl-C cancels the turn, Ctrl-D leaves it waiting";

/// The question behind what is shown.
pub(crate) const QUESTION: &str = "allow? y once, s session, a always, n no, e edit, v view, ? help > ";

/// The question behind a call whose outcome is unknown.
pub(crate) const QUESTION_OF_UNKNOWN: &str = "what became of it? retry, failed [WHY], result TEXT > ";

impl Answer {
    /// Reads a line. An empty one is no answer.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let (reach, behind) = match rest.split_once(char::is_whitespace).unwrap_or((rest, "")) {
            ("all", behind) => (Reach::Rest, behind.trim()),
            _ => (Reach::This, rest),
        };
        let scope = match word.to_lowercase().as_str() {
            "y" | "yes" | "once" => GrantScope::Once,
            "s" | "session" => GrantScope::Session,
            "a" | "always" => GrantScope::Always,
            "n" | "no" => return Some(Self::Deny((!behind.is_empty()).then(|| behind.to_owned()), reach)),
            "e" | "edit" => return Some(Self::Edit((!rest.is_empty()).then(|| rest.to_owned()))),
            "v" | "view" if rest.is_empty() => return Some(Self::Whole),
            "?" | "h" | "help" if rest.is_empty() => return Some(Self::Help),
            _ => return None,
        };
        // What stands behind a yes and is not understood may mean that it is none.
        behind.is_empty().then_some(Self::Allow(scope, reach))
    }
}

/// One call of the request: the tool and where it is from, what it says of itself, and with what it would run.
pub(crate) fn request(item: &ApprovalItem, edited: Option<&Value>, (place, of): (usize, usize)) -> String {
    let number = if of > 1 { format!(" ({place} of {of})") } else { String::new() };
    let digest = item.digest.as_ref().map(|digest| digest.short()).unwrap_or_default();
    let name = escaped(&item.name);
    let Some(details) = &item.details else {
        return format!("{YELLOW}approval needed{YELLOW:#}{number}: {BOLD}{name}{BOLD:#} {DIM}{digest}{DIM:#}");
    };
    let source = match escaped(&details.source.to_string()) {
        source if source.ends_with(digest) => source,
        source => format!("{source}, {digest}"),
    };
    let mut lines =
        vec![format!("{YELLOW}approval needed{YELLOW:#}{number}: {BOLD}{name}{BOLD:#}  {DIM}{source}{DIM:#}")];
    lines.push(format!("  {DIM}{}{DIM:#}", about(details)));
    if edited.is_some() {
        lines.push(format!("  {YELLOW}with the arguments that you changed:{YELLOW:#}"));
    }
    lines.extend(arguments(edited.unwrap_or(&details.arguments), "v shows"));
    lines.join("\n")
}

/// Who asks, where it is not the agent that the person talks to: its name, and through whom it came to its work (L16).
pub(crate) fn on_behalf(above: &[String], agent: &str, session: &str) -> String {
    let path: Vec<String> = above.iter().map(String::as_str).chain([agent]).map(escaped).collect();
    let (agent, path, session) = (escaped(agent), path.join(" → "), escaped(session));
    format!("{YELLOW}the agent{YELLOW:#} {BOLD}{agent}{BOLD:#} asks  {DIM}{path}, session {session}{DIM:#}")
}

/// A call that nobody saw the end of.
pub(crate) fn unknown(call: &CallRecord) -> String {
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while this call ran, and it is not known whether it had its effect"
    )];
    lines.push(format!("  {BOLD}{}{BOLD:#}", escaped(&call.name)));
    lines.extend(arguments(call.effective_arguments(), "agent-host session show --call shows"));
    lines.join("\n")
}

/// All of the arguments.
pub(crate) fn whole(arguments: &Value) -> String {
    let text = serde_json::to_string_pretty(arguments).unwrap_or_else(|_| arguments.to_string());
    text.lines().map(|line| format!("  {}", escaped(line))).collect::<Vec<_>>().join("\n")
}

fn about(details: &ApprovalDetails) -> String {
    let Traits { read_only, destructive, idempotent, open_world, .. } = details.traits;
    let said = [
        (read_only, "changes nothing"),
        (destructive, "may delete or overwrite"),
        (idempotent, "repeating it has no further effect"),
        (open_world, "deals with an open world"),
    ];
    let said: Vec<_> = said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words).collect();
    let said = if said.is_empty() { "nothing of what it does to the world".to_owned() } else { said.join(", ") };
    format!("it says: {said}; asked for by {}", escaped(&details.because))
}

/// A line for each argument; where something of them is not shown, one that says what shows it.
pub(crate) fn arguments(arguments: &Value, showing: &str) -> Vec<String> {
    let fields: Vec<String> = match arguments {
        Value::Object(fields) if fields.is_empty() => return vec!["  without arguments".to_owned()],
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{}: {value}", Value::from(name.as_str()))).collect()
        }
        other => vec![other.to_string()],
    };
    let total = arguments.to_string().len();
    let is_cut = fields.len() > FIELDS || fields.iter().any(|field| field.chars().nth(SHOWN).is_some());
    let shown = fields.iter().take(FIELDS).map(|field| {
        let beginning: String = field.chars().take(SHOWN).collect();
        let more = if beginning.len() < field.len() { "…" } else { "" };
        format!("  {}{more}", escaped(&beginning))
    });
    let mut lines: Vec<String> = shown.collect();
    if is_cut {
        let fields = count(fields.len(), "argument");
        lines.push(format!("  {YELLOW}… not all is shown: {showing} {fields}, {}{YELLOW:#}", size(total as u64)));
    }
    lines
}

/// With every character that a terminal would obey, or that nobody would see, written as its number: what is allowed must
/// be what is read.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_invisible(character) {
            true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{CallId, Digest};
    use agent_core::tool::ToolSource;
    use serde_json::json;

    fn item(arguments: Value) -> ApprovalItem {
        let digest = Digest::from_sha256([7; 32]);
        let source = ToolSource::Plugin { plugin: "bank".into(), digest: digest.clone() };
        let traits = Traits { destructive: true, needs_approval: true, ..Traits::default() };
        let details = Some(ApprovalDetails { source, arguments, traits, because: "the tool itself".into() });
        ApprovalItem { call: CallId("call_1_1_1".into()), name: "pay".into(), digest: Some(digest), details }
    }

    fn shown(item: &ApprovalItem, edited: Option<&Value>) -> String {
        anstream::adapter::strip_str(&request(item, edited, (1, 2))).to_string()
    }

    /// L17
    #[test]
    fn l17_a_request_says_what_would_run() {
        let arguments = json!({"to": "Ann\u{1b}[2J\u{202e}", "amount": 5, "note": "x".repeat(500)});
        insta::assert_snapshot!(shown(&item(arguments), None).replace(&"x".repeat(300), "…300…"), @r#"
        approval needed (1 of 2): pay  bank@070707070707
          it says: may delete or overwrite; asked for by the tool itself
          "to": "Ann\u001b[2J\u{202e}"
          "amount": 5
          "note": "…300…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
          … not all is shown: v shows 3 arguments, 545 bytes
        "#);
        let edited = shown(&item(json!({"amount": 5})), Some(&json!({"amount": 1})));
        assert!(edited.ends_with("with the arguments that you changed:\n  \"amount\": 1"), "{edited}");
        assert!(shown(&item(json!({})), None).ends_with("without arguments"));
    }

    /// L17: neither the short form nor the whole one can steer the terminal or hide anything.
    #[test]
    fn l17_nothing_is_hidden_from_who_decides() {
        let sly = "a\u{7f}\u{9b}2J\u{200b}\u{2066}\u{e0041}\u{feff}\r\nb";
        for text in [shown(&item(json!({ sly: sly })), None), whole(&json!({ sly: sly }))] {
            assert!(!text.chars().any(|character| is_invisible(character) && character != '\n'), "{text:?}");
            assert!(text.contains("\\u{200b}") && text.contains("\\u{e0041}"), "{text}");
        }
    }

    #[test]
    fn l17_only_a_clear_yes_is_one() {
        use GrantScope::{Always, Once, Session};
        let cases = [
            ("y", Some(Answer::Allow(Once, Reach::This))),
            (" YES ", Some(Answer::Allow(Once, Reach::This))),
            ("s all", Some(Answer::Allow(Session, Reach::Rest))),
            ("a", Some(Answer::Allow(Always, Reach::This))),
            ("n", Some(Answer::Deny(None, Reach::This))),
            ("n all", Some(Answer::Deny(None, Reach::Rest))),
            ("no it is too much", Some(Answer::Deny(Some("it is too much".into()), Reach::This))),
            ("n all too much", Some(Answer::Deny(Some("too much".into()), Reach::Rest))),
            ("e", Some(Answer::Edit(None))),
            ("e {\"a\": 1}", Some(Answer::Edit(Some("{\"a\": 1}".into())))),
            ("v", Some(Answer::Whole)),
            ("?", Some(Answer::Help)),
            ("", None),
            ("y but not so much", None),
            ("y all but one", None),
            ("ok", None),
            ("all", None),
        ];
        for (line, expected) in cases {
            assert_eq!(Answer::parse(line), expected, "{line}");
        }
    }
}
