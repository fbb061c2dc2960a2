//! Tests of the whole offline router. The requests offer built-in tools of the host and tools of this
//! project's plugins.

use super::*;
use crate::provider::{NoMedia, Purpose};
use crate::request_check::tests::{calls, request, result, tool};
use agent_core::message::{Content, Message};
use tokio::sync::mpsc;

/// Returns the tools that the tests offer to the router. Most of these tools belong to the host or to this
/// project's plugins.
fn tools() -> Vec<OfferedTool> {
    let text = json!({"type": "string"});
    let count = json!({"type": ["integer", "null"], "minimum": 1});
    let with_optional = |names: &[&str], optional: Value| {
        let mut properties = serde_json::Map::new();
        properties.extend(names.iter().map(|name| ((*name).to_owned(), text.clone())));
        properties.extend(optional.as_object().cloned().unwrap_or_default());
        json!({"type": "object", "properties": properties, "required": names})
    };
    let required_only = |names: &[&str]| with_optional(names, json!({}));
    let cases = [
        (
            "list_directory",
            "Lists a directory of a granted file tree: name, kind and size of each entry, by name.",
            required_only(&["path"]),
        ),
        (
            "read_file",
            "Reads lines of a text file of a granted file tree, with their numbers.",
            with_optional(&["path"], json!({"from_line": count, "lines": count})),
        ),
        (
            "read_result",
            "Reads on in the result of an earlier call of this session that was cut.",
            with_optional(&["call_id"], json!({"offset": count})),
        ),
        (
            "memory_search",
            "Searches what is remembered of this user from earlier sessions, the nearest first.",
            with_optional(&["query"], json!({"limit": count})),
        ),
        (
            "text.count_file",
            "Counts the lines, words, characters and bytes of a text file, given its path.",
            required_only(&["path"]),
        ),
        (
            "text.count",
            "Counts the lines, words, characters and bytes of a text that is given literally.",
            required_only(&["text"]),
        ),
        (
            "text.extract_file",
            "Finds all matches of a regular expression in a text file: line, column, matched text and groups by name \
             or number. No look-around, no back-references; \\w and \\d are ASCII.",
            with_optional(&["path", "pattern"], json!({"ignore_case": {"type": "boolean"}, "limit": count})),
        ),
        (
            "text.diff_files",
            "Compares two text files line by line and returns a unified diff.",
            required_only(&["old_path", "new_path"]),
        ),
        ("files.move", "Moves or renames a file.", required_only(&["from", "to"])),
        (
            "table.describe",
            "Describes a CSV, TSV or JSON table: rows, columns, inferred types, empty and distinct values, ranges, \
             examples, and rows that cannot be read. Use it before the other table tools.",
            required_only(&["path"]),
        ),
        (
            "calc.evaluate",
            "Calculates an arithmetic expression exactly, with integers, decimals and fractions of any size. Operators: \
             + - * / ^. round goes half away from zero. Functions: sqrt(x), round(x, digits).",
            with_optional(&["expression"], json!({"digits": count})),
        ),
        ("clock.now", "The time of day.", json!({"type": "object"})),
    ];
    cases.map(|(name, description, schema)| tool(name, description, schema)).into()
}

async fn ask(request: &ModelRequest) -> (Reply, Vec<Delta>) {
    let (sender, mut receiver) = mpsc::channel(1000);
    let context = ReplyContext {
        session: "s1",
        purpose: Purpose::Turn,
        call: 0,
        attempt: 1,
        media: &NoMedia,
        progress: &crate::CallProgress::default(),
    };
    let reply = OfflineRouter::new().reply(request, context, &sender).await.unwrap().reply;
    drop(sender);
    let mut deltas = Vec::new();
    while let Some(delta) = receiver.recv().await {
        deltas.push(delta);
    }
    (reply, deltas)
}

/// Returns the tool calls with which the router replies to the prompt, or the text of the reply if it has no
/// tool calls.
async fn answer_to(prompt: &str) -> String {
    let (reply, deltas) = ask(&request(vec![Message::text(Role::User, prompt)], tools())).await;
    let streamed = deltas.iter().map(|delta| match delta {
        Delta::Text(text) => text.as_str(),
        other => panic!("unexpected {other:?}"),
    });
    assert_eq!(streamed.collect::<String>(), reply.text, "the streamed text is the text of the reply");
    let calls: Vec<_> = reply.calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
    assert_eq!(calls.is_empty(), reply.stop == StopReason::Stop);
    if calls.is_empty() {
        assert!(reply.text.contains("not a language model"), "the answer describes the router: {}", reply.text);
        return reply.text;
    }
    calls.join("; ")
}

/// M4: the router calls a tool if the prompt clearly matches that tool.
#[tokio::test]
async fn m4_a_clear_prompt_causes_a_tool_call() {
    let cases = [
        ("How many words are in README.md?", r#"text_count_file {"path":"README.md"}"#),
        ("Count the lines of `src/main.rs`, please.", r#"text_count_file {"path":"src/main.rs"}"#),
        ("count the words in \"one two three\"", r#"text_count {"text":"one two three"}"#),
        ("move a.txt to b.txt", r#"files_move {"from":"a.txt","to":"b.txt"}"#),
        ("What is (1 + 2) * 3?", r#"calc_evaluate {"expression":"(1 + 2) * 3"}"#),
        ("Find the matches of \"TODO\" in notes.txt", r#"text_extract_file {"path":"notes.txt","pattern":"TODO"}"#),
        ("List the directory plugins/", r#"list_directory {"path":"plugins/"}"#),
        ("compare old_path=a.txt with new_path=b.txt", r#"text_diff_files {"old_path":"a.txt","new_path":"b.txt"}"#),
        ("read lines of a.txt, lines=10", r#"read_file {"path":"a.txt","lines":10}"#),
        ("compute 2^10", r#"calc_evaluate {"expression":"2^10"}"#),
        ("clock now", "clock_now {}"),
    ];
    for (prompt, expected) in cases {
        assert_eq!(answer_to(prompt).await, expected, "{prompt}");
    }
}

/// M4: the router calls a tool only if the prompt clearly matches this tool.
#[tokio::test]
async fn m4_an_unclear_prompt_runs_no_tool() {
    let prompts = [
        "Count the words",
        "How many words are in README.md and LICENSE.md?",
        "Delete README.md",
        "Do not count the words in README.md",
        "delete all lines and words of README.md",
        "half of 2+2",
        "move a.txt b.txt",
        "read the first 10 lines of README.md",
        "what time is it now?",
        "Hello!",
        "compare a.txt and b.txt",
        "round 2.5",
        "what is 5! + 2?",
        "read the result",
        "How many words are in https://example.com/README.md?",
        "Please write a poem about the words in README.md",
        "",
        "sqrt(2)+1",
        "README.md",
    ];
    for prompt in prompts {
        assert!(answer_to(prompt).await.contains("router"), "{prompt}");
    }
}

#[tokio::test]
async fn the_answer_to_an_unclear_prompt_lists_the_closest_tools() {
    insta::assert_snapshot!(answer_to("How many words are in README.md and LICENSE.md?").await, @r#"
    It is not clear which tool you mean, so none was run. The closest tools, each with a line that you can type:

    text.count {"text": "…"}
      Counts the lines, words, characters and bytes of a text that is given literally.

    text.count_file {"path": "…"}
      Counts the lines, words, characters and bytes of a text file, given its path.

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
    insta::assert_snapshot!(answer_to("read the first 10 lines of README.md").await, @r#"
    It is not clear which tool you mean, so none was run. The closest tools, each with a line that you can type:

    read_file {"path": "README.md"}
      Reads lines of a text file of a granted file tree, with their numbers.

    memory_search {"query": "…"}
      Searches what is remembered of this user from earlier sessions, the nearest first.

    read_result {"call_id": "…"}
      Reads on in the result of an earlier call of this session that was cut.

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
    insta::assert_snapshot!(answer_to("Guten Morgen").await, @r#"
    No tool name or description shares a word with this prompt.

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
    insta::assert_snapshot!(answer_to("text.counts {\"path\": \"a\"}").await, @r#"
    There is no tool named `text.counts`. Nothing was run. The closest tools, each with a line that you can type:

    text.count {"text": "…"}
      Counts the lines, words, characters and bytes of a text that is given literally.

    text.count_file {"path": "…"}
      Counts the lines, words, characters and bytes of a text file, given its path.

    text.diff_files {"old_path": "…", "new_path": "…"}
      Compares two text files line by line and returns a unified diff.

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
}

#[tokio::test]
async fn call_lines_are_executed() {
    let prompt = "Do this:\ntext.count_file {\"path\": \"a.md\"}\nclock_now {}";
    assert_eq!(answer_to(prompt).await, "text_count_file {\"path\": \"a.md\"}; clock_now {}");
    insta::assert_snapshot!(answer_to("text.count_file {\"path\": a.md}").await, @r#"
    The call to text.count_file in line 1 is invalid: expected value at line 1, column 26. Nothing was run.

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
}

/// A call line, which consists of a tool name and JSON arguments, is executed only in the current input. A call line in
/// an earlier message, or in a section that the host inserts before the input, is not executed.
#[tokio::test]
async fn only_the_current_input_is_executed() {
    let call_line = r#"list_directory {"path": "a"}"#;
    let memory = format!("## retrieved-memory\n\n{call_line}");
    let cases: [(&[&str], &[&str]); 4] = [
        (&[&memory, "clock.now {}"], &["clock_now"]),
        (&[&memory, "clock.now {}", "(an image was left out)"], &["clock_now"]),
        (&["## Tasks\n\nclock.now {}", call_line], &["clock_now", "list_directory"]),
        (&[&memory], &["list_directory"]),
    ];
    for (texts, expected) in cases {
        let parts = texts.iter().map(|text| Part::Text((*text).to_owned())).collect();
        let message = Message { role: Role::User, parts, seen_count: 0 };
        let earlier = Message::text(Role::User, "clock.now {}\nclock.now {}");
        let (reply, _) = ask(&request(vec![earlier, message], tools())).await;
        assert_eq!(reply.calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), expected, "{texts:?}");
    }
}

/// Builds a request whose messages end with a tool call and the result of this call.
fn request_with_results() -> ModelRequest {
    let messages = vec![
        Message::text(Role::User, "How many words are in README.md?"),
        calls(&[("c1", "text.count_file", json!({"path": "README.md"}))]),
        result("c1", "text.count_file", vec![Content::Json(json!({"lines": 10, "words": 99}))], false),
    ];
    request(messages, tools())
}

#[tokio::test]
async fn results_become_the_answer() {
    let mut request = request_with_results();
    insta::assert_snapshot!(ask(&request).await.0.text, @r#"
    text.count_file {"path": "README.md"}
      lines: 10
      words: 99

    This is the offline router, not a language model: it only runs tools. To use a language model, pass `--model PROVIDER/MODEL` or set `model = "PROVIDER/MODEL"` in agent.toml.
    "#);
    request.tools.clear();
    assert!(ask(&request).await.0.text.contains("words: 99"));
    request.messages.push(Message::text(Role::Assistant, "99"));
    request.messages.push(Message::text(Role::User, "And now?"));
    assert!(ask(&request).await.0.text.contains("No tools are available"));
}

#[tokio::test]
async fn output_schemas_are_reported_as_unsupported() {
    let mut request = request_with_results();
    request.output_schema = Some(json!({"type": "object"}));
    let text = ask(&request).await.0.text;
    assert!(text.starts_with("The agent requires output that follows a JSON Schema") && text.contains("words: 99"));
    request.messages.truncate(1);
    let reply = ask(&request).await.0;
    assert!(reply.calls.is_empty() && reply.text.contains("cannot produce such output"));
}

#[tokio::test]
async fn answers_respect_the_token_limit() {
    let mut request = request_with_results();
    request.messages[2] = result("c1", "text.count_file", vec![Content::Text("x ".repeat(900))], false);
    request.max_tokens = 150;
    let text = ask(&request).await.0.text;
    assert!(text.chars().count() <= 640 && text.contains("more characters"), "{}", text.len());
}

/// The same request produces the same reply.
#[tokio::test]
async fn replies_are_deterministic() {
    for prompt in ["count words in a.md", "files", "clock now"] {
        let request = request(vec![Message::text(Role::User, prompt)], tools());
        assert_eq!(ask(&request).await, ask(&request).await);
    }
}
