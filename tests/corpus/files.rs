//! Files: rows 12 and 33. What lies outside of the granted trees stays as it is and unread, and so does what is only granted
//! for reading.

use crate::scene::{SHORT, Scene, alone, granted, hurried};
use agent_plugins::{Access, CallLimits, Grants, TreeGrant};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What stands in every file outside.
const CANARY: &str = "the canary sings";

/// A granted tree of the scene's, by a name of its own, with a file in it.
pub(crate) fn tree(scene: &Scene, name: &str) -> PathBuf {
    let folder = scene.folder().join(name);
    std::fs::create_dir(&folder).expect("a fresh folder");
    std::fs::write(folder.join("own.txt"), "its own words").expect("a fresh file");
    folder
}

/// Grants of these trees, which the guest knows by their folders' names.
pub(crate) fn trees(trees: &[(&Path, Access)]) -> Grants {
    let tree = |(folder, access): &(&Path, Access)| TreeGrant {
        host: folder.to_path_buf(),
        guest: folder.file_name().expect("a name").to_string_lossy().into_owned(),
        access: *access,
    };
    Grants { trees: trees.iter().map(tree).collect(), ..Grants::default() }
}

/// A folder outside, one that may be read and one that may be written, each full of ways out.
struct Grounds {
    outside: PathBuf,
    readable: PathBuf,
    writable: PathBuf,
}

impl Grounds {
    fn new(scene: &Scene, time: usize) -> Self {
        let folder = |name: &str| {
            let path = scene.folder().join(format!("{name}{time}"));
            std::fs::create_dir(&path).expect("a fresh folder");
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

    /// Paths out of the trees, and into what is there already.
    fn ways_out(&self) -> Vec<String> {
        let name = self.outside.file_name().unwrap().to_string_lossy().into_owned();
        let absolute = self.outside.display().to_string();
        let mut paths: Vec<String> = ["canary", "canary/", "cage", "cage/", "cage/bird", "new"]
            .iter()
            .flat_map(|inner| {
                let ways =
                    ["way-out", "way-out/.", "roundabout", "chain-1", "./chain-2", "folder/chain-3", "way-out//"];
                ways.iter()
                    .map(|way| format!("{way}/{inner}"))
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

/// All files below a folder with what they are, where they lead and what is in them.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let about = path.symlink_metadata().unwrap();
        let content = if about.is_symlink() {
            format!("→ {}", std::fs::read_link(&path).unwrap().display())
        } else if about.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else {
            std::fs::read_to_string(&path).unwrap()
        };
        let times = format!("{}.{}", about.mtime(), about.mtime_nsec());
        found.insert(path, format!("{:o} {} {times} {content}", about.mode(), about.nlink()));
    }
    found
}

/// Row 12: every operation with every way out, from a tree that may be written and from one that may be read: outside nothing
/// is read, made, changed or removed, and the readable tree is as it was to the last bit.
#[test]
fn row_12_every_operation_and_every_way_out() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |time| {
            let grounds = Grounds::new(&scene, time);
            let before = (snapshot(&grounds.outside), snapshot(&grounds.readable));
            let trees = || trees(&[(&grounds.writable, Access::ReadWrite), (&grounds.readable, Access::Read)]);
            let config = granted("intruder", trees(), CallLimits::default());
            let paths = grounds.ways_out();
            let (is_error, text) = scene.call(config, "intruder.paths", json!({"paths": paths})).await;
            assert!(!is_error, "{text}");
            let done: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert!(done.len() > 20, "what is allowed is done: {done:?}");
            let read: Vec<_> = done.iter().filter(|deed| deed.contains("sings") || deed.contains("root:")).collect();
            assert!(read.is_empty(), "{read:?}");
            assert_eq!(snapshot(&grounds.outside), before.0, "{done:#?}");
            assert_eq!(snapshot(&grounds.readable), before.1, "{done:#?}");
            remove(&grounds);
        };
        scene.repeat("row 12, ways out", attack).await;
    });
}

/// Row 12, P6: nothing in a tree that is granted for reading is changed by any operation on what is honestly in it, nor through
/// handles that were opened for reading; where two trees are granted, neither is a way into the other.
#[test]
fn row_12_a_readable_tree_stays_as_it_is() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |time| {
            let grounds = Grounds::new(&scene, time);
            let before = snapshot(&grounds.readable);
            let trees = || trees(&[(&grounds.readable, Access::Read), (&grounds.writable, Access::ReadWrite)]);
            let paths =
                ["own.txt", "folder", "folder/file", "folder/deeper", "inside", "inside-folder/file", "new", "."];
            let config = granted("intruder", trees(), CallLimits::default());
            let calls = [
                ("intruder.handles", json!({"paths": paths})),
                ("intruder.paths", json!({"paths": paths})),
                ("intruder.handles", json!({"paths": paths})),
            ];
            let results = scene.calls(config, &calls).await;
            assert!(results.iter().all(|(is_error, _)| !is_error), "{results:?}");
            assert!(results[1].1.contains("its own words"), "reading is allowed: {}", results[1].1);
            assert_eq!(snapshot(&grounds.readable), before, "{results:#?}");
            remove(&grounds);
        };
        scene.repeat("row 12, a readable tree", attack).await;
    });
}

fn remove(grounds: &Grounds) {
    for folder in [&grounds.outside, &grounds.readable, &grounds.writable] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Row 12: a folder that is swapped for a link to the outside, over and over, while a guest walks through it.
#[test]
fn row_12_a_link_that_appears_while_walking() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "moving");
        let outside = scene.folder().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), CANARY).unwrap();
        std::fs::create_dir(tree.join("honest")).unwrap();
        std::fs::write(tree.join("honest/file"), "its own words").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        let attack = async |_| {
            let over = Arc::new(AtomicBool::new(false));
            let swapping = std::thread::spawn({
                let (over, tree) = (over.clone(), tree.clone());
                move || {
                    while !over.load(Ordering::Relaxed) {
                        for (from, to) in [("honest", "way"), ("way", "honest"), ("link", "way"), ("way", "link")] {
                            std::fs::rename(tree.join(from), tree.join(to)).unwrap();
                        }
                    }
                }
            });
            let config = granted("intruder", trees(&[(&tree, Access::ReadWrite)]), CallLimits::default());
            let often = |times: u32| json!({"path": "way/file", "times": times});
            let calls = [("intruder.read_often", often(3_000)), ("intruder.write_often", often(1_000))];
            let results = scene.calls(config, &calls).await;
            over.store(true, Ordering::Relaxed);
            swapping.join().unwrap();
            assert!(results.iter().all(|(is_error, _)| !is_error), "{results:?}");
            // Both calls run at once, so that one may read what the other has written.
            let honest =
                ["its own words", "overwritten by the intruder"].iter().any(|words| results[0].1.contains(words));
            assert!(honest, "the honest folder is met, too: {results:?}");
            assert!(!results[0].1.contains("sings"), "{results:?}");
            std::fs::write(tree.join("honest/file"), "its own words").unwrap();
            assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), CANARY);
        };
        scene.repeat("row 12, a race", attack).await;
    });
}

/// Row 33: pipes, sockets, devices, and links below `/proc` in a granted tree are refused at once, and nothing waits behind
/// them.
#[test]
fn row_33_files_that_are_none() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "odd");
        let made = std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
        assert!(made.success());
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
            let config = granted("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let call = scene.call(config, "intruder.paths", json!({"paths": paths}));
            let answered = tokio::time::timeout(Duration::from_secs(20), call).await;
            let (is_error, text) = answered.expect("refused at once, not at the end of its time");
            assert!(!is_error, "{text}");
            let done: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let opened =
                |deed: &&String| [" read ", " open ", " list ", " made"].iter().any(|word| deed.contains(word));
            assert_eq!(done.iter().filter(opened).collect::<Vec<_>>(), Vec::<&String>::new());
        };
        scene.repeat("row 33, files that are none", attack).await;
    });
}

/// Row 33: the same where everything may be written: no operation waits for the other end of a pipe.
#[test]
fn row_33_pipes_and_sockets_that_may_be_written() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |time| {
            for name in ["pipe", "socket"] {
                let tree = tree(&scene, &format!("{name}-{time}"));
                let made = std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
                assert!(made.success());
                let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
                let config = granted("intruder", trees(&[(&tree, Access::ReadWrite)]), CallLimits::default());
                let call = scene.call(config, "intruder.paths", json!({"paths": [name]}));
                let answered = tokio::time::timeout(Duration::from_secs(20), call).await;
                let (is_error, text) = answered.expect("refused at once, not at the end of its time");
                assert!(!is_error && !text.contains(&format!(" read {name}")), "{text}");
                assert!(text.contains(&format!(" rename {name}")), "it may be moved: {text}");
                std::fs::remove_dir_all(&tree).unwrap();
            }
        };
        scene.repeat("row 33, writable pipes", attack).await;
    });
}

/// Row 33: the device files of a granted `/dev` are refused, too: it is not a link that matters.
#[test]
fn row_33_a_granted_folder_of_devices() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |_| {
            let config = hurried("intruder", trees(&[(Path::new("/dev"), Access::Read)]));
            let (is_error, text) = scene.call(config, "intruder.drain", json!({"path": "zero", "times": 1})).await;
            assert!(is_error && text.contains("not-permitted"), "{text}");
        };
        scene.repeat("row 33, devices", attack).await;
    });
}

/// Row 33: a folder of very many names is read a few at a time, however often it is opened at once.
#[test]
fn row_33_a_folder_of_many_names() {
    const NAMES: usize = 20_000;
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "crowded");
        std::fs::create_dir(tree.join("many")).unwrap();
        for number in 0..NAMES {
            let name = format!("a-name-that-is-not-short-{number}");
            std::fs::hard_link(tree.join("own.txt"), tree.join("many").join(name)).unwrap();
        }
        let attack = async |_| {
            let config = granted("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let most = peak_from_here();
            let (is_error, text) = scene.call(config, "intruder.listings", json!({"path": "many", "times": 300})).await;
            let grown = most();
            assert!(!is_error, "{text}");
            let said: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(said, json!({"begun": 300, "names": NAMES}));
            // All names 300 times would be some 600 MiB.
            assert!(grown < 100 << 20, "{} MiB more", grown >> 20);
        };
        scene.repeat("row 33, a folder of many names", attack).await;
    });
}

/// From now on: how far this process's memory has grown at its peak.
fn peak_from_here() -> impl Fn() -> usize {
    let read = |word: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    // The peak begins anew.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = read("VmRSS:");
    move || read("VmHWM:").saturating_sub(before)
}

/// Row 33: a file of a tebibyte is read in small pieces until the guest's own memory ends, and files of `/proc` that never
/// end stop at the call's time.
#[test]
fn row_33_files_without_an_end() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let tree = tree(&scene, "sparse");
        let huge = std::fs::File::create(tree.join("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let attack = async |_| {
            let config = granted("intruder", trees(&[(&tree, Access::Read)]), CallLimits::default());
            let call = scene.call(config, "intruder.drain", json!({"path": "huge", "times": 100}));
            let (is_error, text) = call.await;
            let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            assert!(is_error && error["message"].as_str().is_some_and(|said| said.contains("bytes at once")), "{text}");
            let largest: usize = text.split_whitespace().find_map(|word| word.parse().ok()).expect("a number");
            assert!(largest <= 1 << 20, "{largest} bytes at once");
            let config = hurried("intruder", trees(&[(&tree, Access::Read)]));
            let often = json!({"path": "huge", "times": 100_000_000});
            let limit = format!("wall time of {SHORT:?}");
            scene.stopped(config, ("intruder", "intruder.read_often", often), &limit).await;
        };
        scene.repeat("row 33, a huge file", attack).await;
    });
}
