//! Tests of the question that `summarize` sends to the model, and of the result.

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use summarize::Summarize;

fn call(host: &mut Host, arguments: Value) -> Result<Outcome, ToolError> {
    host.run(|| Summarize::tools().call("summarize.text", arguments))
}

/// P5: the model gets the text and the maximum length of the summary.
#[test]
fn p5_returns_the_answer_as_summary() {
    let mut host = Host::new().answer("  A ship sank.\n").answer("In May.");
    let outcome = call(&mut host, json!({"text": "Long ago a ship sank.", "words": 10}));
    assert_eq!(outcome, Ok(Outcome::Done(Done::text("A ship sank."))));
    call(&mut host, json!({"text": "It was in May.", "about": "the month"})).expect("a summary");
    let [first, second] = host.questions() else { panic!("two questions") };
    assert_eq!(first.messages()[0].1, "Long ago a ship sank.");
    assert!(first.instructions().is_some_and(|text| text.contains("At most 10 words") && text.contains("main points")));
    assert!(second.instructions().is_some_and(|text| text.contains("about this: the month")));
}

#[test]
fn reports_texts_that_cannot_be_summarized() {
    let error = |arguments| call(&mut Host::new().answer(" "), arguments).expect_err("refused").message();
    assert!(error(json!({"text": " \n"})).contains("is empty"));
    assert!(error(json!({"text": "x".repeat(300_000)})).contains("at most"));
    assert!(error(json!({"text": "A text."})).contains("empty answer"));
    let denied = call(&mut Host::new(), json!({"text": "A text."})).expect_err("denied");
    assert!(matches!(denied, ToolError::Denied(_)), "{denied:?}");
}
