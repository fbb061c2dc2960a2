//! Tests of components of any WIT world (P3): the exports that become tools, the exports that are skipped with a
//! reason, and the handling of hostile components. The components are written in the WebAssembly text format.

mod common;

use agent_core::tool::{ToolDone, ToolError, ToolOutcome};
use agent_plugins::{
    CallFailure, CallLimits, CallReport, CodeSource, Grants, Limit, LoadError, LoadEvent, LoadedPlugin, PluginSetup,
    Sandbox,
};
use common::{call_with, sandbox, tool_text};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Core code with the memory and the function `realloc` that a component needs to pass lists and strings. Lists and
/// strings start at address 65536. The function `list` returns a list with the requested number of items.
const CODE: &str = r#"
  (core module $code
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 65536))
    (func (export "realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get $new)))
      (block $room
        (br_if $room (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
        (drop (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get $new) (i32.const 16))))))
      (local.get $at))
    (func (export "last") (param $at i32) (result i32) (i32.load8_u (i32.add (local.get $at) (i32.const 199))))
    (func (export "list") (param $items i32) (result i32)
      (drop (memory.grow (i32.shr_u (local.get $items) (i32.const 15))))
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (local.get $items))
      (i32.const 64))
    (func (export "length") (param $at i32) (param $items i32) (result i32) (local.get $items))
    (func (export "one") (result i32) (i32.const 1))
    (func (export "drop") (param i32))
    (func (export "trap") (result i32) unreachable))
  (core instance $code (instantiate $code))
  (alias core export $code "memory" (core memory $memory))
  (alias core export $code "realloc" (core func $realloc))
"#;

fn component(definitions: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {CODE} {definitions})")).unwrap_or_else(|error| panic!("{error}"))
}

fn lifted(name: &str, kind: &str, core: &str) -> String {
    format!(
        r#"(func (export "{name}") {kind}
             (canon lift (core func $code "{core}") (memory (core memory $memory)) (realloc (core func $realloc))))"#
    )
}

async fn load(sandbox: &Sandbox, name: &str, bytes: Vec<u8>) -> Arc<LoadedPlugin> {
    sandbox.load_bytes(name, bytes).await.unwrap_or_else(|error| panic!("{error}"))
}

fn tools(plugin: &LoadedPlugin) -> Vec<&str> {
    plugin.tools().iter().map(|tool| tool.name.as_str()).collect()
}

async fn run(
    sandbox: &Sandbox,
    plugin: &Arc<LoadedPlugin>,
    tool: &str,
    arguments: &Value,
) -> CallReport<Result<ToolOutcome, ToolError>> {
    let setup = PluginSetup::new(Arc::clone(plugin), Grants::default(), CallLimits::default());
    call_with(sandbox, &setup, tool, arguments).await
}

fn structured(report: &CallReport<Result<ToolOutcome, ToolError>>) -> &Value {
    match &report.result {
        Ok(Ok(ToolOutcome::Done(ToolDone { structured: Some(value), .. }))) => value,
        _ => panic!("{report:?}"),
    }
}

/// P3: the last of 200 parameters is passed correctly. Row 9: if the guest traps, only this call fails, and the next
/// call succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn p3_row_9_functions_accept_many_parameters_and_a_trap_fails_only_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let parameters: String = (0..200).fold(String::new(), |mut text, number| {
        let _ = write!(text, "(param \"p{number}\" u8) ");
        text
    });
    let many = lifted("many", &format!("{parameters} (result u32)"), "last");
    let text = format!("{many} {}", lifted("trap", "(result u32)", "trap"));
    let plugin = load(&sandbox, "many", component(&text)).await;
    assert_eq!(
        (tools(&plugin), plugin.kinds(), plugin.kind_labels()),
        (vec!["many", "trap"], &[][..], vec!["functions"])
    );
    assert!(plugin.tools()[0].traits.read_only, "a component without imports cannot change anything");
    let mut arguments: Value = (0..200).map(|number| (format!("p{number}"), json!(number))).collect();
    assert_eq!(structured(&run(&sandbox, &plugin, "many", &arguments).await), &json!(199));
    let trapped = run(&sandbox, &plugin, "trap", &json!({})).await;
    assert!(matches!(trapped.result, Err(CallFailure::Trap { .. })), "{trapped:?}");
    arguments["p199"] = json!(7);
    let report = run(&sandbox, &plugin, "many", &arguments).await;
    assert_eq!(structured(&report), &json!(7));
    assert!(report.cost.memory_bytes > 0);
    arguments["p199"] = json!(256);
    let refused = run(&sandbox, &plugin, "many", &arguments).await;
    let Ok(Err(ToolError::InvalidArguments { violations })) = refused.result else { panic!("{refused:?}") };
    assert_eq!(violations[0].pointer, "/p199");
}

/// P3: functions with types that are too large for a model are skipped, and the reason is reported. All other functions
/// are offered.
#[tokio::test(flavor = "multi_thread")]
async fn p3_functions_with_too_large_types_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let mut text = String::from("(type $l0 (list u32)) (type $w0 (tuple u32 u32))");
    for level in 1..40 {
        let _ = write!(text, "(type $l{level} (list $l{}))", level - 1);
    }
    for level in 1..14 {
        let _ = write!(text, "(type $w{level} (tuple $w{0} $w{0}))", level - 1);
    }
    let cases: String = (0..10_000).fold(String::new(), |mut cases, number| {
        let _ = write!(cases, "(case \"c{number}\") ");
        cases
    });
    let _ = write!(text, "(type $cases-type (variant {cases})) (export $cases \"cases\" (type $cases-type))");
    text += &lifted("deep", "(param \"a\" $l39) (result u32)", "length");
    text += &lifted("wide", "(param \"a\" (list $w13)) (result u32)", "length");
    text += &lifted("cases-of", "(param \"a\" (list $cases)) (result u32)", "length");
    text += &lifted("fine", "(param \"a\" (list u32)) (result u32)", "length");
    let plugin = load(&sandbox, "bounded", component(&text)).await;
    assert_eq!(tools(&plugin), ["fine"]);
    let skipped: Vec<_> = plugin.skipped_exports().iter().map(ToString::to_string).collect();
    let expected = [("deep", "more than 24 levels"), ("wide", "more than 1024 parts"), ("cases-of", "1024 parts")];
    for ((name, reason), message) in expected.iter().zip(&skipped) {
        assert!(message.contains(name) && message.contains(reason) && message.contains("`a`"), "{message}");
    }
    assert_eq!(skipped.len(), expected.len());
}

/// Row 6: a list of 200 MB, and arguments above their limit, are refused before the host allocates memory for them.
/// Lists within the limit are passed to the guest.
#[tokio::test(flavor = "multi_thread")]
async fn row_6_giant_lists_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let text = lifted("list", "(param \"items\" u32) (result (list u8))", "list")
        + &lifted("numbers", "(param \"items\" u32) (result (list u16))", "list")
        + &lifted("length", "(param \"a\" (list u8)) (result u32)", "length");
    let plugin = load(&sandbox, "giant", component(&text)).await;
    let report = run(&sandbox, &plugin, "list", &json!({"items": 200_000_000})).await;
    assert!(report.result.is_err(), "more than the guest's memory: {report:?}");
    let report = run(&sandbox, &plugin, "list", &json!({"items": 20_000_000})).await;
    let Err(CallFailure::Limit { limit: Limit::LiftedBytes(_), .. }) = report.result else { panic!("{report:?}") };
    let report = run(&sandbox, &plugin, "numbers", &json!({"items": 600_000})).await;
    let Err(CallFailure::Limit { limit, .. }) = report.result else { panic!("{report:?}") };
    assert!(matches!(limit, Limit::ResultText(_)), "{limit:?}");
    let report = run(&sandbox, &plugin, "list", &json!({"items": 600_000})).await;
    assert_eq!(structured(&report).as_str().map(str::len), Some(800_000), "600,000 bytes in base64");
    let many = vec![0_u8; 400_000];
    assert_eq!(structured(&run(&sandbox, &plugin, "length", &json!({"a": many})).await), &json!(400_000));
    let report = run(&sandbox, &plugin, "length", &json!({"a": vec![0_u8; 600_000]})).await;
    let Ok(Err(ToolError::InvalidArguments { violations })) = report.result else { panic!("{report:?}") };
    assert!(violations[0].message.contains("at most 1048576"), "{violations:?}");
}

const HANDLES: &str = r#"
  (type $thing-type (resource (rep i32)))
  (export $thing "thing" (type $thing-type))
  (func (export "give") (result (own $thing)) (canon lift (core func $code "one")))
  (func (export "take") (param "it" (borrow $thing)) (canon lift (core func $code "drop")))
  (type $later (future u32))
  (type $many (stream u8))
"#;

/// P3: functions that take or return handles, and asynchronous functions, are not offered, and the reason is reported.
#[tokio::test(flavor = "multi_thread")]
async fn p3_functions_that_cannot_be_offered_are_skipped_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let text = HANDLES.to_owned()
        + &lifted("later", "(result $later)", "one")
        + &lifted("many", "(result $many)", "one")
        + &lifted("slow", "async (result u32)", "one")
        + &lifted("one", "(result u32)", "one");
    let plugin = load(&sandbox, "mixed", component(&text)).await;
    assert_eq!(tools(&plugin), ["one"]);
    assert_eq!(structured(&run(&sandbox, &plugin, "one", &json!({})).await), &json!(1));
    let skipped: Vec<_> = plugin.skipped_exports().iter().map(ToString::to_string).collect();
    let expected = [
        ("give", "its result is a handle"),
        ("take", "its parameter `it` is a handle"),
        ("later", "a future or a stream"),
        ("many", "a future or a stream"),
        ("slow", "asynchronous"),
    ];
    assert_eq!(skipped.len(), expected.len(), "{skipped:?}");
    for ((name, reason), message) in expected.iter().zip(&skipped) {
        assert!(message.contains(&format!("`{name}`")) && message.contains(reason), "{message}");
    }
    let nothing = sandbox.load_bytes("nothing", component(HANDLES)).await.expect_err("there is nothing to call");
    assert!(matches!(nothing, LoadError::NothingOffered { .. }));
    let message = nothing.to_string();
    assert!(
        message.contains("none of the four plugin kinds") && message.contains("`give` is not offered"),
        "{message}"
    );
    assert!(!plugin.has(agent_plugins::Kind::Tool) && run(&sandbox, &plugin, "two", &json!({})).await.result.is_err());
}

/// P3, P9: tool names that would be equal are made longer, the tools of the contract keep their names, and no name
/// changes when the compiled code comes from the cache.
#[tokio::test(flavor = "multi_thread")]
async fn p3_p9_tool_names_are_unique_and_stable() {
    let directory = tempfile::tempdir().unwrap();
    let one = |name: &str| {
        format!(
            r#"(func $f (result u32) (canon lift (core func $code "one")))
               (instance $i (export "noop" (func $f)) (export "{name}" (func $f)))"#
        )
    };
    let text = format!(
        r#"(component $a {CODE} {} (export "words:text/ops@0.1.0" (instance $i)))
           (instance $a (instantiate $a))
           (export "words:text/ops@0.1.0" (instance $a "words:text/ops@0.1.0"))
           (component $b {CODE} {} (export "maths:calc/ops@0.1.0" (instance $i)))
           (instance $b (instantiate $b))
           (export "maths:calc/ops@0.1.0" (instance $b "maths:calc/ops@0.1.0"))
           (func $g (result u32) (canon lift (core func $code "one")))
           (export "noop" (func $g))"#,
        one("upper"),
        one("add"),
    );
    let own = tool_text("agent-host:plugin/tool@0.1.0", 1);
    let both = wat::parse_str(own.replacen("(component", &format!("(component {CODE} {text}"), 1)).unwrap();
    let mut loaded = Vec::new();
    for _ in 0..2 {
        let sandbox = sandbox(directory.path());
        let code = Mutex::new(None);
        let progress = |event| {
            if let LoadEvent::Loaded { code: from, .. } = event {
                *code.lock().unwrap() = Some(from);
            }
        };
        let plugin = sandbox.load_bytes_with("both", both.clone(), &progress).await.unwrap();
        let report = run(&sandbox, &plugin, "calc.ops.noop", &json!({})).await;
        assert_eq!(structured(&report), &json!(1));
        assert_eq!(plugin.kind_labels(), ["tool", "functions"]);
        let names: Vec<_> = plugin.tools().iter().map(|tool| tool.name.clone()).collect();
        loaded.push((names, code.into_inner().unwrap()));
    }
    let expected =
        ["noop", "spin", "trap", "text.ops.noop", "ops.upper", "calc.ops.noop", "ops.add", "noop-2"].map(str::to_owned);
    assert_eq!(loaded[0], (expected.to_vec(), Some(CodeSource::Compiled)));
    assert_eq!(loaded[1], (expected.to_vec(), Some(CodeSource::Cache)));
}

/// P5: imports of every patch version of WASI 0.2 are accepted, and an unknown import is refused with an error that
/// names it.
#[tokio::test(flavor = "multi_thread")]
async fn p5_every_patch_version_of_wasi_can_be_linked() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    for patch in ["0.2.0", "0.2.1", "0.2.6", "0.2.12", "0.2.99"] {
        let imports = format!(
            r#"(import "wasi:clocks/monotonic-clock@{patch}" (instance (export "now" (func (result u64)))))
               (import "wasi:random/random@{patch}" (instance (export "get-random-u64" (func (result u64)))))
               (import "wasi:cli/environment@{patch}"
                 (instance (export "get-arguments" (func (result (list string))))))"#
        );
        let bytes = wat::parse_str(format!("(component {imports} {CODE} {})", lifted("one", "(result u32)", "one")));
        let plugin = load(&sandbox, "wasi", bytes.unwrap()).await;
        assert_eq!(structured(&run(&sandbox, &plugin, "one", &json!({})).await), &json!(1), "{patch}");
    }
    let import = r#"(import "acme:thing/api@1.0.0" (instance (export "go" (func))))"#;
    let bytes = wat::parse_str(format!("(component {import} {CODE} {})", lifted("one", "(result u32)", "one")));
    let error = sandbox.load_bytes("unknown", bytes.unwrap()).await.expect_err("unknown");
    assert!(error.to_string().contains("`acme:thing/api@1.0.0`"), "{error}");
}
