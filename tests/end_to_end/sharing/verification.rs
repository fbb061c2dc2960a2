//! P11: With `signatures = "required"`, no code of a component is compiled or run before its signature is verified,
//! regardless of the component's source.

use super::by_policy::with_agent;
use super::while_running::scan_until;
use super::{TestCli, component, in_plugins};
use crate::support::components;
use agent_plugins::{Asks, Generation, PluginDirectory, Sandbox, SandboxOptions};
use agent_registry::{LockFileVerifier, SignaturePolicy, Trust};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the number of components whose compiled code is in this cache folder.
fn compiled_count(cache: &Path) -> usize {
    let folders = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|path| path.is_dir()).map(|engine| std::fs::read_dir(engine).unwrap().count()).sum()
}

/// Returns the number of files in a plugin store.
fn stored_count(store: &Path) -> usize {
    std::fs::read_dir(store).into_iter().flatten().count()
}

/// Creates a plugin folder with a lock file and an unsigned plugin from the registry. Returns the author of the plugin,
/// and a user who has a copy of this folder and an empty data folder.
fn unsigned_plugin_for_new_user() -> (TestCli, TestCli) {
    let author = TestCli::new();
    author.push("tides", "1.0.0", &[]);
    author.succeed(&in_plugins(&["plugin", "add", &author.reference("team/tides:latest")]));
    let user = TestCli::with_registry(&author.registry);
    for name in ["plugins/tides.wasm", "plugins/plugins.lock"] {
        std::fs::copy(author.path(name), user.path(name)).unwrap();
    }
    (author, user)
}

const REFUSED: [&str; 2] = ["it is not signed", "signatures = \"required\""];

/// P11: Commands that load plugins from a folder never compile an unverified plugin.
#[test]
fn p11_does_not_compile_unverified_components_from_a_folder() {
    let (_author, user) = unsigned_plugin_for_new_user();
    let team = user.key("team");
    user.agent("required", &team);
    let file = "plugins/tides.wasm";
    let commands: [&[&str]; 5] = [
        &["plugin", "list"],
        &["plugin", "inspect", file],
        &["plugin", "explain", file],
        &["plugin", "call", file, "tides", "{}"],
        &["hello"],
    ];
    let all_refused =
        |when: &str| commands.iter().for_each(|command| drop((when, user.fails(2, &with_agent(command), &REFUSED))));
    all_refused("no data about the plugin is stored");
    assert_eq!(compiled_count(&user.path("data/cache")), 0, "nothing was compiled");
    assert_eq!(stored_count(&user.path("data/plugins")), 0, "nothing was stored");
    // The plugin is refused even if its compiled code already exists.
    user.agent("warn", &team);
    user.succeed(&with_agent(&["plugin", "list"]));
    assert_eq!(compiled_count(&user.path("data/cache")), 1);
    user.agent("required", &team);
    all_refused("its code is in the cache");
    // Without an agent, a user may inspect any plugin.
    user.succeed(&["plugin", "inspect", file]);
}

/// P11: `plugin add` and `plugin update` do not compile an unverified plugin, even if the plugin has an entry in the
/// lock file.
#[test]
fn p11_does_not_compile_unverified_components_from_a_registry() {
    let (author, user) = unsigned_plugin_for_new_user();
    let team = user.key("team");
    user.agent("required", &team);
    let reference = user.reference("team/tides:latest");
    user.fails(1, &with_agent(&["plugin", "add", &reference]), &REFUSED);
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    user.fails(1, &with_agent(&["plugin", "add"]), &REFUSED);
    author.push("tides", "1.1.0", &[]);
    user.fails(1, &with_agent(&["plugin", "update"]), &REFUSED);
    assert!(!user.path("plugins/tides.wasm").exists());
    assert_eq!(compiled_count(&user.path("data/cache")), 0, "nothing was compiled");
    assert_eq!(stored_count(&user.path("data/plugins")), 0, "nothing was stored");
    user.succeed(&["plugin", "sign", &reference, "--key", "team.key"]);
    assert_eq!(compiled_count(&user.path("data/cache")), 0, "signing compiles nothing");
    user.succeed(&with_agent(&["plugin", "update"]));
    assert_eq!(compiled_count(&user.path("data/cache")), 1);
}

fn sandbox(policy: SignaturePolicy, folders: (&Path, &Path)) -> Sandbox {
    sandbox_trusting(Trust { policy, ..Trust::default() }, folders)
}

fn sandbox_trusting(trust: Trust, (cache, store): (&Path, &Path)) -> Sandbox {
    let options = SandboxOptions {
        cache_directory: Some(cache.to_owned()),
        store_directory: Some(store.to_owned()),
        verifier: Some(Arc::new(LockFileVerifier { trust })),
        ..SandboxOptions::default()
    };
    Sandbox::new(options).unwrap()
}

/// P10, P11: If an open turn or a rollback needs an older version of a plugin, the host loads that version from the
/// plugin store. The host checks the signature with which that version was installed, even if the plugin folder
/// contains another version. A local build is used only if the agent's own file allows it.
#[tokio::test(flavor = "multi_thread")]
async fn p11_verifies_stored_versions_with_their_own_signature() {
    let (_author, user) = unsigned_plugin_for_new_user();
    std::fs::write(user.path("plugins/mine.wasm"), component("mine", "0.1.0", Asks::default())).unwrap();
    let folders = ["open", "strict", "store"].map(|name| user.path(name));
    let [open, strict, store] = folders.each_ref().map(PathBuf::as_path);
    let warning_sandbox = sandbox(SignaturePolicy::Warn, (open, store));
    let (generation, problems) = Generation::load(&warning_sandbox, &user.path("plugins"), &|_| {}).await.unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let pinned = generation.pinned();
    std::fs::remove_dir_all(user.path("plugins")).unwrap();
    Generation::from_digests(&warning_sandbox, &pinned).await.unwrap();

    let requiring_sandbox = sandbox(SignaturePolicy::Required, (strict, store));
    let refused = Generation::from_digests(&requiring_sandbox, &pinned).await.unwrap_err();
    assert!(!refused.is_permanent(), "a key may be trusted again");
    let refused = refused.to_string();
    REFUSED.iter().for_each(|words| assert!(refused.contains(words), "{refused}"));
    let (mine, tides) = (&pinned[0], &pinned[1]);
    assert_eq!([mine.0.as_str(), tides.0.as_str()], ["mine", "tides"]);
    let refused =
        Generation::from_digests(&requiring_sandbox, std::slice::from_ref(mine)).await.unwrap_err().to_string();
    REFUSED.iter().for_each(|words| assert!(refused.contains(words), "{refused}"));
    let trust = Trust { policy: SignaturePolicy::Required, unsigned: vec!["mine".to_owned()], ..Trust::default() };
    let allowing_sandbox = sandbox_trusting(trust, (strict, store));
    Generation::from_digests(&allowing_sandbox, std::slice::from_ref(mine)).await.unwrap();
    let before = compiled_count(strict);
    assert!(requiring_sandbox.load_stored("tides", &tides.1).await.is_err());
    assert_eq!(compiled_count(strict), before, "nothing was compiled");
}

/// P10, P11: An unverified plugin in a watched folder is not compiled.
#[tokio::test(flavor = "multi_thread")]
async fn p11_does_not_compile_unverified_components_from_a_watched_folder() {
    let (_author, user) = unsigned_plugin_for_new_user();
    let (cache, store) = (user.path("cache"), user.path("store"));
    let requiring_sandbox = sandbox(SignaturePolicy::Required, (&cache, &store));
    let mut directory = PluginDirectory::new(requiring_sandbox, user.path("plugins"));
    let output_text = scan_until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(output_text.contains(REFUSED[0]), "{output_text}");
    assert_eq!((compiled_count(&cache), stored_count(&store)), (0, 0), "nothing was compiled or stored");
    // Row 45: The host refuses the plugin even after its entry was removed from the lock file.
    user.succeed(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    let output_text = scan_until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(output_text.contains(REFUSED[0]), "{output_text}");
    assert_eq!((compiled_count(&cache), stored_count(&store)), (0, 0), "nothing was compiled or stored");
}

/// P11: The host compiles only bytes that it has verified. If the lock file contains an entry for a plugin's name, a
/// component with another digest is refused before it is parsed.
#[test]
fn p11_refuses_other_bytes_before_compiling_them() {
    let (_author, user) = unsigned_plugin_for_new_user();
    std::fs::copy(components().join("calc.wasm"), user.path("plugins/tides.wasm")).unwrap();
    user.fails(2, &["plugin", "list", "plugins"], &["plugins.lock locks `tides`"]);
    assert_eq!((compiled_count(&user.path("data/cache")), stored_count(&user.path("data/plugins"))), (0, 0));
}
