//! Tests of the replies that `strict-json` accepts, repairs and rejects (L12, P1).

use agent_host_sdk::output_validator::{Output, OutputValidator, Problem, Request, Verdict};
use agent_host_sdk::testing;
use strict_json::{Schema, StrictJson, judge};

fn accepted(reply: &str) -> String {
    match judge(reply, Schema::Present) {
        Verdict::Accept => reply.to_owned(),
        Verdict::AcceptAs(Output::Json(json)) => json,
        other => panic!("{reply:?} is not accepted: {other:?}"),
    }
}

fn rejected(reply: &str) -> Problem {
    match judge(reply, Schema::Absent) {
        Verdict::Reject(problems) => problems.into_iter().next().expect("a rejection has a problem"),
        other => panic!("{reply:?} is not rejected: {other:?}"),
    }
}

#[test]
fn l12_accepts_strict_json_unchanged() {
    for reply in [r#"{"a": [1, 2.50, null]}"#, "[]", "42", r#""text""#, "true", r#"{"a":"it's, ] fine ```"}"#] {
        assert!(matches!(judge(reply, Schema::Present), Verdict::Accept), "{reply}");
        let as_json = matches!(judge(reply, Schema::Absent), Verdict::AcceptAs(Output::Json(json)) if json == reply);
        assert!(as_json, "without a schema the answer becomes JSON: {reply}");
    }
}

#[test]
fn l12_repairs_text_with_one_meaning() {
    for (reply, json) in [
        ("\u{feff} {\"a\": 1}\n", r#"{"a": 1}"#),
        ("```json\n{\"a\": 1}\n```", r#"{"a": 1}"#),
        ("Here it is:\n\n```\n[1, 2]\n```\nAnything else?", "[1, 2]"),
        ("~~~JSON\r\n{\"a\": 1}\r\n~~~", r#"{"a": 1}"#),
        ("````json\n{\"a\": \"```\"}\n````", r#"{"a": "```"}"#),
        ("```json\n{\"a\": 1}", r#"{"a": 1}"#),
        ("```json\n7\n```", "7"),
        ("Run it:\n```sh\nls [a]\n```\nResult:\n```json\n{\"a\": 1}\n```", r#"{"a": 1}"#),
        ("Sure! The result: {\"a\": {\"b\": \"}\"}}", r#"{"a": {"b": "}"}}"#),
        ("{\"a\": 1}\n\nLet me know [if needed].", r#"{"a": 1}"#),
        ("As in [1], [see below]:\n[\"x\"]", r#"["x"]"#),
        ("{\"a\": [1, 2,], \"b\": {\"c\": 3 , } ,\n}", "{\"a\": [1, 2], \"b\": {\"c\": 3  } \n}"),
        ("{'a': 'b', 'c': ['d', 'e f']}", r#"{"a": "b", "c": ["d", "e f"]}"#),
        ("{\"a\": \"two\nlines\tand a tab\"}", r#"{"a": "two\nlines\tand a tab"}"#),
        ("{\"a\": \"x,]\",}", r#"{"a": "x,]"}"#),
        ("[12345678901234567890.10,]", "[12345678901234567890.10]"),
    ] {
        assert_eq!(accepted(reply), json, "{reply:?}");
        serde_json::from_str::<serde_json::Value>(json).expect("a repair is JSON");
    }
}

#[test]
fn l12_rejects_text_with_several_meanings() {
    for reply in [
        "{'a': 'it's'}",
        "{'a': \"b\" 'c'}",
        "{'a': 'say \"hi\"'}",
        "{a: 1}",
        "[1,,2]",
        "[,]",
        "{\"a\": 1,, }",
        "{\"a\": True}",
        "{\"a\": 1 \"b\": 2}",
        "{\"a\": NaN}",
        "{\"a\": 1} {\"b\": 2}",
        "{\"a\": 1e999}",
        r#"{"a": "\ud800"}"#,
        "{\"a\": [1, 2",
        "{\"a\": \"cut o",
        "You could answer {\"a\": 1} but I won't.",
        "See [1].",
    ] {
        rejected(reply);
    }
}

#[test]
fn rejects_several_values() {
    for reply in ["```json\n{\"a\": 1}\n```\nor\n```json\n{\"a\": 2}\n```", "One:\n{\"a\": 1}\nTwo:\n{\"a\": 2}"] {
        let problem = rejected(reply);
        assert!(
            problem.message.starts_with("The answer contains more than one JSON value (at lines 2, "),
            "{problem:?}"
        );
    }
}

#[test]
fn rejects_prose() {
    for (reply, beginning) in [
        ("The total is 5.", "The answer is prose, not JSON."),
        ("", "The answer is empty."),
        (" \n", "The answer is empty."),
        ("I can't do {that}.", "The answer is prose, not JSON."),
    ] {
        let problem = rejected(reply);
        assert_eq!(problem.pointer, "");
        assert!(problem.message.starts_with(beginning), "{}", problem.message);
        assert!(problem.message.contains("Answer with one JSON value and nothing else"), "{}", problem.message);
        assert!(!problem.message.contains("schema"), "{}", problem.message);
    }
    let Verdict::Reject(problems) = judge("The total is 5.", Schema::Present) else { panic!("prose is rejected") };
    assert!(problems[0].message.ends_with("The value must satisfy the output schema."));
}

#[test]
fn p1_each_problem_states_its_position_and_error() {
    for (reply, pointer, parts) in [
        (
            "{\n  \"rows\": [\n    {\"price\": 1},\n    {\"price\": x}\n  ]\n}",
            "/rows/1/price",
            vec!["Line 4, column 15", "▸x}"],
        ),
        ("{\"a/b\": {\"c~d\": tru}}", "/a~1b/c~0d", vec!["Line 1, column ", "near `"]),
        ("Here:\n```json\n{\"ä\": [1, 2\n```", "/ä/1", vec!["Line 3", "cut off"]),
        ("{\"a\": 1, b: 2}", "", vec!["Line 1, column 10", "key must be a string"]),
    ] {
        let problem = rejected(reply);
        assert_eq!(problem.pointer, pointer, "{reply}: {}", problem.message);
        for part in parts {
            assert!(problem.message.contains(part), "{reply}: {}", problem.message);
        }
    }
}

#[test]
fn rejects_duplicate_keys() {
    let Verdict::Reject(problems) = judge(r#"{"a": {"b": 1, "b": 2}, "c": [{"d": 1, "d": 1}]}"#, Schema::Absent) else {
        panic!("duplicate keys are rejected")
    };
    let pointers: Vec<&str> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(pointers, ["/a/b", "/c/0/d"]);
}

#[test]
fn checks_deep_and_long_replies_in_linear_time() {
    rejected(&"[".repeat(200_000));
    rejected(&"{\"a\":".repeat(100_000));
    rejected(&"see [x] and {y} ".repeat(50_000));
    accepted(&format!("[{}1]", "1,".repeat(200_000)));
}

#[test]
fn validate_handles_requests_of_the_host() {
    let request = |text: &str, schema: Option<&str>| Request {
        scope: testing::scope(),
        text: text.to_owned(),
        structured: serde_json::from_str::<serde_json::Value>(text).ok().map(|_| text.to_owned()),
        output_schema: schema.map(str::to_owned),
        attempt: 1,
        corrections_left: 2,
        turn: Vec::new(),
    };
    let verdict = |text, schema| StrictJson::validate(request(text, schema)).expect("a verdict");
    assert!(matches!(verdict("{}", Some("{}")), Verdict::Accept));
    assert!(matches!(verdict("```\n{}\n```", None), Verdict::AcceptAs(Output::Json(json)) if json == "{}"));
    assert!(matches!(verdict("no", Some("{}")), Verdict::Reject(_)));
}
