//! Rows 39, 40, 44 and 48: Granted trees that overlap, or that are replaced, filled or revoked.

use crate::files::{tree, trees};
use crate::scene::{Scene, run_exclusively, with_grants};
use crate::support::{call_reply, results, run_turn, text_reply};
use agent_core::message::TurnInput;
use agent_plugins::{Access, CallLimits, Grants, ProtectedKind, ProtectedPath, TreeGrant};
use agent_runtime::{Agent, AgentConfig, LiveAgent, OpenSession, PluginAllowance, Session, TurnResult};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The content of the files outside the granted trees.
const CANARY: &str = "the canary sings";
/// A timeout that expires only if the host hangs. If the host does not hang, each wait ends immediately.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

fn grant(host: &Path, guest: &str, access: Access) -> TreeGrant {
    TreeGrant { host: host.to_owned(), guest: guest.to_owned(), access }
}

fn operations(operations: &str) -> (&'static str, Value) {
    ("intruder.deeds", json!({ "deeds": operations }))
}

/// A granted tree that contains a folder `docs`, and a folder outside the tree that contains a canary file.
struct GrantedFolder {
    outside: PathBuf,
    tree: PathBuf,
    docs: PathBuf,
}

impl GrantedFolder {
    fn new(scene: &Scene, name: &str) -> Self {
        let tree = tree(scene, &format!("tree-{name}"));
        let outside = scene.folder().join(format!("outside-{name}"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("canary"), CANARY).unwrap();
        let docs = tree.join("docs");
        std::fs::create_dir(&docs).unwrap();
        std::fs::write(docs.join("canary"), "its own words").unwrap();
        Self { outside, tree, docs }
    }

    fn assert_intact(&self, context: &impl std::fmt::Debug) {
        let names: Vec<_> = std::fs::read_dir(&self.outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["canary"], "{context:#?}");
        assert_eq!(std::fs::read_to_string(self.outside.join("canary")).unwrap(), CANARY, "{context:#?}");
    }
}

/// Row 39: A guest renames a folder in a granted tree, and the folder is replaced by a link that leads out of the tree.
/// Neither the guest's next call nor the host's own tools follow the link. The test checks the turn in which the
/// folder is renamed, the next turn, and a turn of another agent that has a grant for the folder.
#[test]
fn row_39_does_not_follow_a_link_that_replaces_a_granted_folder() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat: usize| {
            let granted = GrantedFolder::new(&scene, &format!("link-{repeat}"));
            let name = granted.outside.file_name().unwrap().to_str().unwrap();
            let grants = Grants {
                trees: vec![
                    grant(&granted.tree, "tree", Access::ReadWrite),
                    grant(&granted.docs, "docs", Access::ReadWrite),
                ],
                ..Grants::default()
            };
            let mut config = with_grants("intruder", grants, CallLimits::default());
            config.host_trees = vec![grant(&granted.docs, "docs", Access::Read)];
            // A guest cannot create a link that leads out of the tree, so the test creates the link at the moment when
            // the guest renames the folder.
            let swap = format!(
                "read docs/canary; move tree/docs tree/moved; symlink ../{name} tree/docs; sleep 500; list tree"
            );
            let (moved, link, target) = (granted.tree.join("moved"), granted.docs.clone(), granted.outside.clone());
            let helper = std::thread::spawn(move || {
                let start = Instant::now();
                while !moved.exists() && start.elapsed() < HANG_TIMEOUT {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::os::unix::fs::symlink(target, link).expect("the file does not exist");
            });
            let replies = [
                call_reply(&[operations(&swap)]),
                call_reply(&[
                    operations("read docs/canary; write docs/made x; list docs; write tree/docs/made x"),
                    ("read_file", json!({"path": "docs/canary"})),
                    ("list_directory", json!({"path": "docs"})),
                ]),
                text_reply("Done."),
                call_reply(&[
                    operations("read docs/canary; write docs/new x"),
                    ("read_file", json!({"path": "docs/canary"})),
                ]),
                text_reply("Done."),
            ];
            let mut session = scene.session(config, &replies).await;
            for _ in 0..2 {
                let result = run_turn(&mut session, "Go.").await;
                assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
            }
            let results = results(&scene.test_host, &session).await;
            session.close().await.expect("the session closes");
            helper.join().expect("the link was created");
            let text = format!("{results:?}");
            assert!(text.contains("docs@"), "the link exists: {text}");
            assert!(!text.contains("sings"), "{text}");
            assert!(text.contains("its own words"), "the granted folder can still be read: {text}");
            granted.assert_intact(&text);
            // The host opens the folder `docs` as a granted tree for the first time, so it refuses the link that has
            // replaced the folder.
            let config = with_grants("intruder", trees(&[(&granted.docs, Access::ReadWrite)]), CallLimits::default());
            let (_, text) = scene.call(config, "intruder.deeds", operations("read docs/canary").1).await;
            assert!(!text.contains("sings"), "{text}");
            granted.assert_intact(&text);
            for folder in [&granted.tree, &granted.outside] {
                std::fs::remove_dir_all(folder).unwrap();
            }
        };
        scene.repeat("row 39, a folder that becomes a link", attack).await;
    });
}

/// Operations that might replace `agent.toml` or another file that the host reads.
const ATTACKS: [&str; 28] = [
    "write tree/agent.toml x",
    "append tree/agent.toml x",
    "size tree/agent.toml 0",
    "remove tree/agent.toml",
    "move tree/agent.toml tree/away",
    "write tree/new x; move tree/new tree/agent.toml",
    "twin tree/agent.toml tree/twin; write tree/twin x",
    "symlink agent.toml tree/link; write tree/link x",
    "write tree/prepared-twin x",
    "size tree/prepared-twin 1",
    "move tree/plugins tree/away; mkdir tree/plugins",
    "write tree/plugins/new.wasm x",
    "write tree/plugins/deep/new x",
    "mkdir tree/plugins/folder",
    "rmdir tree/plugins/deep",
    "symlink ../tree tree/plugins/link",
    "write tree/sub/later/plan.toml x",
    "mkdir tree/sub/later",
    "symlink ../outside tree/sub/later",
    "move tree/sub tree/other",
    "write tree/sub/AGENT.TOML x",
    "write tree/sub/plugins.lock x",
    "write tree/agents/evil.toml x",
    "append tree/code-twin x; write tree/./sub/../agent.toml x",
    "write tree/.agent-host-draft x",
    "write tree/sub/.agent-host-new x",
    "write tree/new x; remove tree/.agent-host-draft; move tree/new tree/.agent-host-draft",
    "twin tree/.agent-host-draft tree/twin; write tree/twin x",
];

/// Row 40, P13: even with grants, a guest cannot create or change a file that the host reads for its decisions, and
/// cannot change the path to such a file. A guest can write the other files of the same folder.
#[test]
fn row_40_no_grant_lets_a_plugin_change_decision_files() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let folder = tree(&scene, "guarded");
        for name in ["plugins/deep", "sub", "agents", "data"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        // The host writes such a file before it gives the file the name `agent.toml`.
        for name in ["agent.toml", "plugins/code.wasm", "data/secret", ".agent-host-draft"] {
            std::fs::write(folder.join(name), CANARY).unwrap();
        }
        std::fs::hard_link(folder.join("agent.toml"), folder.join("prepared-twin")).unwrap();
        std::fs::hard_link(folder.join("plugins/code.wasm"), folder.join("code-twin")).unwrap();
        let protected = [
            ("agent.toml", ProtectedKind::File),
            ("plugins", ProtectedKind::Folder),
            ("sub/later/plan.toml", ProtectedKind::File),
            ("agents", ProtectedKind::AgentFiles),
            ("data", ProtectedKind::PrivateFolder),
        ];
        scene.test_host.sandbox.protect(protected.map(|(path, kind)| ProtectedPath {
            path: folder.join(path),
            what: "the host's own file".to_owned(),
            kind,
        }));
        let attack = async |_| {
            let grants = || Grants { trees: vec![grant(&folder, "tree", Access::ReadWrite)], ..Grants::default() };
            let config = || with_grants("intruder", grants(), CallLimits::default());
            for attack in ATTACKS {
                let (_, text) = scene.call(config(), "intruder.deeds", operations(attack).1).await;
                let content = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
                assert_eq!(content("agent.toml").as_deref(), Some(CANARY), "{attack}: {text}");
                assert_eq!(content("plugins/code.wasm").as_deref(), Some(CANARY), "{attack}: {text}");
                assert_eq!(content(".agent-host-draft").as_deref(), Some(CANARY), "{attack}: {text}");
                let mut names: Vec<_> = std::fs::read_dir(folder.join("plugins"))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
                    .collect();
                names.sort();
                assert_eq!(names, ["code.wasm", "deep"], "{attack}: {text}");
                for absent in [
                    "sub/later",
                    "sub/AGENT.TOML",
                    "sub/plugins.lock",
                    "sub/.agent-host-new",
                    "agents/evil.toml",
                    "other",
                    "plugins/deep/new",
                ] {
                    assert!(folder.join(absent).symlink_metadata().is_err(), "{attack} created {absent}: {text}");
                }
                for created in ["new", "twin", "link", "away"] {
                    let _ = std::fs::remove_file(folder.join(created));
                }
            }
            let allowed = "write tree/honest x; write tree/sub/honest x; write tree/Cargo.toml x; read tree/agent.toml; read tree/data/secret; list tree/data";
            let (_, text) = scene.call(config(), "intruder.deeds", operations(allowed).1).await;
            assert!(folder.join("honest").exists() && folder.join("sub/honest").exists(), "{text}");
            assert!(
                folder.join("Cargo.toml").exists() && text.matches("sings").count() == 1,
                "of the protected files, only the configuration can be read: {text}"
            );
            let failing = operations("write tree/agent.toml x; fail").1;
            let (is_error, text) = scene.call(config(), "intruder.deeds", failing).await;
            assert!(is_error && text.contains("the host's own file") && text.contains("no grant allows"), "{text}");
        };
        scene.repeat("row 40, protected files", attack).await;
    });
}

/// Row 44: The bytes and entries that a turn adds to a tree are limited. The limits apply to the total of all
/// operations in all calls of a turn. If a call removes a file, the file's bytes and entry no longer count towards the
/// limits. The error names the limit and the plugin.
#[test]
fn row_44_limits_what_a_turn_adds_to_a_tree() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat: usize| {
            let folder = tree(&scene, &format!("filled-{repeat}"));
            let limits = CallLimits { tree_bytes: 1 << 20, tree_entries: 20, ..CallLimits::default() };
            let grants = || Grants { trees: vec![grant(&folder, "tree", Access::ReadWrite)], ..Grants::default() };
            let config = || with_grants("intruder", grants(), limits);
            for (attack, limit) in [
                ("fill tree/full 2048; fail", "tree_mib"),
                ("size tree/sparse 1099511627776; fail", "tree_mib"),
                ("folders tree 1000; fail", "tree_entries"),
            ] {
                scene.check_stopped(config(), ("intruder", "intruder.deeds", operations(attack).1), limit).await;
            }
            let bytes = |folder: &Path| -> u64 {
                std::fs::read_dir(folder)
                    .unwrap()
                    .map(|entry| entry.unwrap().metadata().unwrap())
                    .filter(|found| found.is_file())
                    .map(|found| found.len())
                    .sum()
            };
            assert!(bytes(&folder) <= (1 << 20) + 16, "{}", bytes(&folder));
            assert!(std::fs::read_dir(&folder).unwrap().count() <= 1 + 2 + 20);
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::create_dir(&folder).unwrap();
            // All calls of a turn share one quota. The bytes of removed files no longer count towards the quota.
            let replies = [
                call_reply(&[operations("fill tree/a 700")]),
                call_reply(&[operations("fill tree/b 700; list tree")]),
                call_reply(&[operations("remove tree/a; remove tree/b; fill tree/c 1000; read tree/none")]),
                text_reply("Done."),
            ];
            let mut session = scene.session(config(), &replies).await;
            let result = run_turn(&mut session, "Go.").await;
            assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
            let results = results(&scene.test_host, &session).await;
            session.close().await.expect("the session closes");
            assert!(!results[1].2.contains("fill tree/b 700: \n"), "the first call counts too: {results:?}");
            assert!(results[2].2.contains("fill tree/c 1000: \n"), "{results:?}");
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat("row 44, a full tree", attack).await;
    });
}

/// Row 48: If a grant is revoked while a call runs, the call's next operation is refused, even through an open handle.
#[test]
fn row_48_a_running_call_loses_revoked_grants() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat: usize| {
            let folder = tree(&scene, &format!("revoked-{repeat}"));
            let grants = Grants { trees: vec![grant(&folder, "tree", Access::ReadWrite)], ..Grants::default() };
            let config = with_grants("intruder", grants, CallLimits::default());
            let call = operations("write tree/begun x; sleep 1500; write tree/after x; read tree/own.txt; list tree");
            let provider = scene.folder().join(format!("revoked-{repeat}.json"));
            let script = crate::support::script(&[call_reply(&[call]), text_reply("Done.")]);
            std::fs::write(&provider, script.to_string()).unwrap();
            let name = format!("scripted:{}", provider.display());
            let model = agent_models::provider(&name, scene.folder()).unwrap_or_else(|error| panic!("{error}"));
            let agent =
                Agent::new(config.clone(), model, scene.generation.clone()).unwrap_or_else(|error| panic!("{error}"));
            let live = LiveAgent::new(Arc::new(agent));
            let mut session = Session::open(&scene.test_host.host(), live.clone(), OpenSession::New)
                .await
                .expect("the session opens");
            let running = tokio::spawn(async move {
                let input = Some(TurnInput::Text("Go.".to_owned()));
                let result = session.run(input, CancellationToken::new()).await;
                (session, result)
            });
            let start = Instant::now();
            while !folder.join("begun").exists() {
                assert!(start.elapsed() < HANG_TIMEOUT, "the call does not start");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let without_grants =
                AgentConfig { plugins: [("intruder".to_owned(), PluginAllowance::default())].into(), ..config };
            live.change(|agent| agent.with_config(without_grants)).unwrap_or_else(|error| panic!("{error}"));
            let (session, result) = running.await.unwrap();
            assert!(matches!(result, Ok(TurnResult::Finished(_))), "{result:?}");
            let results = results(&scene.test_host, &session).await;
            session.close().await.expect("the session closes");
            assert!(!folder.join("after").exists(), "{results:?}");
            assert!(!results[0].2.contains("its own words"), "{results:?}");
            assert_eq!(live.revoked("intruder").trees.len(), 1, "the revoked grant is known");
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat_times("row 48, a revocation", 1, attack).await;
    });
}

/// A random number generator with a fixed seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    /// Returns random file operations on the trees with these names.
    fn operations(&mut self, trees: &[&str], outside: &str) -> String {
        let names =
            ["docs", "docs/a", "a", "b", "docs/b", "agent.toml", "docs/agent.toml", "docs/docs", ".", "a/b", "own.txt"];
        let targets = ["..", "../..", ".", "docs", "a", "agent.toml", "docs/a", "/etc"];
        let mut operations = Vec::new();
        for _ in 0..40 {
            let path = format!("{}/{}", self.pick(trees), self.pick(&names));
            let other_path = format!("{}/{}", self.pick(trees), self.pick(&names));
            let target = match self.below(3) {
                0 => format!("../{outside}"),
                1 => format!("../../{outside}"),
                _ => self.pick(&targets).to_owned(),
            };
            operations.push(match self.below(12) {
                0 | 1 => format!("move {path} {other_path}"),
                2 | 3 => format!("symlink {target} {path}"),
                4 => format!("mkdir {path}"),
                5 => format!("rmdir {path}"),
                6 => format!("remove {path}"),
                7 => format!("write {path}/canary x"),
                8 => format!("write {path} x"),
                9 => format!("twin {path} {other_path}"),
                10 => format!("append {path} x"),
                _ => format!("read {path}/canary"),
            });
        }
        operations.join("; ")
    }
}

/// Rows 39 and 40: Guests and the host's tools perform random operations on overlapping trees at the same time. Nothing
/// outside the trees is read or changed, and protected files stay unchanged.
#[test]
fn row_39_random_operations_change_nothing_outside_the_trees() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat: usize| {
            let granted = GrantedFolder::new(&scene, &format!("random-{repeat}"));
            let configuration = granted.docs.join("agent.toml");
            std::fs::write(&configuration, CANARY.to_uppercase()).unwrap();
            let what = "the agent's configuration".to_owned();
            scene.test_host.sandbox.protect([ProtectedPath {
                path: configuration.clone(),
                what,
                kind: ProtectedKind::File,
            }]);
            let outside = granted.outside.file_name().unwrap().to_str().unwrap();
            let mut rng = Rng(0x9E37_79B9_7F4A_7C15 ^ (repeat as u64 + 1));
            let all_trees =
                [grant(&granted.tree, "tree", Access::ReadWrite), grant(&granted.docs, "docs", Access::ReadWrite)];
            let turns =
                [&all_trees[..], &all_trees[..1], &all_trees[1..]].into_iter().enumerate().map(|(number, trees)| {
                    let names: Vec<_> = trees.iter().map(|tree| tree.guest.as_str()).collect();
                    let grants = Grants { trees: trees.to_vec(), ..Grants::default() };
                    let mut config = with_grants("intruder", grants, CallLimits::default());
                    config.name = format!("random-{repeat}-{number}");
                    config.host_trees = trees.to_vec();
                    let calls: Vec<_> = (0..3)
                        .map(|_| operations(&rng.operations(&names, outside)))
                        .chain(names.iter().flat_map(|name| {
                            let read = json!({"path": format!("{name}/docs/canary")});
                            [("read_file", read), ("list_directory", json!({"path": format!("{name}/docs")}))]
                        }))
                        .collect();
                    (config, calls)
                });
            let turns: Vec<_> = turns.collect();
            let scene = &scene;
            let working = turns.into_iter().map(|(config, calls)| async move { scene.calls(config, &calls).await });
            let results = futures::future::join_all(working).await;
            assert!(!format!("{results:?}").contains("sings"), "{results:#?}");
            granted.assert_intact(&results);
            assert_eq!(std::fs::read_to_string(&configuration).unwrap(), CANARY.to_uppercase(), "{results:#?}");
            for folder in [&granted.tree, &granted.outside] {
                std::fs::remove_dir_all(folder).unwrap();
            }
        };
        scene.repeat_times("row 39, random operations", 12, attack).await;
    });
}

/// Row 44: A file that is in two granted trees can be renamed from its path in one tree to its path in the other. The
/// rename does not move the file, because both paths lead to the same file. The bytes of the file still count towards
/// the quota.
#[test]
fn row_44_a_rename_to_itself_frees_no_quota() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat: usize| {
            let folder = tree(&scene, &format!("renamed-{repeat}"));
            std::fs::create_dir(folder.join("docs")).unwrap();
            let limits = CallLimits { tree_bytes: 1 << 20, tree_entries: 20, ..CallLimits::default() };
            let trees =
                vec![grant(&folder, "tree", Access::ReadWrite), grant(&folder.join("docs"), "docs", Access::ReadWrite)];
            let config = with_grants("intruder", Grants { trees, ..Grants::default() }, limits);
            let operations = "fill tree/docs/a 700; move tree/docs/a docs/a; fill tree/b 700; fail";
            let call = ("intruder", "intruder.deeds", json!({ "deeds": operations }));
            scene.check_stopped(config, call, "tree_mib").await;
            let sizes = ["docs/a", "b"].map(|name| std::fs::metadata(folder.join(name)).map_or(0, |found| found.len()));
            assert!(sizes.iter().sum::<u64>() <= 1 << 20, "{sizes:?}");
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat("row 44, a rename to itself", attack).await;
    });
}
