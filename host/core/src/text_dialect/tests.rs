//! Tests for the calls that models write into their text (L20).

use super::*;
use crate::message::{CallId, Content, Message, Part, Role, ToolCall, ToolResult};
use crate::model::OfferedTool;
use crate::tool::ToolSource;
use proptest::prelude::*;
use serde_json::json;

const COUNT: &str = r#"<tool>{"server_name": "local", "tool_name": "text.count", "arguments": {"path": "a"}}</tool>"#;

fn read_pieces<'p>(pieces: impl IntoIterator<Item = &'p str>) -> (String, Vec<Result<TaggedCall, UnreadableCall>>) {
    let (mut reader, mut deltas) = (TaggedReader::default(), Vec::new());
    for piece in pieces {
        reader.text(piece, &mut deltas);
    }
    let calls = reader.finish(&mut deltas);
    let text = deltas.into_iter().map(|delta| match delta {
        Delta::Text(text) => text,
        other => panic!("{other:?}"),
    });
    (text.collect(), calls)
}

fn called(server: &str, tool: &str, arguments: Value) -> Result<TaggedCall, UnreadableCall> {
    Ok(TaggedCall { server: server.into(), tool: tool.into(), arguments })
}

fn codes(calls: &[Result<TaggedCall, UnreadableCall>]) -> Vec<&'static str> {
    calls.iter().map(|call| call.as_ref().map_or_else(UnreadableCall::code, |_| "call")).collect()
}

/// L20: every path through the diagram "Tool Call Parsing" in the original requirements.
#[test]
fn l20_every_path_of_the_parsing_diagram() {
    // A reply without tool tags contains no calls.
    assert_eq!(read("There are 42 lines."), ("There are 42 lines.".into(), vec![]));
    // Invalid JSON between the tags is a parse error.
    let (text, calls) = read("I count.\n<tool>{\"server_name\": \"local\", }</tool>");
    assert_eq!((text.as_str(), codes(&calls)), ("I count.", vec!["parse_error"]));
    // A call without `server_name` or `tool_name` is reported as an error that names the missing field.
    for (body, missing) in [
        (r#"{"tool_name": "t"}"#, "server_name"),
        (r#"{"server_name": "local", "arguments": {}}"#, "tool_name"),
        (r#"{"server_name": 7, "tool_name": "t"}"#, "server_name"),
    ] {
        let Some(Err(UnreadableCall::MissingField { field, written })) = read(&format!("<tool>{body}</tool>")).1.pop()
        else {
            panic!("{body}")
        };
        assert_eq!((field.as_str(), written.as_str()), (missing, body));
    }
    // Missing arguments become an empty object.
    assert_eq!(read(COUNT), (String::new(), vec![called("local", "text.count", json!({"path": "a"}))]));
    let bare = "<tool>\n{\"server_name\": \"ocr\", \"tool_name\": \"extract\"}\n</tool>";
    assert_eq!(read(bare).1, [called("ocr", "extract", json!({}))]);
}

#[test]
fn l20_text_and_calls_are_separated() {
    let cases = [
        (format!("Let me look.\n\n{COUNT}\n"), "Let me look.", vec!["call"]),
        (format!("One {COUNT} and\n{COUNT}{COUNT} two"), "One and\ntwo", vec!["call", "call", "call"]),
        (format!("  {COUNT}\n done \n"), "done", vec!["call"]),
        ("a < b, <to, <tools> and <tool".to_owned(), "a < b, <to, <tools> and <tool", vec![]),
        ("<<tool>{}</tool>".to_owned(), "<", vec!["missing_field"]),
        ("<tool>read a.txt</tool> then".to_owned(), "then", vec!["parse_error"]),
        ("<tool>[1]</tool>".to_owned(), "", vec!["parse_error"]),
        ("so</tool> what\n".to_owned(), "so</tool> what\n", vec![]),
        // A call without its closing tag may be incomplete, so it is an error.
        ("Now <tool>{\"server_name\": \"local\"".to_owned(), "Now", vec!["parse_error"]),
        (COUNT.strip_suffix("</tool>").unwrap().to_owned(), "", vec!["parse_error"]),
        (" \n".to_owned(), " \n", vec![]),
    ];
    for (reply, text, expected) in cases {
        let (visible, calls) = read(&reply);
        assert_eq!((visible.as_str(), codes(&calls)), (text, expected), "{reply:?}");
    }
}

/// L20: calls inside code stay text and do not run.
#[test]
fn l20_calls_in_code_stay_text() {
    for quoted in [
        format!("So:\n```\n{COUNT}\n```\nDone."),
        format!("So:\n  ~~~~ xml\n~~~\n{COUNT}\n~~~~\n"),
        format!("```xml {COUNT}```"),
        format!("Write `{COUNT}`."),
        format!("```\nnever closed\n{COUNT}"),
    ] {
        assert_eq!(read(&quoted), (quoted.clone(), vec![]), "{quoted}");
        let found = super::quoted_calls(&quoted);
        assert!(found.len() == 1 && found[0].1.code() == "quoted_call", "the quoted call is found: {quoted}");
    }
    for called in [
        format!("```\ncode\n```\n{COUNT}"),
        format!("`code` {COUNT}"),
        format!("```code``` and\n{COUNT}"),
        format!("    ``` is indented\n{COUNT}"),
        format!("``\n{COUNT}"),
    ] {
        assert_eq!(read(&called).1.len(), 1, "{called}");
    }
}

/// L20: a closing tag inside a JSON string is data. An unclosed string does not hide the next call.
#[test]
fn l20_a_closing_tag_in_a_string_does_not_end_the_call() {
    let body = json!({"server_name": "local", "tool_name": "files.write", "arguments": {"text": "\"</tool>\\"}});
    let reply = format!("<tool>{body}</tool>");
    assert_eq!(read(&reply).1, [called("local", "files.write", json!({"text": "\"</tool>\\"}))]);
    let (text, calls) = read(&format!("<tool>{{\"server_name\": \"local}}\n</tool>\nSecond: {COUNT}"));
    assert_eq!((text.as_str(), codes(&calls)), ("Second:", vec!["parse_error", "call"]));
    let (text, calls) = read(&format!("<tool>it's \"wrong</tool>{COUNT}"));
    assert_eq!((text.as_str(), codes(&calls)), ("", vec!["parse_error", "call"]));
}

#[test]
fn l20_the_feedback_names_each_problem() {
    let (_, calls) = read("<tool>{\"server_name\": 1}</tool><tool>{</tool>");
    let unreadable: Vec<_> = calls.into_iter().filter_map(Result::err).collect();
    insta::assert_snapshot!(feedback(&unreadable), @r#"
    A tool call of your reply could not be read, and did not run:
    - missing_field: `server_name` is missing or is not a string. The call was written as `{"server_name": 1}`
    - parse_error: it is not JSON: EOF while parsing an object at line 1 column 1. The call was written as `{`
    Write it again as one line of JSON: <tool>{"server_name": "local", "tool_name": "NAME", "arguments": {}}</tool>
    "#);
}

fn mcp(server: &str) -> ToolSource {
    ToolSource::of_server(server)
}

/// L20: an address names a server, which determines the sources from which the tool with this address may come.
#[test]
fn l20_an_address_covers_the_tools_of_its_server() {
    let service = ToolSource::Service { event_type: "weather".into() };
    let covered = |server: &str| {
        let address = ToolAddress { server: server.into(), tool: "t".into() };
        let agent = ToolSource::Agent { agent: "helper".into() };
        [ToolSource::BuiltIn, agent, mcp("ocr"), service.clone()].map(|source| address.covers(&source))
    };
    assert_eq!(covered("local"), [true, true, false, false]);
    assert_eq!(covered("mcp"), [false, false, true, false]);
    assert_eq!(covered("ocr"), [false, false, true, false]);
    assert_eq!(covered("files"), [false, false, false, false]);
    assert_eq!(covered("service"), [false, false, false, true]);
    let of = |name: &str, source: Option<&ToolSource>| {
        let ToolAddress { server, tool } = ToolAddress::new(name, source);
        format!("{server} {tool}")
    };
    assert_eq!(of("ocr.extract", Some(&mcp("ocr"))), "ocr extract");
    assert_eq!(of("text.count", Some(&ToolSource::BuiltIn)), "local text.count");
    assert_eq!(of("forecast", Some(&service)), "service forecast");
    assert_eq!(of("gone", None), "local gone");
}

/// L20: a call with the server name `mcp` is looked up among the tools of all MCP servers.
#[test]
fn l20_tools_are_found_by_server_and_name() {
    let (service, built_in) = (ToolSource::Service { event_type: "weather".into() }, ToolSource::BuiltIn);
    let (ocr, scan, own) = (mcp("ocr"), mcp("scan"), mcp("mcp"));
    let tools = [
        ("extract", &built_in),
        ("mcp.own", &own),
        ("ocr.extract", &ocr),
        ("ocr.read", &ocr),
        ("ocr.own", &ocr),
        ("scan.read", &scan),
        ("forecast", &service),
    ];
    let find = |server: &str, tool: &str| {
        ToolAddress { server: server.into(), tool: tool.into() }.among(tools.iter().copied())
    };
    for (server, tool, expected) in [
        ("mcp", "extract", "ocr.extract"),
        ("mcp", "ocr.extract", "ocr.extract"),
        ("ocr", "extract", "ocr.extract"),
        ("ocr", "ocr.extract", "ocr.extract"),
        ("scan", "read", "scan.read"),
        ("mcp", "own", "mcp.own"),
        ("local", "extract", "extract"),
        ("service", "forecast", "forecast"),
    ] {
        assert_eq!(find(server, tool), ToolMatch::One(expected), "{server} {tool}");
    }
    assert_eq!(find("mcp", "read"), ToolMatch::Several(vec!["ocr.read", "scan.read"]));
    for (server, tool) in [("mcp", "forecast"), ("local", "read"), ("scan", "extract"), ("service", "extract")] {
        assert_eq!(find(server, tool), ToolMatch::None, "{server} {tool}");
    }
}

/// L20, L22: the turn's message lists the tools. The tools of MCP servers have their own section.
#[test]
fn l22_schemas_are_listed_as_text() {
    let tool = |name: &str| OfferedTool {
        name: "never_shown".into(),
        author_name: name.into(),
        description: "Counts.".into(),
        input_schema: json!({"type": "object"}),
    };
    let (count, extract) = (tool("text.count"), tool("ocr.extract"));
    let (own, ocr) = (ToolSource::BuiltIn, mcp("ocr"));
    let sections = schema_sections([(&count, Some(&own)), (&extract, Some(&ocr))].into_iter());
    insta::assert_snapshot!(crate::prompt::texts(&sections).join("\n\n"), @r##"
    ## tool-schemas

    To call a tool, write this and nothing else on the line, outside of code blocks:
    <tool>{"server_name": "SERVER", "tool_name": "NAME", "arguments": {}}</tool>
    SERVER, NAME and the JSON Schema of the arguments stand below, a tool a line. Several calls in a reply are several such lines. The results come with the next message: wait for them.

    {"server_name":"local","tool_name":"text.count","description":"Counts.","arguments":{"type":"object"}}

    ## mcp-tool-schemas

    {"server_name":"ocr","tool_name":"extract","description":"Counts.","arguments":{"type":"object"}}
    "##);
    assert!(schema_sections([(&extract, Some(&ocr))].into_iter())[0].text.contains("SERVER"));
    assert!(schema_sections(std::iter::empty()).is_empty());
}

/// L20: earlier calls are written in the syntax that the model must use, and the results of these calls become messages
/// with the role `user`.
#[test]
fn l20_the_history_is_written_as_text() {
    let id = |n: u32| CallId(format!("call_1_1_{n}"));
    let call =
        |n: u32| Part::ToolCall(ToolCall { id: id(n), name: "ocr.extract".into(), arguments: json!({"path": n}) });
    let result = |n: u32, is_error: bool| Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(ToolResult {
            call_id: id(n),
            name: "ocr.extract".into(),
            content: vec![Content::Text(format!("text {n}"))],
            is_error,
        })],
        seen_count: 0,
    };
    let asked =
        Message { role: Role::Assistant, parts: vec![Part::Text("Both.".into()), call(1), call(2)], seen_count: 1 };
    let messages = vec![Message::text(Role::User, "go"), asked, result(1, false), result(2, true), result(3, false)];
    let source = mcp("ocr");
    let shown = calls_as_text(messages, &|name| ToolAddress::new(name, Some(&source)));
    let roles: Vec<_> = shown.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User]);
    assert_eq!(
        read(&shown[1].plain_text()).1,
        [called("ocr", "extract", json!({"path": 1})), called("ocr", "extract", json!({"path": 2}))]
    );
    insta::assert_snapshot!(shown[2].plain_text(), @r"
    Result of `extract` (ocr), call_id call_1_1_1:
    text 1
    Error of `extract` (ocr), call_id call_1_1_2:
    text 2
    Result of `extract` (ocr), call_id call_1_1_3:
    text 3
    ");
}

proptest! {
    /// L20: the parsed calls and text do not depend on how the reply is cut into pieces. If the reply contains no code,
    /// the parsed text contains no opening tag.
    #[test]
    fn l20_a_reply_in_pieces_is_read_like_the_whole_reply(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "<tool>", "</tool>", "<", "</", "tool>", " ", "\n", "a", "ä", "<to", "ol>", "`", "```", "~~~", "\"", "\\",
                "{", "}", r#"{"server_name": "local", "tool_name": "t"}"#, COUNT,
            ]),
            0..14,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..14),
    ) {
        let whole = words.concat();
        let mut positions: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        positions.retain(|position| whole.is_char_boundary(*position));
        positions.extend([0, whole.len()]);
        positions.sort_unstable();
        let cut = positions.windows(2).map(|ends| &whole[ends[0]..ends[1]]);
        let read = read(&whole);
        prop_assert_eq!(read_pieces(cut), read.clone());
        let is_code = whole.contains(['`', '~']);
        prop_assert!(is_code || !read.0.contains(OPENING), "{:?}", read);
    }
}
