//! Tests of loading: which components are loaded, which are refused, and how compiled code from the cache is verified.

mod common;

use agent_plugins::{
    Asks, CallLimits, CodeSource, Generation, GenerationError, Grants, Kind, LoadError, LoadEvent, LoadedPlugin,
    Manifest, NotAComponent, PluginSetup, PluginStoreError, Sandbox, SandboxOptions, with_manifest,
};
use common::{call, sandbox, tool_component, tool_component_calling, tool_component_importing};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOOL: &str = "agent-host:plugin/tool@0.1.0";
const LONG: Duration = Duration::from_secs(20);

async fn refusal(bytes: Vec<u8>) -> LoadError {
    let directory = tempfile::tempdir().expect("a directory");
    sandbox(directory.path()).load_bytes("bad", bytes).await.expect_err("the component is refused")
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is valid")
}

// P2, P8: a component's tools are known after loading, and the report of a call contains the cost of the call.
#[tokio::test(flavor = "multi_thread")]
async fn p2_p8_component_is_loaded_and_called() {
    let directory = tempfile::tempdir().expect("a directory");
    let sandbox = sandbox(directory.path());
    let plugin = sandbox.load_bytes("my plugin", tool_component(TOOL, 2)).await.expect("the component loads");
    assert_eq!((plugin.name(), plugin.kinds()), ("my-plugin", &[Kind::Tool][..]));
    let tools: Vec<_> = plugin.tools().iter().map(|tool| (tool.name.as_str(), tool.traits.idempotent)).collect();
    assert_eq!(tools, [("noop", true), ("spin", true), ("trap", true)]);
    let setup = PluginSetup::new(plugin, Grants::default(), CallLimits::default());
    let report = call(&sandbox, &setup, "noop", LONG).await;
    assert!(matches!(report.result, Ok(Ok(_))), "{report:?}");
    assert_eq!(report.cost.memory_bytes, 2 * 65_536);
}

// P12: a component is loaded even if the patch version of its plugin contract differs from the host's. If the minor
// version differs, the component is refused with advice.
#[tokio::test(flavor = "multi_thread")]
async fn p12_contract_version_is_checked_at_load() {
    let directory = tempfile::tempdir().expect("a directory");
    let sandbox = sandbox(directory.path());
    let patch = tool_component("agent-host:plugin/tool@0.1.9", 1);
    assert!(sandbox.load_bytes("patch", patch).await.expect("the component loads").has(Kind::Tool));
    let minor = refusal(tool_component("agent-host:plugin/tool@0.2.0", 1)).await;
    assert!(matches!(minor, LoadError::Interface(_)));
    assert!(minor.to_string().contains("use a newer agent-host, or rebuild"), "{minor}");
}

// Row 11: a file that is not a component is refused with an error that explains the reason.
#[tokio::test(flavor = "multi_thread")]
async fn row_11_files_that_are_not_components_are_refused_with_the_reason() {
    let random: Vec<u8> = (0..200_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(matches!(refusal(random).await, LoadError::NotAComponent(NotAComponent::Unknown { .. })));
    assert!(matches!(refusal(Vec::new()).await, LoadError::NotAComponent(NotAComponent::Unknown { .. })));
    let core = refusal(component("(module)")).await;
    assert!(matches!(core, LoadError::NotAComponent(NotAComponent::CoreModule(_))), "{core}");
    let text = refusal(b"  (component)".to_vec()).await;
    assert!(matches!(text, LoadError::NotAComponent(NotAComponent::Text)), "{text}");
    let mut large = tool_component(TOOL, 1);
    large.resize(33 * 1024 * 1024, 0);
    assert!(matches!(refusal(large).await, LoadError::TooLarge { .. }));
    let mut cut = tool_component(TOOL, 1);
    cut.truncate(cut.len() - 20);
    assert!(matches!(refusal(cut).await, LoadError::NotAComponent(NotAComponent::Damaged { .. })));
    let package = refusal(component("(component (type $a (component)) (export \"acme:words/all\" (type $a)))")).await;
    assert!(matches!(package, LoadError::NotAComponent(NotAComponent::WitPackage)), "{package}");
    assert!(matches!(refusal(component("(component)")).await, LoadError::NothingOffered { .. }));
}

// Row 11: a file with compiled code is never loaded as a plugin, whether wasmtime or the host's cache created the file.
#[tokio::test(flavor = "multi_thread")]
async fn row_11_precompiled_code_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    sandbox(directory.path()).load_bytes("p", tool_component(TOOL, 1)).await.expect("the component loads");
    let cached = std::fs::read(cache_file(directory.path())).expect("the cache file");
    let elf = cached.windows(4).position(|bytes| bytes == b"\x7fELF").expect("the code");
    for artifact in [cached[elf..].to_vec(), cached] {
        assert!(matches!(refusal(artifact).await, LoadError::NotAComponent(NotAComponent::Precompiled)));
    }
}

// Row 14: a component with an unknown import, or with an import of the wrong type, is refused with an error that names
// the import.
#[tokio::test(flavor = "multi_thread")]
async fn row_14_unknown_imports_are_refused_by_name() {
    let unknown =
        refusal(component(r#"(component (import "acme:thing/api@1.0.0" (instance (export "f" (func)))))"#)).await;
    assert!(unknown.to_string().contains("`acme:thing/api@1.0.0`"), "{unknown}");
    let mistyped = r#"(import "wasi:io/poll@0.2.0" (instance (export "poll" (func (param "x" u32)))))"#;
    let tool = tool_component_importing(mistyped);
    let error = refusal(tool).await;
    assert!(matches!(&error, LoadError::Link { reason } if reason.contains("wasi:io/poll")), "{error}");
}

// P5, row 14: a known import that is not implemented links to a function that fails with a message.
#[tokio::test(flavor = "multi_thread")]
async fn p5_row_14_calls_of_unimplemented_imports_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let sandbox = sandbox(directory.path());
    let component = tool_component_calling("wasi:http/incoming-handler@0.2.0");
    let plugin = sandbox.load_bytes("http", component).await.expect("the component loads");
    let setup = PluginSetup::new(plugin, Grants::default(), CallLimits::default());
    assert!(matches!(call(&sandbox, &setup, "noop", LONG).await.result, Ok(Ok(_))));
    let failure = call(&sandbox, &setup, "trap", LONG).await.result.expect_err("the import is denied").to_string();
    assert!(failure.contains("wasi:http/incoming-handler@0.2.0") && failure.contains("does not offer"), "{failure}");
}

// P5, row 14: an unknown function of a supported interface is refused when the component is loaded, even if the
// component also imports an interface that the host does not implement.
#[tokio::test(flavor = "multi_thread")]
async fn p5_row_14_unknown_function_is_refused_despite_an_unimplemented_import() {
    for denied in ["wasi:blobstore/blobstore@0.2.0-draft", "wasi:http/incoming-handler@0.2.0"] {
        let imports = format!(
            r#"(import "{denied}" (instance (export "anything" (func))))
               (import "wasi:io/poll@0.2.0" (instance (export "poll-for-ever" (func))))"#
        );
        let error = refusal(tool_component_importing(&imports)).await;
        let is_named = |reason: &str| reason.contains("wasi:io/poll") && reason.contains("poll-for-ever");
        assert!(matches!(&error, LoadError::Link { reason } if is_named(reason)), "{error}");
    }
}

// P12: an export with the wrong type is found when the component is loaded, because loading instantiates the
// component once.
#[tokio::test(flavor = "multi_thread")]
async fn p12_exports_with_the_wrong_type_are_refused() {
    let text = r#"(component
        (component $inner
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func (export "decide") (canon lift (core func $i "f"))))
        (instance $inner (instantiate $inner))
        (export "agent-host:plugin/media-policy@0.1.0" (instance $inner)))"#;
    let error = refusal(component(text)).await;
    assert!(matches!(&error, LoadError::Export { kind: Kind::MediaPolicy, .. }), "{error}");
}

// Row 4: if a component needs more memory than the largest possible limit, the host refuses the component. If a
// component needs only more memory than the default limit, the host loads the component, because its
// agent may configure a larger limit.
#[tokio::test(flavor = "multi_thread")]
async fn row_4_memory_above_the_largest_limit_is_refused_at_load() {
    let error = refusal(tool_component(TOOL, 5_000)).await;
    assert!(error.to_string().contains("memory"), "{error}");
    let directory = tempfile::tempdir().expect("a directory");
    let large = sandbox(directory.path()).load_bytes("large", tool_component(TOOL, 2_000)).await;
    assert!(large.is_ok(), "{large:?}");
}

// P9: at the next start, the compiled code is loaded from the cache. If the file with the compiled code is damaged,
// truncated or from a different host, the file is ignored and the component is compiled.
#[tokio::test(flavor = "multi_thread")]
async fn p9_damaged_cache_entry_is_compiled_again() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(load_fresh(directory.path()).await, CodeSource::Compiled);
    assert_eq!(load_fresh(directory.path()).await, CodeSource::Cache);
    let path = cache_file(directory.path());
    let original = std::fs::read(&path).expect("the cache file");
    let other = tempfile::tempdir().expect("a directory");
    load_fresh(other.path()).await;
    let foreign = std::fs::read(cache_file(other.path())).expect("the cache file");
    let mut flipped = original.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    for damaged in [flipped, original[..original.len() - 1].to_vec(), Vec::new(), foreign] {
        // The file is read-only, so it must be removed first.
        std::fs::remove_file(&path).and_then(|()| std::fs::write(&path, damaged)).expect("damaged");
        assert_eq!(load_fresh(directory.path()).await, CodeSource::Compiled);
        assert_eq!(load_fresh(directory.path()).await, CodeSource::Cache, "the cache entry was written again");
    }
}

// P9: a cache file with the compiled code of a different component is not used, even if the file has the expected name.
#[tokio::test(flavor = "multi_thread")]
async fn p9_compiled_code_of_another_component_is_ignored() {
    let directory = tempfile::tempdir().expect("a directory");
    load_fresh(directory.path()).await;
    let first = cache_file(directory.path());
    let bytes = std::fs::read(&first).expect("the cache file");
    let other = tool_component(TOOL, 3);
    let name = agent_plugins::digest_of(&other);
    let path = first.with_file_name(format!("{}.cwasm", name.hex()));
    std::fs::write(path, bytes).expect("moved");
    assert_eq!(load_observed(&sandbox(directory.path()), other).await.1, CodeSource::Compiled);
}

// P10: a generation is identified by the digests of its plugins, and a missing component is reported.
#[tokio::test(flavor = "multi_thread")]
async fn p10_generation_is_loaded_pinned_and_loaded_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let plugins = directory.path().join("plugins");
    std::fs::create_dir(&plugins).expect("created");
    let write = |name: &str, bytes: &[u8]| std::fs::write(plugins.join(name), bytes).expect("written");
    let manifest = |name: &str| Manifest { name: name.to_owned(), asks: Asks::default(), ..Manifest::default() };
    write("a.wasm", &with_manifest(&tool_component(TOOL, 1), &manifest("one")).expect("a component"));
    write("b.wasm", &tool_component(TOOL, 2));
    write("c.wasm", &with_manifest(&tool_component(TOOL, 3), &manifest("one")).expect("a component"));
    write("d.wasm", &component("(module)"));
    write("notes.txt", b"not a plugin");
    let first = sandbox(directory.path());
    let (generation, problems) = Generation::load(&first, &plugins, &|_| {}).await.expect("the generation loads");
    let names: Vec<_> = generation.plugins().map(|plugin| plugin.name()).collect();
    assert_eq!(names, ["b", "one"]);
    let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert!(messages[0].contains("c.wasm") && messages[0].contains("a.wasm"), "both files: {messages:?}");
    assert!(messages[1].contains("d.wasm") && messages[1].contains("core WebAssembly module"), "{messages:?}");

    let pinned = generation.pinned();
    std::fs::remove_dir_all(&plugins).expect("the folder is removed");
    let second = sandbox(directory.path());
    let again = Generation::from_digests(&second, &pinned).await.expect("the store contains the components");
    assert_eq!(again.digest(), generation.digest());
    // Grants belong to names, so a component is loaded only for the plugin that it contains.
    let (_, digest) = pinned.iter().find(|(name, _)| name == "one").expect("it is pinned").clone();
    for sandbox in [&second, &sandbox(directory.path())] {
        let renamed = Generation::from_digests(sandbox, &[("other".to_owned(), digest.clone())]).await;
        let error = renamed.expect_err("the name differs").to_string();
        assert!(error.contains("contains the plugin `one`"), "{error}");
    }
    std::fs::remove_dir_all(directory.path().join("store")).expect("the store is removed");
    let error =
        Generation::from_digests(&sandbox(directory.path()), &pinned).await.expect_err("the components are missing");
    assert!(matches!(error, GenerationError::Gone { reason: PluginStoreError::Missing { .. }, .. }), "{error}");
}

/// Loads the component in a new sandbox and calls it, to check that the code works.
async fn load_fresh(directory: &Path) -> CodeSource {
    let sandbox = sandbox(directory);
    let (plugin, code) = load_observed(&sandbox, tool_component(TOOL, 1)).await;
    let setup = PluginSetup::new(plugin, Grants::default(), CallLimits::default());
    assert!(matches!(call(&sandbox, &setup, "noop", LONG).await.result, Ok(Ok(_))));
    code
}

async fn load_observed(sandbox: &Sandbox, bytes: Vec<u8>) -> (Arc<LoadedPlugin>, CodeSource) {
    let source = Mutex::new(None);
    let progress = |event| {
        if let LoadEvent::Loaded { code, .. } = event {
            *source.lock().expect("no thread panics") = Some(code);
        }
    };
    let plugin = sandbox.load_bytes_with("plugin", bytes, &progress).await.expect("the component loads");
    let code = source.lock().expect("no thread panics").expect("the source was reported");
    (plugin, code)
}

fn cache_file(directory: &Path) -> PathBuf {
    let engines = std::fs::read_dir(directory.join("cache")).expect("the cache");
    let engine = engines.map(|entry| entry.expect("an entry").path()).find(|path| path.is_dir()).expect("an engine");
    let mut files = std::fs::read_dir(engine).expect("the engine's directory");
    files.next().expect("a file").expect("an entry").path()
}

// P9: a sandbox loads installed code without compiling and without a cache entry, also if the cache is empty.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn p9_installed_code_is_loaded_instead_of_compiled() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, code) = (directory.path().join("tools.wasm"), directory.path().join("compiled"));
    std::fs::write(&file, tool_component(TOOL, 1)).expect("written");
    let installer = sandbox(&directory.path().join("installer"));
    installer.install_code(std::slice::from_ref(&file), &code, &|_| {}).await.expect("installed");

    let load = async |data: &str| {
        let data = directory.path().join(data);
        let options = SandboxOptions {
            cache_directory: Some(data.join("cache")),
            store_directory: Some(data.join("store")),
            installed_code: Some(code.clone()),
            ..SandboxOptions::default()
        };
        let sandbox = Sandbox::new(options).expect("a sandbox");
        let sources = Mutex::new(Vec::new());
        let progress = |event: LoadEvent| {
            if let LoadEvent::Loaded { code, .. } = event {
                sources.lock().expect("no thread panicked").push(code);
            }
        };
        let plugin = sandbox.load_file_with(&file, &progress).await.expect("the component loads");
        assert_eq!(plugin.tools().len(), 3);
        let setup = PluginSetup::new(plugin, Grants::default(), CallLimits::default());
        let report = call(&sandbox, &setup, "noop", LONG).await;
        assert!(matches!(report.result, Ok(Ok(_))), "{report:?}");
        sources.into_inner().expect("no thread panicked")
    };
    assert_eq!(load("first").await, [CodeSource::Cache]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&code, mode(0o777)).expect("changed");
    assert_eq!(load("second").await, [CodeSource::Compiled], "other users can write to the folder");

    std::fs::set_permissions(&code, mode(0o755)).expect("changed");
    std::fs::write(&file, tool_component(TOOL, 2)).expect("written");
    assert_eq!(load("third").await, [CodeSource::Compiled], "the component is another one");
    installer.install_code(std::slice::from_ref(&file), &code, &|_| {}).await.expect("installed");
    assert_eq!(load("fourth").await, [CodeSource::Cache]);
    let engine = std::fs::read_dir(&code).expect("the folder").next().expect("an engine").expect("readable").path();
    assert_eq!(std::fs::read_dir(engine).expect("the folder").count(), 1, "the code of the first component is deleted");
}
