//! Tests of components that were built for other hosts or by other toolchains (P3, P12): the exports that become tools,
//! the exports that are skipped, and the advice in the messages.

mod common;

use agent_core::tool::{ToolDone, ToolOutcome};
use agent_plugins::{CallLimits, Grants, LoadError, LoadedPlugin, NotAComponent, PluginSetup, Sandbox};
use common::{call_with, sandbox};
use serde_json::{Value, json};
use std::sync::Arc;

/// The core code that all components in this file share: a function that returns 7, and functions that return their
/// first argument.
const CODE: &str = r#"
  (core module $code
    (memory (export "memory") 2)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
    (func (export "seven") (result i32) (i32.const 7))
    (func (export "same") (param i32) (result i32) (local.get 0))
    (func (export "first") (param i32 i32) (result i32) (local.get 0))
    (func (export "drop") (param i32)))
  (core instance $code (instantiate $code))
  (func $seven (result u32) (canon lift (core func $code "seven")))
"#;

fn component(imports: &str, definitions: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {imports} {CODE} {definitions})")).unwrap_or_else(|error| panic!("{error}"))
}

async fn load(sandbox: &Sandbox, bytes: Vec<u8>) -> Arc<LoadedPlugin> {
    sandbox.load_bytes("foreign", bytes).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn refusal(sandbox: &Sandbox, bytes: Vec<u8>) -> LoadError {
    sandbox.load_bytes("foreign", bytes).await.expect_err("the component is refused")
}

/// The structured result of a call, or the message of the tool's error.
async fn answer(sandbox: &Sandbox, plugin: &Arc<LoadedPlugin>, tool: &str, arguments: Value) -> Result<Value, String> {
    let setup = PluginSetup::new(Arc::clone(plugin), Grants::default(), CallLimits::default());
    match call_with(sandbox, &setup, tool, &arguments).await.result {
        Ok(Ok(ToolOutcome::Done(ToolDone { structured: Some(value), .. }))) => Ok(value),
        Ok(Err(error)) => Err(error.for_users()),
        other => panic!("{other:?}"),
    }
}

fn tools(plugin: &LoadedPlugin) -> Vec<&str> {
    plugin.tools().iter().map(|tool| tool.name.as_str()).collect()
}

/// P3: an import that contains only types does not need an implementation, whether an interface imports the types of
/// another interface or a world imports a type. An import with a function or a resource needs an implementation.
#[tokio::test(flavor = "multi_thread")]
async fn p3_components_that_import_only_types_are_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let types = |more: &str| {
        format!(
            r#"(import "acme:shapes/types@1.0.0" (instance $types
                 (type $point (record (field "x" u32)))
                 (export "point" (type (eq $point)))
                 {more}))
               (import "wasi:clocks/wall-clock@0.3.0" (instance
                 (type $instant (record (field "seconds" u64)))
                 (export "instant" (type (eq $instant)))))
               (type $level (enum "low" "high"))
               (import "level" (type $of-the-world (eq $level)))"#
        )
    };
    let rest = r#"
        (alias export $types "point" (type $point))
        (func (export "draw") (param "at" $point) (param "level" $of-the-world) (result u32)
          (canon lift (core func $code "first")))"#;
    let plugin = load(&sandbox, component(&types(""), rest)).await;
    assert_eq!(answer(&sandbox, &plugin, "draw", json!({"at": {"x": 5}, "level": "high"})).await, Ok(json!(5)));
    assert!(plugin.imports().is_empty() && plugin.tools()[0].traits.read_only, "types cannot change anything");
    for more in [r#"(export "go" (func))"#, r#"(export "handle" (type (sub resource)))"#] {
        let error = refusal(&sandbox, component(&types(more), rest)).await.to_string();
        assert!(error.contains("`acme:shapes/types@1.0.0`") && !error.contains("level"), "{error}");
        assert!(error.contains("a different host") && error.contains("wac plug"), "{error}");
    }
}

/// Returns a component with a resource that has no constructor. `makers` contains the functions of the interface that
/// create the resource.
fn resource_component(makers: &str) -> Vec<u8> {
    let inner = format!(
        r#"(component $inner {CODE}
             (type $thing' (resource (rep i32)))
             (export $thing "thing" (type $thing'))
             (core func $new (canon resource.new $thing))
             (core module $makers
               (import "" "new" (func $new (param i32) (result i32)))
               (memory (export "memory") 1)
               (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
               (func (export "make") (param i32) (result i32) (call $new (local.get 0)))
               (func (export "try") (param i32) (result i32)
                 (if (i32.eqz (local.get 0))
                   (then (i32.store8 (i32.const 64) (i32.const 1)) (i32.store (i32.const 68) (i32.const 9)))
                   (else (i32.store8 (i32.const 64) (i32.const 0)) (i32.store (i32.const 68) (call $new (local.get 0)))))
                 (i32.const 64)))
             (core instance $makers (instantiate $makers
               (with "" (instance (export "new" (func $new))))))
             (alias core export $makers "memory" (core memory $memory))
             (func (export "[method]thing.number") (param "self" (borrow $thing)) (result u32)
               (canon lift (core func $code "same")))
             {makers})"#
    );
    let text = format!(
        r#"(component {inner} (instance $inner (instantiate $inner)) (export "acme:things/api@1.0.0" (instance $inner)))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const MAKE: &str = r#"(func (export "[static]thing.make") (param "number" u32) (result (own $thing))
    (canon lift (core func $makers "make")))"#;
const TRY: &str = r#"(func (export "open") (param "number" u32) (result (result (own $thing) (error u32)))
    (canon lift (core func $makers "try") (memory $memory)))"#;
const FROM_ANOTHER: &str = r#"(func (export "[static]thing.copy") (param "it" (borrow $thing)) (result (own $thing))
    (canon lift (core func $makers "make")))"#;

/// P3: a function that creates a resource from data is used like a constructor: methods are called on the created
/// resource. If several functions create the same resource, the model chooses one of these functions by its name.
#[tokio::test(flavor = "multi_thread")]
async fn p3_functions_that_make_a_resource_are_constructors() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let tool = "api.thing.number";

    let one = load(&sandbox, resource_component(MAKE)).await;
    assert_eq!((tools(&one), one.skipped_exports().len()), (vec![tool], 0));
    assert_eq!(answer(&sandbox, &one, tool, json!({"self": {"number": 5}})).await, Ok(json!(5)));
    assert!(one.tools()[0].description.contains("`make(number: u32)`"), "{}", one.tools()[0].description);

    let fallible = load(&sandbox, resource_component(TRY)).await;
    assert_eq!(answer(&sandbox, &fallible, tool, json!({"self": {"number": 6}})).await, Ok(json!(6)));
    let failed = answer(&sandbox, &fallible, tool, json!({"self": {"number": 0}})).await;
    assert!(failed.as_ref().is_err_and(|words| words.contains('9')), "{failed:?}");

    let both = load(&sandbox, resource_component(&[MAKE, TRY, FROM_ANOTHER].concat())).await;
    assert_eq!(tools(&both), [tool]);
    assert_eq!(both.tools()[0].input_schema["required"], json!(["self"]));
    for (name, number) in [("make", 7), ("open", 8)] {
        let arguments = json!({"self": {name: {"number": number}}});
        assert_eq!(answer(&sandbox, &both, tool, arguments).await, Ok(json!(number)), "{name}");
    }
    for wrong in [json!({}), json!({"copy": {}}), json!({"make": {"number": 1}, "open": {"number": 1}}), json!(1)] {
        let refused = answer(&sandbox, &both, tool, json!({"self": wrong})).await;
        assert!(refused.as_ref().is_err_and(|words| words.contains("/self")), "{refused:?}");
    }
    let [copy] = both.skipped_exports() else { panic!("{:?}", both.skipped_exports()) };
    assert!(copy.function.contains("[static]thing.copy"), "{copy}");

    let none = refusal(&sandbox, resource_component(FROM_ANOTHER)).await.to_string();
    assert!(none.contains("no function makes it from data"), "{none}");
}

/// P3: if a function is meant only for the toolchain, which calls it during the build, the function is not offered as a
/// tool. A component that is a web server is refused with advice to export other functions.
#[tokio::test(flavor = "multi_thread")]
async fn p3_toolchain_functions_and_http_handlers_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let code = r#"
        (alias core export $code "memory" (core memory $memory))
        (alias core export $code "realloc" (core func $realloc))"#;
    let init = |first: &str| {
        format!(
            r#"{code} (export "seven" (func $seven))
               (func (export "wizer-initialize") (canon lift (core func $nothing)))
               (func (export "init") (param "{first}" u32) (param "script" u32) (result u32)
                 (canon lift (core func $code "first")))"#
        )
        .replace("(core func $nothing)", r#"(core func $code "drop0")"#)
    };
    let imports = "";
    let build = |first: &str| {
        let text = format!("(component {imports} {CODE} {})", init(first));
        wat::parse_str(text.replace(r#"(func (export "drop") (param i32))"#, r#"(func (export "drop0"))"#)).unwrap()
    };
    let engine = load(&sandbox, build("shim")).await;
    assert_eq!(tools(&engine), ["seven"]);
    let skipped: Vec<_> = engine.skipped_exports().iter().map(|skipped| skipped.function.as_str()).collect();
    assert_eq!(skipped, ["wizer-initialize", "init"]);
    let own = load(&sandbox, build("width")).await;
    assert_eq!(tools(&own), ["seven", "init"], "an author's own function of this name is a tool");

    let server = r#"
        (component $server (import "handle" (func $handle (param "request" u32))) (export "handle" (func $handle)))
        (func $handle (param "request" u32) (canon lift (core func $code "drop")))
        (instance $server (instantiate $server (with "handle" (func $handle))))
        (export "wasi:http/incoming-handler@0.2.3" (instance $server))"#;
    let error = refusal(&sandbox, component("", server)).await.to_string();
    assert!(error.contains("answers HTTP requests") && error.contains("wasi:cli/run"), "{error}");
}

/// P5: a component can also import the configuration interface under the names that earlier drafts gave it, and gets
/// only granted values.
#[tokio::test(flavor = "multi_thread")]
async fn p5_earlier_drafts_of_wasi_config_can_be_imported() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    for name in ["wasi:config/store@0.2.0-rc.1", "wasi:config/store@0.2.0-draft", "wasi:config/runtime@0.2.0-draft"] {
        let error = if name.contains("runtime") { "config-error" } else { "error" };
        let text = format!(
            r#"(component
                 (import "{name}" (instance $config
                   (type $error' (variant (case "upstream" string) (case "io" string)))
                   (export "{error}" (type $error (eq $error')))
                   (export "get" (func (param "key" string) (result (result (option string) (error $error)))))
                   (export "get-all" (func (result (result (list (tuple string string)) (error $error)))))))
                 (core module $memory (memory (export "memory") 1)
                   (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096)))
                 (core instance $memory (instantiate $memory))
                 (alias core export $memory "memory" (core memory $memory))
                 (alias core export $memory "realloc" (core func $realloc))
                 (core func $all (canon lower (func $config "get-all") (memory $memory) (realloc $realloc)))
                 (core func $get (canon lower (func $config "get") (memory $memory) (realloc $realloc)))
                 (core module $code
                   (import "" "memory" (memory 1))
                   (import "" "all" (func $all (param i32)))
                   (import "" "get" (func $get (param i32 i32 i32)))
                   (func (export "count") (result i32)
                     (call $get (i32.const 64) (i32.const 1) (i32.const 16))
                     (call $all (i32.const 32))
                     (i32.add (i32.mul (i32.const 100) (i32.load8_u (i32.const 32)))
                       (i32.add (i32.load (i32.const 40)) (i32.load8_u (i32.const 20))))))
                 (core instance $code (instantiate $code (with "" (instance
                   (export "memory" (memory $memory)) (export "all" (func $all)) (export "get" (func $get))))))
                 (func (export "count") (result u32) (canon lift (core func $code "count"))))"#
        );
        let plugin = load(&sandbox, wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))).await;
        assert_eq!(answer(&sandbox, &plugin, "count", json!({})).await, Ok(json!(0)), "{name}");
        let mut grants = Grants::default();
        grants.config.insert("key".to_owned(), "value".to_owned());
        let setup = PluginSetup::new(Arc::clone(&plugin), grants, CallLimits::default());
        let report = call_with(&sandbox, &setup, "count", &json!({})).await;
        let Ok(Ok(ToolOutcome::Done(done))) = report.result else { panic!("{report:?}") };
        assert_eq!(done.structured, Some(json!(1)), "{name}: one value is granted");
    }
}

/// P12, row 11: a core module is refused with advice on how to turn it into a component. The advice depends on the
/// module's target.
#[tokio::test(flavor = "multi_thread")]
async fn p12_row_11_core_module_is_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let preview1 = r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))"#;
    let cases = [
        (format!(r#"(module {preview1} (func (export "_start")))"#), "`jco new FILE --wasi-command"),
        (format!(r#"(module {preview1} (func (export "_initialize")))"#), "`jco new FILE --wasi-reactor"),
        (r#"(module (@custom "component-type:words" "x"))"#.to_owned(), "`wasm-tools component new FILE -o"),
        (r#"(module (import "./guest_bg.js" "f" (func)))"#.to_owned(), "imports are JavaScript"),
        ("(module)".to_owned(), "wasm32-wasip2"),
    ];
    for (text, advice) in cases {
        let error = refusal(&sandbox, wat::parse_str(&text).unwrap()).await;
        assert!(matches!(error, LoadError::NotAComponent(NotAComponent::CoreModule(_))), "{error}");
        assert!(error.to_string().contains(advice), "{text}: {error}");
    }
}

/// P12: a component for a later version of the contract or of WASI is refused with advice.
#[tokio::test(flavor = "multi_thread")]
async fn p12_later_contract_or_wasi_is_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    for version in ["0.2.0", "9.9.9"] {
        let tool = format!(
            r#"(instance $tool (export "call" (func $seven))) (export "agent-host:plugin/tool@{version}" (instance $tool))"#
        );
        let error = refusal(&sandbox, component("", &tool)).await.to_string();
        assert!(error.contains(&format!("`agent-host:plugin/tool@{version}`")), "{error}");
        assert!(error.contains("use a newer agent-host, or rebuild"), "{error}");
    }
    let wasi = r#"(import "wasi:cli/stdout@0.3.0" (instance (export "write" (func))))"#;
    let error = refusal(&sandbox, component(wasi, r#"(export "seven" (func $seven))"#)).await.to_string();
    assert!(error.contains("`wasi:cli/stdout@0.3.0`") && error.contains("wasm32-wasip2"), "{error}");
}

/// P3: a component that is composed of several components loads like any other component.
#[tokio::test(flavor = "multi_thread")]
async fn p3_composed_components_load() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let composed = format!(
        r#"(component
             (component $inside (import "wasi:clocks/monotonic-clock@0.2.3" (instance (export "now" (func (result u64)))))
               {CODE} (export "seven" (func $seven)))
             (component $outside (import "acme:inside/seven" (func $inside (result u32))) (export "eight" (func $inside)))
             (import "wasi:clocks/monotonic-clock@0.2.3" (instance $clock (export "now" (func (result u64)))))
             (instance $inside (instantiate $inside (with "wasi:clocks/monotonic-clock@0.2.3" (instance $clock))))
             (instance $outside (instantiate $outside (with "acme:inside/seven" (func $inside "seven"))))
             (export "eight" (func $outside "eight")))"#
    );
    let composed = wat::parse_str(&composed).unwrap_or_else(|error| panic!("{error}"));
    let plugin = load(&sandbox, composed).await;
    assert_eq!(answer(&sandbox, &plugin, "eight", json!({})).await, Ok(json!(7)));
}
