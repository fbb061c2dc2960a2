//! Rows 12 and 33: A plugin can neither read nor change files outside the granted trees, and it cannot change read-only
//! trees.

use crate::scene::{SHORT_TIME_LIMIT, Scene, run_exclusively, with_grants, with_short_calls};
use agent_plugins::{Access, CallLimits, Grants, TreeGrant};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The content of the files outside the granted trees.
const CANARY: &str = "the canary sings";

/// Creates a tree with this name in the scene's folder, with one file.
pub(crate) fn tree(scene: &Scene, name: &str) -> PathBuf {
    let folder = scene.folder().join(name);
    std::fs::create_dir(&folder).expect("the folder is new");
    std::fs::write(folder.join("own.txt"), "its own words").expect("the file can be written");
    folder
}

/// Returns grants for these trees. The guest sees each tree under the name of the tree's folder.
pub(crate) fn trees(trees: &[(&Path, Access)]) -> Grants {
    let tree = |(folder, access): &(&Path, Access)| TreeGrant {
        host: folder.to_path_buf(),
        guest: folder.file_name().expect("the tree has a name").to_string_lossy().into_owned(),
        access: *access,
    };
    Grants { trees: trees.iter().map(tree).collect(), ..Grants::default() }
}

/// A granted tree that is readable, a granted tree that is writable, and a folder outside both trees. Both trees
/// contain links that lead out of their tree.
struct EscapeTrees {
    outside: PathBuf,
    readable: PathBuf,
    writable: PathBuf,
}

impl EscapeTrees {
    fn new(scene: &Scene, repeat: usize) -> Self {
        let folder = |name: &str| {
            let path = scene.folder().join(format!("{name}{repeat}"));
            std::fs::create_dir(&path).expect("the folder is new");
            path
        };
        let (outside, readable, writable) = (folder("outside"), folder("readable"), folder("writable"));
        std::fs::write(outside.join("canary"), CANARY).unwrap();
        std::fs::create_dir(outside.join("cage")).unwrap();
        std::fs::write(outside.join("cage/bird"), CANARY).unwrap();
        for tree in [&readable, &writable] {
            std::fs::write(tree.join("own.txt"), "its own words").unwrap();
            std::fs::create_dir_all(tree.join("folder/deeper")).unwrap();
            std::fs::write(tree.join("folder/file"), "its own words").unwrap();
            symlink(outside.join("canary"), tree.join("absolute")).unwrap();
            symlink(&outside, tree.join("way-out")).unwrap();
            let name = outside.file_name().unwrap().to_string_lossy().into_owned();
            symlink(format!("../{name}/canary"), tree.join("relative")).unwrap();
            symlink(format!("folder/../../{name}"), tree.join("roundabout")).unwrap();
            symlink("chain-2", tree.join("chain-1")).unwrap();
            symlink("folder/chain-3", tree.join("chain-2")).unwrap();
            symlink(format!("../../{name}"), tree.join("folder/chain-3")).unwrap();
            symlink("circle", tree.join("circle")).unwrap();
            symlink("/proc/self/root", tree.join("process")).unwrap();
            symlink("/proc/self/fd", tree.join("handles")).unwrap();
            symlink("own.txt", tree.join("inside")).unwrap();
            symlink("folder", tree.join("inside-folder")).unwrap();
        }
        Self { outside, readable, writable }
    }

    /// Paths that lead out of the trees, or to files that already exist.
    fn escape_paths(&self) -> Vec<String> {
        let name = self.outside.file_name().unwrap().to_string_lossy().into_owned();
        let absolute = self.outside.display().to_string();
        let mut paths: Vec<String> = ["canary", "canary/", "cage", "cage/", "cage/bird", "new"]
            .iter()
            .flat_map(|inner| {
                let escapes =
                    ["way-out", "way-out/.", "roundabout", "chain-1", "./chain-2", "folder/chain-3", "way-out//"];
                escapes
                    .iter()
                    .map(|escape| format!("{escape}/{inner}"))
                    .chain([
                        format!("../{name}/{inner}"),
                        format!("folder/../../{name}/{inner}"),
                        format!("inside-folder/../../{name}/{inner}"),
                        format!("folder/deeper/../../../{name}/{inner}"),
                        format!("{absolute}/{inner}"),
                        format!("process{absolute}/{inner}"),
                    ])
                    .collect::<Vec<_>>()
            })
            .collect();
        for path in
            ["absolute", "absolute/", "relative", "way-out", "way-out/", "..", "../", "/", "", "chain-1/", "circle"]
        {
            paths.push(path.to_owned());
        }
        for path in
            ["process/etc/passwd", "/etc/passwd", "handles/0", "handles/3", "\0", "own.txt\0/../..", "..\\canary"]
        {
            paths.push(path.to_owned());
        }
        paths
    }
}

/// Returns all files below a folder, with their types, link targets and contents.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_symlink() {
            format!("→ {}", std::fs::read_link(&path).unwrap().display())
        } else if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else {
            std::fs::read_to_string(&path).unwrap()
        };
        let times = format!("{}.{}", metadata.mtime(), metadata.mtime_nsec());
        found.insert(path, format!("{:o} {} {times} {content}", metadata.mode(), metadata.nlink()));
    }
    found
}

/// Row 12: A guest tries every operation with every path that leads out of a tree, in a writable tree and in a
/// read-only tree. Nothing outside the granted trees is read, created, changed or removed, and nothing in the read-only
/// tree changes.
#[test]
fn row_12_no_operation_leaves_the_granted_trees() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat| {
            let escape_trees = EscapeTrees::new(&scene, repeat);
            let before = (snapshot(&escape_trees.outside), snapshot(&escape_trees.readable));
            let trees =
                || trees(&[(&escape_trees.writable, Access::ReadWrite), (&escape_trees.readable, Access::Read)]);
            let config = with_grants("intruder", trees(), CallLimits::default());
            let paths = escape_trees.escape_paths();
            let (is_error, text) = scene.call(config, "intruder.paths", json!({"paths": paths})).await;
            assert!(!is_error, "{text}");
            let done: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert!(done.len() > 20, "allowed operations succeed: {done:?}");
            let read: Vec<_> =
                done.iter().filter(|action| action.contains("sings") || action.contains("root:")).collect();
            assert!(read.is_empty(), "{read:?}");
            assert_eq!(snapshot(&escape_trees.outside), before.0, "{done:#?}");
            assert_eq!(snapshot(&escape_trees.readable), before.1, "{done:#?}");
            remove(&escape_trees);
        };
        scene.repeat("row 12, ways out", attack).await;
    });
}

/// Row 12, P6: In a tree that is granted for reading, operations cannot change anything, even through an open handle.
/// A handle of one granted tree does not give access to another granted tree.
#[test]
fn row_12_a_read_only_tree_is_not_changed() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat| {
            let escape_trees = EscapeTrees::new(&scene, repeat);
            let before = snapshot(&escape_trees.readable);
            let trees =
                || trees(&[(&escape_trees.readable, Access::Read), (&escape_trees.writable, Access::ReadWrite)]);
            let paths =
                ["own.txt", "folder", "folder/file", "folder/deeper", "inside", "inside-folder/file", "new", "."];
            let config = with_grants("intruder", trees(), CallLimits::default());
            let calls = [
                ("intruder.handles", json!({"paths": paths})),
                ("intruder.paths", json!({"paths": paths})),
                ("intruder.handles", json!({"paths": paths})),
            ];
            let results = scene.calls(config, &calls).await;
            assert!(results.iter().all(|(is_error, _)| !is_error), "{results:?}");
            assert!(results[1].1.contains("its own words"), "reading is allowed: {}", results[1].1);
            assert_eq!(snapshot(&escape_trees.readable), before, "{results:#?}");
            remove(&escape_trees);
        };
        scene.repeat("row 12, a readable tree", attack).await;
    });
}

fn remove(escape_trees: &EscapeTrees) {
    for folder in [&escape_trees.outside, &escape_trees.readable, &escape_trees.writable] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Row 12: While a guest opens files in a folder, the test repeatedly swaps the folder and a link that leads out of the
/// tree.
#[test]
fn row_12_does_not_follow_a_folder_that_becomes_a_link() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "moving");
        let outside = scene.folder().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), CANARY).unwrap();
        std::fs::create_dir(tree.join("honest")).unwrap();
        std::fs::write(tree.join("honest/file"), "its own words").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        let attack = async |_| {
            let is_over = Arc::new(AtomicBool::new(false));
            let swapping = std::thread::spawn({
                let (is_over, tree) = (is_over.clone(), tree.clone());
                move || {
                    while !is_over.load(Ordering::Relaxed) {
                        for (from, to) in [("honest", "way"), ("way", "honest"), ("link", "way"), ("way", "link")] {
                            std::fs::rename(tree.join(from), tree.join(to)).unwrap();
                        }
                    }
                }
            });
            let config = with_grants("intruder", trees(&[(&tree, Access::ReadWrite)]), CallLimits::default());
            let often = |times: u32| json!({"path": "way/file", "times": times});
            let calls = [("intruder.read_often", often(3_000)), ("intruder.write_often", often(1_000))];
            let results = scene.calls(config, &calls).await;
            is_over.store(true, Ordering::Relaxed);
            swapping.join().unwrap();
            assert!(results.iter().all(|(is_error, _)| !is_error), "{results:?}");
            // The reading call and the writing call run at the same time, so the reading call may read the text that
            // the writing call has written.
            let is_real_folder_visited =
                ["its own words", "overwritten by the intruder"].iter().any(|words| results[0].1.contains(words));
            assert!(is_real_folder_visited, "the guest also opened files in the real folder: {results:?}");
            assert!(!results[0].1.contains("sings"), "{results:?}");
            std::fs::write(tree.join("honest/file"), "its own words").unwrap();
            assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), CANARY);
        };
        scene.repeat("row 12, a race", attack).await;
    });
}

/// Row 33: If a granted tree contains pipes, sockets, devices or links to files below `/proc`, opening them is refused
/// immediately, and no call blocks.
#[test]
fn row_33_refuses_special_files() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "odd");
        let mkfifo = std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
        assert!(mkfifo.success());
        let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
        symlink("pipe", tree.join("link")).unwrap();
        symlink("/dev/zero", tree.join("zero")).unwrap();
        symlink("/dev/tty", tree.join("terminal")).unwrap();
        symlink("/proc/self/mem", tree.join("memory")).unwrap();
        symlink("/proc/self/environ", tree.join("environment")).unwrap();
        symlink("/proc/1/root/etc/passwd", tree.join("passwords")).unwrap();
        let paths =
            ["pipe", "link", "socket", "zero", "terminal", "memory", "environment", "passwords", "pipe/", "./link"];
        let attack = async |_| {
            let config = with_grants("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let call = scene.call(config, "intruder.paths", json!({"paths": paths}));
            let answered = tokio::time::timeout(Duration::from_secs(20), call).await;
            let (is_error, text) = answered.expect("the call ends before its time limit");
            assert!(!is_error, "{text}");
            let done: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let opened =
                |action: &&String| [" read ", " open ", " list ", " made"].iter().any(|word| action.contains(word));
            assert_eq!(done.iter().filter(opened).collect::<Vec<_>>(), Vec::<&String>::new());
        };
        scene.repeat("row 33, special files", attack).await;
    });
}

/// Row 33: In a writable tree, operations on a pipe or socket never wait until another process opens the other end.
#[test]
fn row_33_refuses_writable_pipes_and_sockets() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat| {
            for name in ["pipe", "socket"] {
                let tree = tree(&scene, &format!("{name}-{repeat}"));
                let mkfifo = std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
                assert!(mkfifo.success());
                let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
                let config = with_grants("intruder", trees(&[(&tree, Access::ReadWrite)]), CallLimits::default());
                let call = scene.call(config, "intruder.paths", json!({"paths": [name]}));
                let answered = tokio::time::timeout(Duration::from_secs(20), call).await;
                let (is_error, text) = answered.expect("the call ends before its time limit");
                assert!(!is_error && !text.contains(&format!(" read {name}")), "{text}");
                assert!(text.contains(&format!(" rename {name}")), "a special file can be renamed: {text}");
                std::fs::remove_dir_all(&tree).unwrap();
            }
        };
        scene.repeat("row 33, writable pipes", attack).await;
    });
}

/// Row 33: If `/dev` itself is granted, the host still refuses to open the device files in `/dev`.
#[test]
fn row_33_refuses_devices_in_a_granted_folder() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |_| {
            let config = with_short_calls("intruder", trees(&[(Path::new("/dev"), Access::Read)]));
            let (is_error, text) = scene.call(config, "intruder.drain", json!({"path": "zero", "times": 1})).await;
            assert!(is_error && text.contains("not-permitted"), "{text}");
        };
        scene.repeat("row 33, devices", attack).await;
    });
}

/// Row 33: The host reads a large folder in small parts, even if the guest opens it many times at the same time.
#[test]
fn row_33_reads_a_folder_of_many_names_in_small_parts() {
    const NAMES: usize = 20_000;
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "crowded");
        std::fs::create_dir(tree.join("many")).unwrap();
        for number in 0..NAMES {
            let name = format!("a-name-that-is-not-short-{number}");
            std::fs::hard_link(tree.join("own.txt"), tree.join("many").join(name)).unwrap();
        }
        let attack = async |_| {
            let config = with_grants("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let memory_growth = measure_peak_growth();
            let (is_error, text) = scene.call(config, "intruder.listings", json!({"path": "many", "times": 300})).await;
            let growth = memory_growth();
            assert!(!is_error, "{text}");
            let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(output_text, json!({"begun": 300, "names": NAMES}));
            // If the host read the whole folder each time, it would need about 600 MiB of memory.
            assert!(growth < 100 << 20, "{} MiB more", growth >> 20);
        };
        scene.repeat("row 33, a folder of many names", attack).await;
    });
}

/// Returns a closure that reports how much the peak memory of this process has grown since the closure was created.
fn measure_peak_growth() -> impl Fn() -> usize {
    let read = |word: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    // Writing the value 5 to this file resets the peak memory of the process.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = read("VmRSS:");
    move || read("VmHWM:").saturating_sub(before)
}

/// Row 33: A guest reads a file of one tebibyte in small pieces until the guest's memory is full. An endless loop of
/// reads is stopped at the time limit of the call.
#[test]
fn row_33_stops_reading_endless_files() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "sparse");
        let huge = std::fs::File::create(tree.join("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let attack = async |_| {
            let config = with_grants("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let call = scene.call(config, "intruder.drain", json!({"path": "huge", "times": 100}));
            let (is_error, text) = call.await;
            let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert!(
                is_error && error["message"].as_str().is_some_and(|output_text| output_text.contains("bytes at once")),
                "{text}"
            );
            let largest: usize =
                text.split_whitespace().find_map(|word| word.parse().ok()).expect("the message contains a number");
            assert!(largest <= 1 << 20, "a read returns {largest} bytes at once");
            let config = with_short_calls("intruder", trees(&[(&tree, Access::Read)]));
            let often = json!({"path": "huge", "times": 100_000_000});
            let limit = format!("wall time of {SHORT_TIME_LIMIT:?}");
            scene.check_stopped(config, ("intruder", "intruder.read_often", often), &limit).await;
        };
        scene.repeat("row 33, a huge file", attack).await;
    });
}
