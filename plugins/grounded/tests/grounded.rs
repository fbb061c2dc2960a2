//! Tests that `grounded` accepts answers with exact quotes and rejects invented quotes (L12).

use agent_host_sdk::output_validator::{OutputValidator, Request, Verdict};
use agent_host_sdk::testing;
use agent_host_sdk::types::{Content, Message, Part, Role, ToolResult};
use grounded::Grounded;
use grounded::passages::passages;

const FILE: &str = "The light was first lit in 1841.\nIt burned whale oil until 1873, then “mineral oil”.";

fn message(role: Role, part: Part) -> Message {
    Message { role, parts: vec![part], seen_count: 0 }
}

fn result(text: &str, is_error: bool) -> Message {
    let content = vec![Content::Text(text.to_owned())];
    let result = ToolResult { call_id: "1".to_owned(), name: "files.read".to_owned(), content, is_error };
    message(Role::Tool, Part::ToolResult(result))
}

fn judge(answer: &str, turn: Vec<Message>) -> Verdict {
    let request = Request {
        scope: testing::scope(),
        text: answer.to_owned(),
        structured: None,
        output_schema: None,
        attempt: 1,
        corrections_left: 2,
        turn,
    };
    Grounded::validate(request).expect("a verdict")
}

fn is_accepted(answer: &str) -> bool {
    let asked = message(Role::User, Part::Text("Is it true that \"no keeper ever slept there\"?".to_owned()));
    matches!(judge(answer, vec![asked, result(FILE, false)]), Verdict::Accept)
}

#[test]
fn l12_accepts_quotes_of_tool_results() {
    for answer in [
        "It was lit in 1841.",
        "The file says \"The light was first lit in 1841.\"",
        "The file says “it burned whale oil until 1873”, and no more.",
        "> The light was first lit in 1841.\n> It burned whale oil until 1873",
        "It says \"first lit in 1841 … whale oil until 1873\".",
        "It was \"really\" old, a \"so-called light\".",
        "You asked whether \"no keeper ever slept there\"; nothing is said of that.",
        "Run `echo` so:\n```\necho \"a b c d e f g\"\n```",
        "A lone \" mark means nothing to anybody here.",
    ] {
        assert!(is_accepted(answer), "{answer}");
    }
}

#[test]
fn l12_rejects_invented_quotes() {
    for answer in [
        "The file says \"The light was first lit in 1842.\"",
        "The file says „it burned seal oil until 1873“.",
        "> The light was never lit at all.",
        "It says \"first lit in 1841 … whale oil until 1999\".",
        "It is \"true words of four\" and \"The light was first lit in 1841\".",
    ] {
        assert!(!is_accepted(answer), "{answer}");
    }
}

/// An answer cannot quote the result of a failed call. An answer cannot quote feedback that repeats a rejected passage.
#[test]
fn failed_results_and_feedback_cannot_be_quoted() {
    let answer = "It says \"the light went out in 1900\".";
    let asked = || message(Role::User, Part::Text("When?".to_owned()));
    let feedback = message(Role::User, Part::Text("No tool contains \"the light went out in 1900\".".to_owned()));
    let own = message(Role::Assistant, Part::Text("the light went out in 1900".to_owned()));
    for turn in [vec![asked()], vec![asked(), own, feedback], vec![asked(), result(answer, true)]] {
        let Verdict::Reject(problems) = judge(answer, turn) else { panic!("a made-up quote is accepted") };
        assert!(problems[0].message.contains("\"the light went out in 1900\""), "{problems:?}");
    }
}

#[test]
fn finds_passages() {
    assert_eq!(passages("a \"one two\nthree four\" b"), ["one two three four"]);
    assert_eq!(passages("a \"one two\n\nthree four five\" b"), Vec::<String>::new(), "a quote ends with its paragraph");
    assert_eq!(passages("»eins zwei drei vier« und «un deux trois quatre»").len(), 2);
}
