//! Tests each configurable limit with two values. If a limit stops a call, the error names the limit, the plugin and
//! the plugin's digest.

use crate::components::{attacks, bytes_below};
use crate::guests::{MEMORY_AND_ALLOCATOR, ONE, component, guest, numbers};
use crate::scene::{Scene, run_exclusively, with_grants};
use crate::server::Server;
use crate::support::{run_turn, text_reply};
use agent_core::limits::LimitRow;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::{ToolError, ToolOutcome};
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};
use agent_plugins::{
    Access, CallFailure, CallLimits, CallReport, CompilerCommand, Grants, HostLimits, LoadError, PluginSetup, Ports,
    Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest, TreeGrant,
};
use agent_runtime::AgentConfig;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Report = CallReport<Result<ToolOutcome, ToolError>>;
/// The name of a plugin, the name of one of its tools, and the arguments of the call.
type Tool = (&'static str, &'static str, Value);

/// A call that reaches a limit. `expected` contains two pairs of a value and a text: if the limit has the value, the
/// report of the call contains the text. If the limit has its default value, the report contains neither of the two
/// texts.
struct Case {
    key: &'static str,
    tool: Tool,
    expected: [(u64, &'static str); 2],
}

fn case(key: &'static str, tool: Tool, expected: [(u64, &'static str); 2]) -> Case {
    Case { key, tool, expected }
}

/// The time limit of the calls in these tests. Some of the calls would never end without a time limit.
const STOP_AFTER: Duration = Duration::from_secs(3);

fn set_limit<L>(rows: &[LimitRow<L>], limits: &mut L, (key, value): (&str, u64)) {
    let row = rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("there is no limit {key}"));
    assert!((row.least..=row.most).contains(&value), "{row:?}: {value}");
    (row.set)(limits, value);
}

fn with_limit(key: &str, value: u64) -> CallLimits {
    let mut limits = CallLimits::default();
    set_limit(&CALL_LIMITS, &mut limits, (key, value));
    limits
}

/// Returns the calls that reach limits of memory, output, files or time.
fn cases() -> Vec<Case> {
    let spin = || ("probe", "probe.spin", json!({}));
    let bytes = |bytes: usize| ("probe", "probe.bytes", json!({"bytes": bytes}));
    let log = |lines: u32, length: u32| ("probe", "probe.log", json!({"lines": lines, "length": length}));
    let intruder = |name: &'static str| ("intruder", name, json!({}));
    let deeds = |deeds: &str| ("intruder", "intruder.deeds", json!({"deeds": deeds}));
    let guest = |plugin: &'static str| (plugin, plugin, json!({}));
    let headers = ("intruder", "intruder.flood", json!({"what": "headers"}));
    let long = ("probe", "probe.fail", json!({"kind": "failed", "message": "x".repeat(3_000)}));
    vec![
        case("tool_wall_ms", spin(), [(100, "wall time of 100ms"), (200, "wall time of 200ms")]),
        case("cpu_ms", spin(), [(100, "processor time of 100ms"), (200, "processor time of 200ms")]),
        case("memory_mib", ("bomb", "growing", json!({})), [(8, "memory of 8 MiB"), (96, "memory of 96 MiB")]),
        case("fuel", spin(), [(1_000_000, " 1000000 units of fuel"), (2_000_000, " 2000000 units of fuel")]),
        case("core_instances", guest("instances"), [(2, " 2 core instances"), (3, " 3 core instances")]),
        case("tables", guest("tables"), [(2, " 2 tables"), (3, " 3 tables")]),
        case("memories", guest("memories"), [(2, " 2 memories"), (3, " 3 memories")]),
        case("table_elements", guest("elements"), [(50, "size of 50 elements"), (900, "size of 900 elements")]),
        case("lifted_kib", bytes(256 << 10), [(64, " 64 KiB passed to"), (128, " 128 KiB passed to")]),
        case("handles", headers, [(50, " 50 resource handles"), (2_000, " 2000 resource handles")]),
        case("random_kib", intruder("intruder.random"), [(1, " 1 KiB of random"), (128, " 128 KiB of random")]),
        case("header_kib", intruder("intruder.fields"), [(2, " 2 KiB of headers"), (64, " 64 KiB of headers")]),
        case("result_kib", bytes(9 << 10), [(4, " 4 KiB of text"), (8, " 8 KiB of text")]),
        // Each line is written three times: to the log, to standard output, and to standard error.
        case("log_lines", log(10, 10), [(5, "25 lines are lost"), (20, "10 lines are lost")]),
        case("log_line_kib", log(1, 3_000), [(1, "lines are cut"), (2, "lines are cut")]),
        case("log_kib", log(10, 400), [(1, "lines are lost"), (4, "lines are lost")]),
        case(
            "tree_mib",
            deeds("fill tree/full 3072; remove tree/full; fail"),
            [(1, "1 MiB more in a directory"), (2, "2 MiB more in a directory")],
        ),
        case(
            "tree_entries",
            deeds("folders tree 3; rmdir tree/folder-0; rmdir tree/folder-1; rmdir tree/folder-2; fail"),
            [(1, " 1 more files"), (2, " 2 more files")],
        ),
        case("error_kib", long, [(1, "cut, 3000 bytes in all"), (2, "cut, 3000 bytes in all")]),
    ]
}

/// Returns calls that reach the limits on HTTP requests.
fn requests([ok, silent, endless, reading_only]: &[Server; 4]) -> Vec<Case> {
    let get_times = |times: u32| ("intruder", "intruder.get", json!({"url": ok.url("/"), "times": times}));
    let five_requests = || get_times(5);
    let fetch = |server: &Server| ("web", "web.fetch", json!({"url": server.url("/")}));
    let upload = ("intruder", "intruder.upload", json!({"url": reading_only.url("/")}));
    vec![
        case("requests", five_requests(), [(2, "limit: 2 requests in a call"), (4, "limit: 4 requests in a call")]),
        case("requests_per_minute", five_requests(), [(2, "limit: 2 requests per"), (4, "limit: 4 requests per")]),
        case("request_body_kib", upload, [(8, "BodySize(Some(8192))"), (16, "BodySize(Some(16384))")]),
        case("response_body_kib", fetch(endless), [(8, " 8 KiB for a response"), (16, " 16 KiB for a response")]),
        case("recorded_kib", get_times(30), [(0, "no answer is recorded"), (1, "some answers are not recorded")]),
        case("request_ms", fetch(silent), [(100, " 100ms for a request"), (200, " 200ms for a request")]),
    ]
}

/// Components that use more of a resource than a limit allows.
fn guests() -> Vec<(&'static str, Vec<u8>)> {
    let module = |name: &str, rest: &str| {
        guest(
            &format!(r#"{MEMORY_AND_ALLOCATOR} (func (export "{name}") (result i32) (i32.const 1)) {rest}"#),
            &[(name, "(result u32)")],
        )
    };
    let growing = r#"(func (export "growing") (result i32)
        (loop $more
          (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
          (br $more))
        (i32.const 0))"#;
    let instances = component(&format!(
        r#"(core module $small (func)) (core module $code {MEMORY_AND_ALLOCATOR} {ONE})
           (core instance (instantiate $small)) (core instance (instantiate $small)) (core instance (instantiate $small))
           (core instance $code (instantiate $code))
           (func (export "instances") (result u32) (canon lift (core func $code "one")))"#
    ));
    vec![
        ("bomb", numbers(growing, &["growing"])),
        ("instances", instances),
        ("tables", module("tables", &"(table 1 funcref)".repeat(4))),
        ("memories", module("memories", &"(memory 1)".repeat(3))),
        ("elements", module("elements", "(table 1000 funcref)")),
    ]
}

/// Makes one call on behalf of a new agent, because some limits apply to all calls of an agent.
async fn call(sandbox: &Sandbox, setup: &PluginSetup, name: &str, arguments: &Value) -> Report {
    static AGENTS: AtomicUsize = AtomicUsize::new(0);
    let agent = format!("agent-{}", AGENTS.fetch_add(1, Ordering::Relaxed));
    let trace = TraceContext { traceparent: String::new(), tracestate: None };
    let session = format!("{agent}/1");
    let scope = Scope { agent, session, delegated_by: None, user: None, turn: 1, trace };
    let context = ToolCallContext { id: CallId("call_1_1_1".to_owned()), attempt: 1, time_limit: STOP_AFTER, scope };
    sandbox.call_tool(setup, ToolCallRequest { name, args: arguments.to_string(), context }, &Ports::default()).await
}

/// Describes a report as text: its result, and whether its log and its recorded answers are complete.
fn report_text(report: &Report) -> String {
    let answer = match &report.result {
        Ok(Ok(ToolOutcome::Done(done))) => format!("{:?} {:?}", done.content, done.structured),
        other => {
            format!("{other:?} {}", other.as_ref().err().map(ToString::to_string).unwrap_or_default())
        }
    };
    let log = match report.lost_log {
        lost if lost.lines > 0 => format!("{} lines are lost", lost.lines),
        lost if lost.bytes > 0 => "lines are cut".to_owned(),
        _ => "the log is complete".to_owned(),
    };
    let answers = match &report.answers {
        None => "no answer is recorded",
        Some(answers) if answers.left_out > 0 => "some answers are not recorded",
        Some(_) => "all answers are recorded",
    };
    format!("{answer}; {log}; {answers}")
}

/// P8: Every limit on plugin calls that is in the table of limits applies to the plugin for which it is set.
#[test]
fn each_limit_of_a_call_takes_effect() {
    run_exclusively(async {
        let scene = Scene::with_components(&["intruder", "web"], &guests()).await;
        let servers = [Server::ok(), Server::silent(), Server::endless(), Server::reading_only()];
        let tree = TreeGrant {
            host: crate::files::tree(&scene, "filled"),
            guest: "tree".to_owned(),
            access: Access::ReadWrite,
        };
        let grants = Grants {
            http: servers.iter().flat_map(|server| server.grants().http).collect(),
            trees: vec![tree],
            ..Grants::default()
        };
        let setup = |plugin: &str, limits: CallLimits| {
            PluginSetup::new(scene.generation.plugin(plugin).unwrap().clone(), grants.clone(), limits)
        };
        let mut tried: BTreeSet<_> = ["builder_wall_ms", "validator_wall_ms"].into();
        for Case { key, tool: (plugin, name, arguments), expected } in cases().into_iter().chain(requests(&servers)) {
            tried.insert(key);
            let default_text = report_text(
                &call(&scene.test_host.sandbox, &setup(plugin, CallLimits::default()), name, &arguments).await,
            );
            for (value, expected_text) in expected {
                let report =
                    call(&scene.test_host.sandbox, &setup(plugin, with_limit(key, value)), name, &arguments).await;
                let text = report_text(&report);
                assert!(text.contains(expected_text), "{key} = {value}: {text}");
                assert!(!default_text.contains(expected_text), "with the default of {key}: {default_text}");
                if let Err(failure) = &report.result {
                    assert!(matches!(failure, CallFailure::Limit { .. }), "{key} = {value}: {text}");
                    assert!(text.contains(&scene.identity(plugin)), "{key} = {value}: {text}");
                }
            }
        }
        assert_eq!(tried, CALL_LIMITS.iter().map(|row| row.key).collect(), "each key has its case");
    });
}

/// P8: Limits apply not only to tools but also to validators and context builders. The limits of the whole agent apply
/// to plugins that the agent's configuration does not name.
#[test]
fn limits_apply_to_builders_and_validators() {
    run_exclusively(async {
        let scene = Scene::new(&["stateful-builder", "bad-validator"]).await;
        for named in [true, false] {
            let config = |key: &str, plugin: &str| {
                let limits = with_limit(key, 100);
                match named {
                    true => with_grants(plugin, Grants::default(), limits),
                    false => AgentConfig { limits, ..AgentConfig::new("attacker") },
                }
            };
            let mut built = config("builder_wall_ms", "stateful-builder");
            built.context_builder = Some("stateful-builder".to_owned());
            let mut judged = config("validator_wall_ms", "bad-validator");
            judged.validators = vec!["bad-validator".to_owned()];
            for (config, plugin) in [(built, "stateful-builder"), (judged, "bad-validator")] {
                let mut session = scene.session(config, &[text_reply("spin")]).await;
                let result = format!("{:?}", run_turn(&mut session, "spin").await);
                let is_named = result.contains(&scene.identity(plugin)) && result.contains("wall time of 100ms");
                assert!(is_named, "{plugin}: {result}");
                session.close().await.unwrap();
            }
        }
    });
}

fn sandbox(keys: &[(&str, u64)]) -> Result<Sandbox, String> {
    let mut limits = HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() };
    keys.iter().for_each(|key| set_limit(&HOST_LIMITS, &mut limits, *key));
    sandbox_in(None, limits)
}

fn sandbox_in(cache_directory: Option<PathBuf>, limits: HostLimits) -> Result<Sandbox, String> {
    let program = env!("CARGO_BIN_EXE_agent-host").into();
    let compiler = CompilerCommand { program, arguments: vec!["compile-component".into()] };
    let options = SandboxOptions { limits, compiler: Some(compiler), cache_directory, ..SandboxOptions::default() };
    Sandbox::new(options).map_err(|error| error.to_string())
}

/// Makes these calls to a component at the same time, and returns their results.
async fn call_concurrently(sandbox: &Sandbox, limits: CallLimits, names: &[&str]) -> Vec<String> {
    let code = r#"
        (func (export "spin") (result i32) (loop $for_ever (br $for_ever)) (i32.const 0))
        (func $down (param i32) (result i32) (i32.add (call $down (i32.add (local.get 0) (i32.const 1))) (local.get 0)))
        (func (export "recurse") (result i32) (call $down (i32.const 0)))
        (func (export "work") (result i32)
          (local $left i32)
          (local.set $left (i32.const 100000000))
          (loop $on (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (i32.const 7))"#;
    let bytes = numbers(code, &["spin", "recurse", "work"]);
    let plugin = sandbox.load_bytes("limited", bytes).await.unwrap_or_else(|error| panic!("{error}"));
    let setup = PluginSetup::new(plugin, Grants::default(), limits);
    let mut calls = tokio::task::JoinSet::new();
    for name in names {
        let (sandbox, setup, name) = (sandbox.clone(), setup.clone(), (*name).to_owned());
        calls.spawn(async move { report_text(&call(&sandbox, &setup, &name, &json!({})).await) });
    }
    calls.join_all().await
}

/// P8: Each limit in the table of limits for the whole host takes effect.
#[test]
fn each_limit_of_the_host_takes_effect() {
    run_exclusively(async {
        let mut tried = BTreeSet::new();
        let mut with = |keys: &[(&'static str, u64)]| {
            tried.extend(keys.iter().map(|(key, _)| *key));
            sandbox(keys)
        };
        let with: &mut SandboxFactory = &mut with;
        let short = CallLimits { tool_time: Duration::from_millis(500), ..CallLimits::default() };
        let refused_calls = |expected: &[String]| expected.iter().filter(|text| text.contains("not called")).count();
        let large = CallLimits { memory: 256 << 20, ..short };
        for (keys, limits, expected_refusals) in [
            (vec![("concurrent_calls", 1), ("queue", 1)], short, 1),
            (vec![("concurrent_calls", 2), ("queue", 1)], short, 0),
            (vec![("concurrent_calls", 1), ("queue", 2)], short, 0),
            // Tools may use three quarters of the guest memory. Three quarters of 512 MiB are enough for one call with
            // 256 MiB, but not for two.
            (vec![("guest_memory_mib", 512), ("queue", 1)], large, 1),
            (vec![("guest_memory_mib", 1_024), ("queue", 1)], large, 0),
        ] {
            let expected = call_concurrently(&with(&keys).unwrap(), limits, &["spin"; 3]).await;
            assert_eq!(refused_calls(&expected), expected_refusals, "{keys:?}: {expected:?}");
        }
        for stack in [128, 256] {
            let expected = call_concurrently(&with(&[("wasm_stack_kib", stack)]).unwrap(), short, &["recurse"]).await;
            assert!(expected[0].contains(&format!("stack of {stack} KiB")), "{expected:?}");
        }
        let keys = [("wasm_stack_kib", 2_048), ("async_stack_kib", 1_024)];
        let refused = with(&keys).expect_err("the WebAssembly stack is a part of the async stack");
        assert!(refused.contains("stack"), "{refused}");
        with(&[("wasm_stack_kib", 2_048), ("async_stack_kib", 4_096)])
            .expect("the WebAssembly stack fits into the async stack");
        // Limits are checked only at ticks, so no call is stopped before the first tick.
        let short_cpu_time = CallLimits { cpu_time: Some(Duration::from_millis(1)), ..CallLimits::default() };
        let expected = call_concurrently(&with(&[("epoch_tick_ms", 1)]).unwrap(), short_cpu_time, &["work"]).await;
        assert!(expected[0].contains("processor time of 1ms"), "{expected:?}");
        let limits = HostLimits { epoch_tick: Duration::from_secs(3_600), ..HostLimits::default() };
        let slow_ticks = Sandbox::new(SandboxOptions { limits, ..SandboxOptions::default() }).unwrap();
        let expected = call_concurrently(&slow_ticks, short_cpu_time, &["work"]).await;
        assert!(expected[0].contains('7'), "{expected:?}");
        let bytes = vec![0; (1 << 20) + 1];
        let refused = with(&[("component_mib", 1)]).unwrap().load_bytes("large", bytes.clone()).await;
        assert!(matches!(refused, Err(LoadError::TooLarge { most: 1_048_576, .. })), "{refused:?}");
        let refused = with(&[("component_mib", 2)]).unwrap().load_bytes("large", bytes).await;
        assert!(matches!(refused, Err(LoadError::NotAComponent(_))), "{refused:?}");
        let bomb = attacks::nested_blocks(1_000_000);
        let refused = with(&[("compile_ms", 1_000)]).unwrap().load_bytes("bomb", bomb).await;
        let refused = refused.expect_err("the compilation exceeds the limit").to_string();
        let is_named = refused.contains("more than 1.") && refused.contains("of processor time");
        assert!(is_named && refused.contains("compile_ms"), "{refused}");
        check_component_limits(with).await;
        check_cache_limit(with).await;
        assert_eq!(tried, HOST_LIMITS.iter().map(|row| row.key).collect(), "each key has its case");
    });
}

/// A closure that creates a sandbox. The closure's argument lists the limits to set, each with its key and its value.
type SandboxFactory<'k> = dyn FnMut(&[(&'static str, u64)]) -> Result<Sandbox, String> + 'k;

/// Tests two values of each limit that applies to components. With the lower value, a component must be refused with an
/// error that names the key. With the higher value, no error may name the key.
async fn check_component_limits(with: &mut SandboxFactory<'_>) {
    let component = numbers("(func (export \"one\") (result i32) (i32.const 1))", &["one"]);
    let image = attacks::with_memory_image(&component, 20 << 20, b'x');
    let cases = [
        ("component_nesting", [10, 50], attacks::nested_types(20, 0x41)),
        ("component_types", [1_000, 10_000], attacks::list_chain(2_000)),
        ("component_interfaces", [100, 1_000], attacks::imports(500)),
        // A component of 1 MiB that compiles to 60 MiB of code.
        ("compiled_ratio", [8, 128], [attacks::sparse_images(60, (1 << 20) - 65_536), padding(1 << 20)].concat()),
        ("compiled_mib", [16, 64], image),
    ];
    for (key, [refusing, sufficient], bytes) in cases {
        let mut load_error = async |value| {
            let loaded = with(&[(key, value)]).unwrap().load_bytes("limited", bytes.clone()).await;
            loaded.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let refused = load_error(refusing).await;
        assert!(refused.contains(key), "{key} = {refusing}: {refused}");
        let other_error = load_error(sufficient).await;
        assert!(!other_error.contains(key), "{key} = {sufficient}: {other_error}");
    }
}

/// Returns a custom section whose content has this many bytes.
fn padding(bytes: usize) -> Vec<u8> {
    let size = u32::try_from(bytes + 2).expect("the size fits into 32 bits");
    let size = [size as u8 | 0x80, (size >> 7) as u8 | 0x80, (size >> 14) as u8 | 0x80, (size >> 21) as u8 & 0x7f];
    [&[0], size.as_slice(), &[1, b'x'], &vec![0; bytes]].concat()
}

/// Checks `cache_mib` with three components of 24 MiB of code each.
async fn check_cache_limit(with: &mut SandboxFactory<'_>) {
    let component = numbers("(func (export \"one\") (result i32) (i32.const 1))", &["one"]);
    for (cache_mib, all_stay) in [(64, false), (128, true)] {
        let folder = tempfile::tempdir().expect("a directory");
        with(&[("cache_mib", cache_mib)]).expect("the value is allowed");
        let mut limits = HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() };
        set_limit(&HOST_LIMITS, &mut limits, ("cache_mib", cache_mib));
        let cached = sandbox_in(Some(folder.path().to_owned()), limits).expect("the value is allowed");
        for filled_with in *b"abc" {
            let bytes = attacks::with_memory_image(&component, 24 << 20, filled_with);
            drop(cached.load_bytes("cached", bytes).await.expect("the component is valid"));
        }
        let stored_mib = bytes_below(folder.path()) >> 20;
        assert!(stored_mib <= cache_mib, "{stored_mib} MiB of {cache_mib}");
        assert_eq!(stored_mib >= 72, all_stay, "{stored_mib} MiB of {cache_mib}");
    }
}
