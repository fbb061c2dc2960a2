//! Shows calls that need an approval or a decision, and parses the user's answers (L17).

use super::text::{count, size};
use super::{BOLD, DIM, YELLOW};
use agent_core::approval::GrantScope;
use agent_core::change::CallRecord;
use agent_core::event::{ApprovalDetails, ApprovalItem};
use agent_core::tool::{ToolSource, Traits};
use agent_core::visible::is_invisible;
use serde_json::Value;

/// Maximum displayed length of an argument, in characters. The answer `v` shows the complete argument.
const MAX_CHARACTERS: usize = 400;
/// Maximum displayed length of an argument below a difference, which shows the content of long arguments in another form.
const MAX_CHARACTERS_WITH_CHANGES: usize = 80;
/// Maximum number of arguments that are shown. The answer `v` shows all arguments.
const MAX_FIELDS: usize = 16;

/// The user's answer to an approval request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Approve the calls for the given scope.
    Allow(GrantScope, AnswerScope),
    /// Deny the calls, with an optional reason for the model.
    Deny(Option<String>, AnswerScope),
    /// Change the arguments to this JSON text. If there is no text, the user edits the arguments in an editor.
    Edit(Option<String>),
    /// Show the complete arguments.
    Whole,
    /// Show the possible answers.
    Help,
}

/// The calls of an approval request to which an answer applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerScope {
    /// Only the call that is shown.
    ThisCall,
    /// The call that is shown and all later calls of the request.
    RemainingCalls,
}

/// Help text that explains the possible answers.
pub(crate) const HELP: &str = "  y  yes, this call only        y all  also all calls that follow
  s  yes, for this session      s all
  a  always, until revoked      a all  (revoke with `agent-host approvals revoke`)
  n  no; n WHY tells the model  n all
  e  change the arguments in $EDITOR, or directly: e {\"name\": \"value\"}
  v  show the complete arguments and changes
  /grant PLUGIN KIND=VALUE or /revoke PLUGIN changes the grants of a plugin first
  Ctrl-C cancels the turn, Ctrl-D leaves it waiting";

/// The prompt below a call that needs an approval.
pub(crate) const QUESTION: &str = "allow? y once, s session, a always, n no, e edit, v view, ? help > ";

/// The prompt below a call whose outcome is unknown.
pub(crate) const QUESTION_ABOUT_OUTCOME: &str = "what was the outcome? retry, failed [WHY], result TEXT > ";

impl Answer {
    /// Parses a typed line. Returns None if the line is empty or is not a valid answer.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let (answer_scope, reason) = match rest.split_once(char::is_whitespace).unwrap_or((rest, "")) {
            ("all", reason) => (AnswerScope::RemainingCalls, reason.trim()),
            _ => (AnswerScope::ThisCall, rest),
        };
        let scope = match word.to_lowercase().as_str() {
            "y" | "yes" | "once" => GrantScope::Once,
            "s" | "session" => GrantScope::Session,
            "a" | "always" => GrantScope::Always,
            "n" | "no" => return Some(Self::Deny((!reason.is_empty()).then(|| reason.to_owned()), answer_scope)),
            "e" | "edit" => return Some(Self::Edit((!rest.is_empty()).then(|| rest.to_owned()))),
            "v" | "view" if rest.is_empty() => return Some(Self::Whole),
            "?" | "h" | "help" if rest.is_empty() => return Some(Self::Help),
            _ => return None,
        };
        // If more text follows the word yes, that text may restrict the approval, so the answer is not a clear yes.
        reason.is_empty().then_some(Self::Allow(scope, answer_scope))
    }
}

/// Describes one call of an approval request: the tool, its source, its declared effects, the changes to files that a
/// rehearsal of the call has made, and the arguments. The call is shown as call `position` of `total` calls in the request.
/// `changes` is empty if there are no such changes.
pub(crate) fn request(
    item: &ApprovalItem,
    (edited, changes): (Option<&Value>, &str),
    (position, total): (usize, usize),
) -> String {
    let number = if total > 1 { format!(" ({position} of {total})") } else { String::new() };
    let digest = item.digest.as_ref().map(|digest| digest.short()).unwrap_or_default();
    let name = escaped(&item.name);
    let Some(details) = &item.details else {
        return format!("{YELLOW}approval needed{YELLOW:#}{number}: {BOLD}{name}{BOLD:#} {DIM}{digest}{DIM:#}");
    };
    let source = match escaped(&details.source.to_string()) {
        // The source of a plugin contains the digest of its component.
        source if source.ends_with(digest) || matches!(details.source, ToolSource::Plugin { .. }) => source,
        source => format!("{source}, {digest}"),
    };
    let mut lines =
        vec![format!("{YELLOW}approval needed{YELLOW:#}{number}: {BOLD}{name}{BOLD:#}  {DIM}{source}{DIM:#}")];
    lines.push(format!("  {DIM}{}{DIM:#}", declared_effects(details)));
    if !changes.is_empty() {
        lines.push(format!("  {DIM}changes that a rehearsal with copies of the files has made:{DIM:#}"));
        lines.push(changes.to_owned());
    }
    if edited.is_some() {
        lines.push(format!("  {YELLOW}with the arguments that you changed:{YELLOW:#}"));
    } else if !changes.is_empty() {
        lines.push(format!("  {DIM}arguments:{DIM:#}"));
    }
    let limit = if changes.is_empty() { MAX_CHARACTERS } else { MAX_CHARACTERS_WITH_CHANGES };
    lines.extend(shortened_arguments(edited.unwrap_or(&details.arguments), "v shows", limit));
    lines.join("\n")
}

/// Describes the delegate that asks, and the chain of agents through which the work was delegated to it (L16).
pub(crate) fn describe_asking_delegate(delegators: &[String], agent: &str, session: &str) -> String {
    let path: Vec<String> = delegators.iter().map(String::as_str).chain([agent]).map(escaped).collect();
    let (agent, path, session) = (escaped(agent), path.join(" → "), escaped(session));
    format!("{YELLOW}the agent{YELLOW:#} {BOLD}{agent}{BOLD:#} asks  {DIM}{path}, session {session}{DIM:#}")
}

/// Describes a call whose outcome is unknown.
pub(crate) fn unknown(call: &CallRecord) -> String {
    let mut lines = vec![format!(
        "{YELLOW}waits for a decision{YELLOW:#}: the host stopped while this call ran, so it is unknown whether it took effect"
    )];
    lines.push(format!("  {BOLD}{}{BOLD:#}", escaped(&call.name)));
    lines.extend(arguments(call.effective_arguments(), "agent-host session show --call shows"));
    lines.join("\n")
}

/// Formats the complete arguments as indented JSON.
pub(crate) fn whole(arguments: &Value) -> String {
    let text = serde_json::to_string_pretty(arguments).unwrap_or_else(|_| arguments.to_string());
    text.lines().map(|line| format!("  {}", escaped(line))).collect::<Vec<_>>().join("\n")
}

/// Describes the effects that the tool declares, and the reason why the call needs an approval.
fn declared_effects(details: &ApprovalDetails) -> String {
    let Traits { read_only, destructive, idempotent, open_world, .. } = details.traits;
    let effects = [
        (read_only, "changes nothing"),
        (destructive, "may delete or overwrite"),
        (idempotent, "repeating the call has no further effect"),
        (open_world, "accesses external systems"),
    ];
    let effects: Vec<_> = effects.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect();
    let effects =
        if effects.is_empty() { "unknown, because the tool declares none".to_owned() } else { effects.join(", ") };
    format!("declared effects: {effects}; approval required by {}", escaped(&details.because))
}

/// Formats each argument on its own line. If part of the arguments is omitted, the last line explains how to see all
/// arguments. The last line contains `showing`, which is the subject and the verb of its sentence, such as `v shows`.
pub(crate) fn arguments(arguments: &Value, showing: &str) -> Vec<String> {
    shortened_arguments(arguments, showing, MAX_CHARACTERS)
}

/// Formats the arguments as [`arguments`] does, but at most `limit` characters of each.
fn shortened_arguments(arguments: &Value, showing: &str, limit: usize) -> Vec<String> {
    let fields: Vec<String> = match arguments {
        Value::Object(fields) if fields.is_empty() => return vec!["  without arguments".to_owned()],
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{}: {value}", Value::from(name.as_str()))).collect()
        }
        other => vec![other.to_string()],
    };
    let total = arguments.to_string().len();
    let is_cut = fields.len() > MAX_FIELDS || fields.iter().any(|field| field.chars().nth(limit).is_some());
    let shown = fields.iter().take(MAX_FIELDS).map(|field| {
        let beginning: String = field.chars().take(limit).collect();
        let more = if beginning.len() < field.len() { "…" } else { "" };
        format!("  {}{more}", escaped(&beginning))
    });
    let mut lines: Vec<String> = shown.collect();
    if is_cut {
        let fields = count(fields.len(), "argument");
        let size = size(total as u64);
        lines.push(format!("  {YELLOW}… not everything is shown: {showing} all ({fields}, {size}){YELLOW:#}"));
    }
    lines
}

/// Escapes all control and invisible characters as numbers, so that nothing in the arguments that the user approves
/// is hidden.
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
    use serde_json::json;

    fn item(arguments: Value) -> ApprovalItem {
        let digest = Digest::from_sha256([7; 32]);
        let source = ToolSource::Plugin { plugin: "bank".into(), digest: digest.clone() };
        let traits = Traits { destructive: true, needs_approval: true, ..Traits::default() };
        let details = Some(ApprovalDetails { source, arguments, traits, because: "the tool itself".into() });
        ApprovalItem { call: CallId("call_1_1_1".into()), name: "pay".into(), digest: Some(digest), details }
    }

    fn shown(item: &ApprovalItem, edited: Option<&Value>) -> String {
        anstream::adapter::strip_str(&request(item, (edited, ""), (1, 2))).to_string()
    }

    #[test]
    fn l17_request_shows_tool_and_arguments() {
        let arguments = json!({"to": "Ann\u{1b}[2J\u{202e}", "amount": 5, "note": "x".repeat(500)});
        insta::assert_snapshot!(shown(&item(arguments), None).replace(&"x".repeat(300), "…300…"), @r#"
        approval needed (1 of 2): pay  bank@070707070707
          declared effects: may delete or overwrite; approval required by the tool itself
          "to": "Ann\u001b[2J\u{202e}"
          "amount": 5
          "note": "…300…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
          … not everything is shown: v shows all (3 arguments, 545 bytes)
        "#);
        let edited = shown(&item(json!({"amount": 5})), Some(&json!({"amount": 1})));
        assert!(edited.ends_with("with the arguments that you changed:\n  \"amount\": 1"), "{edited}");
        assert!(shown(&item(json!({})), None).ends_with("without arguments"));
    }

    /// L17: neither the short nor the complete form of the arguments can control the terminal or hide text.
    #[test]
    fn l17_escapes_invisible_characters() {
        let hidden = "a\u{7f}\u{9b}2J\u{200b}\u{2066}\u{e0041}\u{feff}\r\nb";
        for text in [shown(&item(json!({ hidden: hidden })), None), whole(&json!({ hidden: hidden }))] {
            assert!(!text.chars().any(|character| is_invisible(character) && character != '\n'), "{text:?}");
            assert!(text.contains("\\u{200b}") && text.contains("\\u{e0041}"), "{text}");
        }
    }

    #[test]
    fn l17_accepts_only_a_clear_yes() {
        use GrantScope::{Always, Once, Session};
        let cases = [
            ("y", Some(Answer::Allow(Once, AnswerScope::ThisCall))),
            (" YES ", Some(Answer::Allow(Once, AnswerScope::ThisCall))),
            ("s all", Some(Answer::Allow(Session, AnswerScope::RemainingCalls))),
            ("a", Some(Answer::Allow(Always, AnswerScope::ThisCall))),
            ("n", Some(Answer::Deny(None, AnswerScope::ThisCall))),
            ("n all", Some(Answer::Deny(None, AnswerScope::RemainingCalls))),
            ("no it is too much", Some(Answer::Deny(Some("it is too much".into()), AnswerScope::ThisCall))),
            ("n all too much", Some(Answer::Deny(Some("too much".into()), AnswerScope::RemainingCalls))),
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
