//! P11: under `signatures = "required"` nothing of a component is compiled, asked or run before its signature is judged, on
//! whatever way it comes in.

use super::by_policy::of_agent;
use super::while_running::until;
use super::{Desk, component, in_plugins};
use crate::support::components;
use agent_plugins::{Asks, Generation, PluginDirectory, Sandbox, SandboxOptions};
use agent_registry::{Locked, SignaturePolicy, Trust};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Components whose compiled code is below a folder.
fn compiled(cache: &Path) -> usize {
    let folders = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|path| path.is_dir()).map(|engine| std::fs::read_dir(engine).unwrap().count()).sum()
}

/// Components and all else of a plugin store.
fn stored(store: &Path) -> usize {
    std::fs::read_dir(store).into_iter().flatten().count()
}

/// A folder with an unsigned plugin from the registry, locked, for somebody with a data folder in which nothing is.
fn with_unsigned() -> (Desk, Desk) {
    let author = Desk::new();
    author.push("tides", "1.0.0", &[]);
    author.done(&in_plugins(&["plugin", "add", &author.reference("team/tides:latest")]));
    let user = Desk::beside(&author.registry);
    for name in ["plugins/tides.wasm", "plugins/plugins.lock"] {
        std::fs::copy(author.path(name), user.path(name)).unwrap();
    }
    (author, user)
}

const REFUSED: [&str; 2] = ["it is not signed", "signatures = \"required\""];

/// A command that loads from the folder.
#[test]
fn p11_nothing_unjudged_of_a_folder_is_compiled() {
    let (_author, user) = with_unsigned();
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
        |when: &str| commands.iter().for_each(|command| drop((when, user.fails(2, &of_agent(command), &REFUSED))));
    all_refused("nothing is known of it");
    assert_eq!(compiled(&user.path("data/cache")), 0, "nothing was compiled");
    assert_eq!(stored(&user.path("data/plugins")), 0, "nothing was kept");
    // Where its code is there already, it is refused all the same.
    user.agent("warn", &team);
    user.done(&of_agent(&["plugin", "list"]));
    assert_eq!(compiled(&user.path("data/cache")), 1);
    user.agent("required", &team);
    all_refused("its code is in the cache");
    // By hand, for no agent, somebody may look at anything.
    user.done(&["plugin", "inspect", file]);
}

/// `plugin add`, also of what is locked, and `plugin update`.
#[test]
fn p11_nothing_unjudged_of_a_registry_is_compiled() {
    let (author, user) = with_unsigned();
    let team = user.key("team");
    user.agent("required", &team);
    let reference = user.reference("team/tides:latest");
    user.fails(1, &of_agent(&["plugin", "add", &reference]), &REFUSED);
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    user.fails(1, &of_agent(&["plugin", "add"]), &REFUSED);
    author.push("tides", "1.1.0", &[]);
    user.fails(1, &of_agent(&["plugin", "update"]), &REFUSED);
    assert!(!user.path("plugins/tides.wasm").exists());
    assert_eq!(compiled(&user.path("data/cache")), 0, "nothing was compiled");
    assert_eq!(stored(&user.path("data/plugins")), 0, "nothing was kept");
    user.done(&["plugin", "sign", &reference, "--key", "team.key"]);
    assert_eq!(compiled(&user.path("data/cache")), 0, "who signs runs nothing");
    user.done(&of_agent(&["plugin", "update"]));
    assert_eq!(compiled(&user.path("data/cache")), 1);
}

fn sandbox(policy: SignaturePolicy, folders: (&Path, &Path)) -> Sandbox {
    trusting(Trust { policy, ..Trust::default() }, folders)
}

fn trusting(trust: Trust, (cache, store): (&Path, &Path)) -> Sandbox {
    let options = SandboxOptions {
        cache_directory: Some(cache.to_owned()),
        store_directory: Some(store.to_owned()),
        vetting: Some(Arc::new(Locked { trust })),
        ..SandboxOptions::default()
    };
    Sandbox::new(options).unwrap()
}

/// P10, P11: what an open turn is pinned to, and what is rolled back to, comes from the plugin store; it is judged by what it came
/// with, also when the folder has gone on to another version. What somebody built here
/// needs the word of the agent's own file.
#[tokio::test(flavor = "multi_thread")]
async fn p11_what_the_store_has_is_judged_by_what_it_came_with() {
    let (_author, user) = with_unsigned();
    std::fs::write(user.path("plugins/mine.wasm"), component("mine", "0.1.0", Asks::default())).unwrap();
    let folders = ["open", "strict", "store"].map(|name| user.path(name));
    let [open, strict, store] = folders.each_ref().map(PathBuf::as_path);
    let lax = sandbox(SignaturePolicy::Warn, (open, store));
    let (generation, problems) = Generation::load(&lax, &user.path("plugins"), &|_| {}).await.unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let pinned = generation.pinned();
    std::fs::remove_dir_all(user.path("plugins")).unwrap();
    Generation::from_digests(&lax, &pinned).await.unwrap();

    let required = sandbox(SignaturePolicy::Required, (strict, store));
    let refused = Generation::from_digests(&required, &pinned).await.unwrap_err();
    assert!(!refused.is_lasting(), "a key may be trusted again");
    let refused = refused.to_string();
    REFUSED.iter().for_each(|words| assert!(refused.contains(words), "{refused}"));
    let (mine, tides) = (&pinned[0], &pinned[1]);
    assert_eq!([mine.0.as_str(), tides.0.as_str()], ["mine", "tides"]);
    let refused = Generation::from_digests(&required, std::slice::from_ref(mine)).await.unwrap_err().to_string();
    REFUSED.iter().for_each(|words| assert!(refused.contains(words), "{refused}"));
    let trust = Trust { policy: SignaturePolicy::Required, unsigned: vec!["mine".to_owned()], ..Trust::default() };
    let allowing = trusting(trust, (strict, store));
    Generation::from_digests(&allowing, std::slice::from_ref(mine)).await.unwrap();
    let before = compiled(strict);
    assert!(required.load_stored("tides", &tides.1).await.is_err());
    assert_eq!(compiled(strict), before, "nothing was compiled");
}

/// P10: a folder that is watched.
#[tokio::test(flavor = "multi_thread")]
async fn p11_nothing_unjudged_of_a_watched_folder_is_compiled() {
    let (_author, user) = with_unsigned();
    let (cache, store) = (user.path("cache"), user.path("store"));
    let required = sandbox(SignaturePolicy::Required, (&cache, &store));
    let mut directory = PluginDirectory::new(required, user.path("plugins"));
    let said = until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(said.contains(REFUSED[0]), "{said}");
    assert_eq!((compiled(&cache), stored(&store)), (0, 0), "nothing was compiled or kept");
    // Row 45: taking it out of the lock makes it no better.
    user.done(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    let said = until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(said.contains(REFUSED[0]), "{said}");
    assert_eq!((compiled(&cache), stored(&store)), (0, 0), "nothing was compiled or kept");
}

/// What is judged is what is compiled: a component of other bytes under the locked name is refused by its digest, unread.
#[test]
fn p11_other_bytes_are_refused_before_they_are_compiled() {
    let (_author, user) = with_unsigned();
    std::fs::copy(components().join("calc.wasm"), user.path("plugins/tides.wasm")).unwrap();
    user.fails(2, &["plugin", "list", "plugins"], &["plugins.lock locks `tides`"]);
    assert_eq!((compiled(&user.path("data/cache")), stored(&user.path("data/plugins"))), (0, 0));
}
