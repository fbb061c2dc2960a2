//! Tests of the registry: duplicate names, schemas, and errors for missing tools.

use super::*;
use crate::tools::reserved::RESERVED_FIELD;
use agent_core::text_dialect::TaggedCall;
use serde_json::json;

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        title: None,
        description: format!("does {name}"),
        input_schema: json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}),
        output_schema: Some(json!({"type": "object", "required": ["lines"]})),
        traits: Default::default(),
        priority: 0,
    }
}

fn plugin(name: &str) -> ToolSource {
    ToolSource::Plugin { plugin: name.to_owned(), digest: Digest::from_sha256([7; 32]) }
}

fn call(name: &str, arguments: &str) -> RequestedCall {
    RequestedCall { provider_id: None, name: name.to_owned(), arguments: arguments.to_owned() }
}

fn registry() -> Registry {
    let (message, advice) = ("there is no tree".to_owned(), "add `read = [\".\"]`".to_owned());
    let withheld = Availability::Withheld { message, advice };
    Registry::new([
        (tool("text.count"), plugin("text"), Availability::Offered),
        (tool("read_file"), ToolSource::BuiltIn, withheld),
    ])
    .unwrap()
}

/// P10: a new registry reuses a tool's compiled schemas only if the schemas are unchanged.
#[test]
fn p10_schemas_are_compiled_once() {
    let of_type = |kind: &str| ToolDefinition {
        input_schema: json!({"type": "object", "properties": {"path": {"type": kind}}}),
        ..tool("count")
    };
    let source = |digest: u8| ToolSource::Plugin { plugin: "text".into(), digest: Digest::from_sha256([digest; 32]) };
    let first = Registry::new([(of_type("string"), source(1), Availability::Offered)]).unwrap();
    let after = |kind: &str| {
        Registry::build(Some(&first), [(Cow::Owned(of_type(kind)), source(2), Availability::Offered)]).unwrap()
    };
    let (same, other) = (after("string"), after("integer"));
    let schemas = |registry: &Registry| registry.get("count").unwrap().schemas.clone();
    assert!(Arc::ptr_eq(&schemas(&first), &schemas(&same)));
    assert!(!Arc::ptr_eq(&schemas(&first), &schemas(&other)));
    assert_eq!(same.get("count").unwrap().source, source(2));
    assert!(Arc::ptr_eq(&first.offer, &same.offer));
    assert_ne!(first.offered(), other.offered());
    assert!(other.get("count").unwrap().check_arguments(&json!({"path": "x"})).is_err());
}

/// P10, L15: a new registry shares the offered tools with the earlier registry, even if a tool has a field that the
/// host fills in. If a tool is withheld or removed, the new registry has its own list of offered tools.
#[test]
fn p10_offered_tools_are_shared_only_if_they_are_the_same() {
    let reserved = || ToolDefinition {
        input_schema: json!({"type": "object", "properties": {RESERVED_FIELD: {"type": "string"}}}),
        ..tool("pay")
    };
    let source = |digest: u8| ToolSource::Plugin { plugin: "desk".into(), digest: Digest::from_sha256([digest; 32]) };
    let withheld = Availability::Withheld { message: String::new(), advice: String::new() };
    let first = Registry::new([
        (reserved(), source(1), Availability::Offered),
        (tool("count"), source(1), Availability::Offered),
    ]);
    let first = first.unwrap();
    let after = |tools: Vec<(ToolDefinition, Availability)>| {
        let tools = tools.into_iter().map(|(tool, availability)| (Cow::Owned(tool), source(2), availability));
        Registry::build(Some(&first), tools).unwrap()
    };
    let same = after(vec![(tool("count"), Availability::Offered), (reserved(), Availability::Offered)]);
    assert!(Arc::ptr_eq(&first.offer, &same.offer));
    assert_eq!(same.get("pay").unwrap().reserved, Reserved::Subject);
    let fewer = [vec![(tool("count"), Availability::Offered), (reserved(), withheld)]];
    for fewer in fewer.into_iter().chain([vec![(tool("count"), Availability::Offered)]]) {
        let fewer = after(fewer);
        let offered: Vec<_> = fewer.offered().iter().map(|tool| &*tool.author_name).collect();
        assert_eq!(offered, ["count"]);
        assert!(fewer.tokens() < first.tokens());
    }
}

#[test]
fn l7_the_error_for_a_duplicate_name_names_both_sources() {
    let tools = [("text", "text.count"), ("words", "text.count")];
    let tools = tools.map(|(source, name)| (tool(name), plugin(source), Availability::Offered));
    let message = Registry::new(tools).unwrap_err().to_string();
    assert!(message.contains("text@0707") && message.contains("words@0707"), "{message}");
}

/// I5: a call to a tool of an unreachable server is not reported as a call to an unknown tool.
#[test]
fn i5_the_error_of_a_call_to_an_unreachable_server_contains_the_reason() {
    let registry = registry().with_absent_servers([("desk".to_owned(), "it ended".to_owned())]);
    for name in ["desk.echo", "desk_echo"] {
        let call = registry.resolve(&call(name, "{}"));
        assert_eq!(call.source, Some(ToolSource::of_server("desk")));
        let Disposition::Refused(ToolError::Unavailable { message, .. }) = call.disposition else {
            panic!("{:?}", call.disposition)
        };
        assert!(message.contains("MCP server desk") && message.contains("it ended"), "{message}");
    }
    for name in ["desktop.echo", "desk", "text.cuont"] {
        assert!(matches!(registry.resolve(&call(name, "{}")).disposition, Disposition::NotFound { .. }), "{name}");
    }
}

/// L20: when a model writes a call as text, it can call a tool of an MCP server or of a service by the tool's address.
/// The error for an unknown tool lists the existing tools.
#[test]
fn l20_calls_in_text_are_looked_up_by_address() {
    let mcp = |server: &str| ToolSource::of_server(server);
    let service = ToolSource::Service { event_type: "com.example.pay".to_owned() };
    let tools = [("ocr.extract", mcp("ocr")), ("ocr.read", mcp("ocr")), ("scan.read", mcp("scan")), ("pay", service)];
    let tools = tools.map(|(name, source)| (tool(name), source, Availability::Offered));
    let registry = Registry::new(tools).unwrap().with_absent_servers([("desk".to_owned(), "it ended".to_owned())]);
    let resolve = |server: &str, tool: &str| {
        let arguments = json!({"path": "a"});
        registry.resolve_tagged(&TaggedCall { server: server.to_owned(), tool: tool.to_owned(), arguments })
    };
    for (server, tool, name) in
        [("mcp", "extract", "ocr.extract"), ("scan", "read", "scan.read"), ("service", "pay", "pay")]
    {
        let call = resolve(server, tool);
        assert_eq!((call.name.as_str(), &call.arguments), (name, &json!({"path": "a"})));
        assert_eq!(call.source.as_ref(), registry.source_of(name));
        assert!(matches!(call.disposition, Disposition::Ready { .. }), "{:?}", call.disposition);
    }
    for (server, tool, expected) in [
        ("mcp", "read", "call it as `ocr.read` or `scan.read`"),
        ("service", "extract", "`service` has no tool `extract`; there are ocr.extract"),
    ] {
        let Disposition::NotFound { message } = resolve(server, tool).disposition else { panic!("{tool} was found") };
        assert!(message.contains(expected), "{message}");
    }
    // I5: the server `desk` could not be reached, so its tools are unavailable.
    assert!(matches!(resolve("desk", "echo").disposition, Disposition::Refused(ToolError::Unavailable { .. })));
}

#[test]
fn l7_l14_calls_are_looked_up_by_either_name() {
    for name in ["text_count", "text.count"] {
        let resolved = registry().resolve(&call(name, "{\"path\": \"a\"}"));
        assert_eq!(resolved.name, "text.count");
        assert!(matches!(resolved.disposition, Disposition::Ready { .. }));
    }
    let missing = registry().resolve(&call("text_cuont", "{}"));
    assert!(
        matches!(missing.disposition, Disposition::NotFound { message } if message.ends_with("there are text.count"))
    );
}

#[test]
fn l8_calls_with_invalid_arguments_are_refused() {
    for arguments in ["{}", "{\"path\": 1}", "{\"path\": ", "[]"] {
        let resolved = registry().resolve(&call("text_count", arguments));
        let Disposition::Refused(ToolError::InvalidArguments { violations }) = resolved.disposition else {
            panic!("{arguments} was accepted")
        };
        assert!(!violations.is_empty());
    }
}

/// L15: the model neither sees nor sets the field that the host fills in.
#[test]
fn l15_the_reserved_field_is_hidden_ignored_and_filled_in() {
    let mut pay = tool("pay");
    pay.input_schema = json!({"type": "object", "required": ["path", "parentSubject$$"], "additionalProperties": false,
        "properties": {"path": {"type": "string"}, "parentSubject$$": {"type": "string"}}});
    let source = ToolSource::Service { event_type: "pay".to_owned() };
    let registry = Registry::new([(pay, source, Availability::Offered)]).unwrap();
    assert!(!registry.offered()[0].input_schema.to_string().contains("parentSubject"));
    for arguments in [r#"{"path": "a"}"#, r#"{"path": "a", "parentSubject$$": "mine"}"#] {
        let resolved = registry.resolve(&call("pay", arguments));
        assert!(matches!(resolved.disposition, Disposition::Ready { .. }), "{arguments}");
        assert_eq!(resolved.arguments, json!({"path": "a"}));
        let outgoing = registry.get("pay").unwrap().outgoing(&resolved.arguments, "agent/1");
        assert_eq!(*outgoing, json!({"path": "a", "parentSubject$$": "agent/1"}));
    }
}

#[test]
fn p6_a_withheld_tool_is_not_offered_and_its_denial_names_the_missing_grant() {
    let registry = registry();
    assert_eq!(registry.offered().len(), 1);
    let resolved = registry.resolve(&call("read_file", "{\"path\": \"a\"}"));
    let Disposition::Withheld { message, denial } = resolved.disposition else { panic!("{resolved:?}") };
    assert_eq!(message, "there is no tree");
    let (plugin, thing) = ("the host".to_owned(), "`read_file`".to_owned());
    assert_eq!(denial, Denial { plugin, thing, grant: "add `read = [\".\"]`".to_owned() });
}

/// L25: the search index of a registry is built once and returns the same results as a new index.
#[test]
fn l25_the_search_index_of_the_tools_is_built_once() {
    let registry = registry();
    let (first, again) = (registry.search_index(), registry.search_index());
    assert!(std::ptr::eq(first, again), "every turn and step uses the same search index");
    let new = Index::new(registry.offered().iter().map(|tool| (&tool.author_name, &tool.description)));
    for query in ["count the text", "does", "fly"] {
        assert_eq!(first.nearest(query, 9), new.nearest(query, 9), "{query}");
    }
    assert_eq!(first.len(), registry.offered().len());
}

/// L17, row 19: an approval covers a tool's complete definition, so a change anywhere in the definition changes
/// the digest.
#[test]
fn l17_a_changed_definition_has_another_digest() {
    let server = ToolSource::of_server("web");
    let digest = |definition: ToolDefinition, source: &ToolSource| digest_of_tool(&definition, source);
    let one = digest(tool("pay"), &server);
    assert_eq!(one, digest(tool("pay"), &server));
    let mut described = tool("pay");
    described.description.push('!');
    let mut typed = tool("pay");
    typed.input_schema["properties"]["path"]["type"] = json!("integer");
    let mut harmless = tool("pay");
    harmless.traits.read_only = true;
    for changed in [described, typed, harmless] {
        assert_ne!(digest(changed, &server), one);
    }
    assert_ne!(digest(tool("pay"), &ToolSource::of_server("wed")), one);
    let component = Digest::from_sha256([7; 32]);
    assert_eq!(digest(tool("pay"), &plugin("bank")), component, "a plugin's tool has the digest of the component");
}

#[test]
fn p2_a_structured_result_must_satisfy_the_output_schema() {
    let registry = registry();
    let tool = registry.get("text.count").unwrap();
    assert!(tool.check_structured(Some(&json!({"lines": 3}))).is_ok());
    assert!(tool.check_structured(Some(&json!({}))).is_err());
    assert!(tool.check_structured(None).is_err());
}
