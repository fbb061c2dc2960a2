//! A small component for the tests, written in the WebAssembly text format. The component has a tool `noop`, a tool
//! `spin` that never ends, and a tool `trap`. The component traps if a tool with a different name is called.

#![allow(dead_code, reason = "each test file uses only a part of this module")]

use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::{ToolError, ToolOutcome};
use agent_plugins::{CallReport, PluginSetup, Ports, Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest};
use std::path::Path;
use std::time::Duration;

/// Builds the test component (`COMPONENT`) as a binary. `interface` is the name of its export, and `memory` is the
/// initial size of its memory in pages.
pub(crate) fn tool_component(interface: &str, memory: u32) -> Vec<u8> {
    parse(COMPONENT, interface, memory)
}

/// Returns the test component with an additional import.
pub(crate) fn tool_component_importing(import: &str) -> Vec<u8> {
    parse(&COMPONENT.replacen("(component", &format!("(component {import}"), 1), "agent-host:plugin/tool@0.1.0", 1)
}

/// Returns the test component with an additional import, which the tool `trap` of the component calls.
pub(crate) fn tool_component_calling(interface: &str) -> Vec<u8> {
    let import = format!(
        r#"(component
           (import "{interface}" (instance $imported (export "anything" (func))))
           (alias export $imported "anything" (func $anything))
           (component $plugin
             (import "anything" (func $anything))
             (core func $anything (canon lower (func $anything)))"#
    );
    let text = COMPONENT
        .replacen("(component\n  (component $plugin", &import, 1)
        .replace("(core module $code", r#"(core module $code (import "host" "anything" (func $anything))"#)
        .replace("(then unreachable)", "(then (call $anything))")
        .replace(
            "(instantiate $code)",
            r#"(instantiate $code (with "host" (instance (export "anything" (func $anything)))))"#,
        )
        .replace("(instantiate $plugin)", r#"(instantiate $plugin (with "anything" (func $anything)))"#);
    parse(&text, "agent-host:plugin/tool@0.1.0", 1)
}

/// Returns the text of the test component, to which a test can add further exports.
pub(crate) fn tool_text(interface: &str, memory: u32) -> String {
    filled(COMPONENT, interface, memory)
}

/// Returns a component with one tool that does nothing and has this name, description and input schema.
pub(crate) fn described(name: &str, description: &str, schema: &str) -> Vec<u8> {
    let definitions = tools_described(&[(name, description)], schema);
    // The memory after the last text is unused, so that one megabyte of arguments fits into it.
    let free = 1024 + (name.len() + description.len() + schema.len()).next_multiple_of(1024) as u32;
    let pages = (free >> 16) + 40;
    let text = COMPONENT
        .replace("(i32.const 8192)", &format!("(i32.const {free})"))
        .replace("INTERFACE", "agent-host:plugin/tool@0.1.0")
        .replace("PAGES", &pages.to_string())
        .replace("DEFINITIONS", &definitions);
    wat::parse_str(text).expect("the component is valid")
}

fn parse(text: &str, interface: &str, memory: u32) -> Vec<u8> {
    wat::parse_str(filled(text, interface, memory)).expect("the component is valid")
}

fn filled(text: &str, interface: &str, memory: u32) -> String {
    text.replace("INTERFACE", interface)
        .replace("PAGES", &memory.to_string())
        .replace("DEFINITIONS", &definitions(&["noop", "spin", "trap"]))
}

/// A sandbox whose cache and plugin store are in this directory.
pub(crate) fn sandbox(directory: &Path) -> Sandbox {
    let options = SandboxOptions {
        cache_directory: Some(directory.join("cache")),
        store_directory: Some(directory.join("store")),
        ..SandboxOptions::default()
    };
    Sandbox::new(options).expect("a sandbox")
}

/// Calls a tool with the JSON arguments `{}` and this time limit.
pub(crate) async fn call(
    sandbox: &Sandbox,
    setup: &PluginSetup,
    name: &str,
    time_limit: Duration,
) -> CallReport<Result<ToolOutcome, ToolError>> {
    let request = ToolCallRequest { name, args: "{}".to_owned(), context: context(time_limit) };
    sandbox.call_tool(setup, request, &Ports::default()).await
}

/// Calls a tool with these arguments.
pub(crate) async fn call_with(
    sandbox: &Sandbox,
    setup: &PluginSetup,
    name: &str,
    arguments: &serde_json::Value,
) -> CallReport<Result<ToolOutcome, ToolError>> {
    let request = ToolCallRequest { name, args: arguments.to_string(), context: context(Duration::from_secs(20)) };
    sandbox.call_tool(setup, request, &Ports::default()).await
}

fn context(time_limit: Duration) -> ToolCallContext {
    let trace = TraceContext { traceparent: String::new(), tracestate: None };
    let (agent, session) = ("test".to_owned(), "test/1".to_owned());
    let scope = Scope { agent, session, delegated_by: None, user: None, turn: 1, trace };
    ToolCallContext { id: CallId("1.1.1".to_owned()), attempt: 1, time_limit, scope }
}

fn definitions(names: &[&str]) -> String {
    let tools: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    tools_described(&tools, r#"{"type":"object"}"#)
}

/// The data segments contain three parts. The address and the length of the list of tools are at address 64. The tool
/// definitions start at address 128, and the texts of the definitions start at address 1024.
fn tools_described(tools: &[(&str, &str)], schema: &str) -> String {
    let mut texts = schema.as_bytes().to_vec();
    let mut store = |text: &str| {
        texts.extend_from_slice(text.as_bytes());
        [1024 + (texts.len() - text.len()) as u32, text.len() as u32]
    };
    let mut records = Vec::new();
    for (name, description) in tools {
        let (name, description) = (store(name), store(description));
        let none = [0, 0, 0];
        let schema = [1024, schema.len() as u32];
        // The fields of a tool definition are: name, title, description, input schema, output schema, traits
        // (idempotent) and priority.
        let words = [&name[..], &none, &description, &schema, &none, &[0b100, 0]].concat();
        records.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    let list = [128_u32, tools.len() as u32].map(u32::to_le_bytes).concat();
    let data = |address: u32, bytes: &[u8]| {
        let bytes: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!("(data (i32.const {address}) \"{bytes}\")")
    };
    [data(64, &list), data(128, &records), data(1024, &texts)].join("\n")
}

const COMPONENT: &str = r#"
(component
  (component $plugin
    (core module $code
      (memory (export "memory") PAGES)
      (global $free (mut i32) (i32.const 8192))
      DEFINITIONS
      (func (export "realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
        (global.set $free (i32.add (local.get $at) (local.get $new)))
        (local.get $at))
      (func (export "definitions") (result i32) (i32.const 64))
      ;; The arguments are in memory, starting with the address of the name. A result of zeros is `done` without content.
      (func (export "call") (param $arguments i32) (result i32)
        (local $first i32)
        (local.set $first (i32.load8_u (i32.load (local.get $arguments))))
        (if (i32.eq (local.get $first) (i32.const 115)) (then (loop $forever (br $forever))))
        (if (i32.ne (local.get $first) (i32.const 110)) (then unreachable))
        (i32.const 0)))
    (core instance $code (instantiate $code))
    (type $trace-type (record (field "traceparent" string) (field "tracestate" (option string))))
    (export $trace "trace-context" (type $trace-type))
    (type $scope-type (record
      (field "agent" string) (field "session" string) (field "delegated-by" (option string))
      (field "user" (option string)) (field "turn" u32) (field "trace" $trace)))
    (export $scope "scope" (type $scope-type))
    (type $traits-type
      (flags "read-only" "destructive" "idempotent" "sequential" "open-world" "needs-approval"))
    (export $traits "traits" (type $traits-type))
    (type $definition-type (record
      (field "name" string) (field "title" (option string)) (field "description" string)
      (field "input-schema" string) (field "output-schema" (option string)) (field "traits" $traits)
      (field "priority" s32)))
    (export $definition "definition" (type $definition-type))
    (type $context-type (record
      (field "id" string) (field "attempt" u32) (field "time-limit" u32) (field "scope" $scope)))
    (export $context "call-context" (type $context-type))
    (type $new-media-type (record
      (field "mime-type" string) (field "data" (list u8)) (field "name" (option string))))
    (export $new-media "new-media" (type $new-media-type))
    (type $content-type (variant
      (case "text" string) (case "json" string) (case "new-media" $new-media) (case "stored-media" string)))
    (export $content "content" (type $content-type))
    (type $done-type (record (field "content" (list $content)) (field "structured" (option string))))
    (export $done "done" (type $done-type))
    (type $request-type (record
      (field "event-type" string) (field "data" string) (field "domain" (option string))
      (field "answer-schema" (option string)) (field "answer-within" (option u32))))
    (export $request "service-request" (type $request-type))
    (type $outcome-type (variant (case "done" $done) (case "pending" $request)))
    (export $outcome "outcome" (type $outcome-type))
    (type $violation-type (record (field "pointer" string) (field "message" string)))
    (export $violation "violation" (type $violation-type))
    (type $unavailable-type (record (field "message" string) (field "retry-after" (option u32))))
    (export $unavailable "unavailable" (type $unavailable-type))
    (type $error-type (variant
      (case "invalid-arguments" (list $violation)) (case "not-found" string) (case "denied" string)
      (case "unavailable" $unavailable) (case "failed" string)))
    (export $error "error" (type $error-type))
    (func (export "definitions") (result (list $definition))
      (canon lift (core func $code "definitions") (memory (core memory $code "memory"))))
    (func (export "call") (param "name" string) (param "args" string) (param "context" $context)
      (result (result $outcome (error $error)))
      (canon lift (core func $code "call") (memory (core memory $code "memory")) (realloc (core func $code "realloc")))))
  (instance $plugin (instantiate $plugin))
  (export "INTERFACE" (instance $plugin)))
"#;
