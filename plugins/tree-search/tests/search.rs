//! Searches real directories without a host (S7).

use agent_host_sdk::testing::Host;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tree_search::expression::{Boundaries, Expression, LetterCase, Wanted};
use tree_search::globs::Globs;
use tree_search::search::{DEFAULT_LINE_BYTES, Extra, Limits, MAX_FILE_SIZE, Search};

struct Tree {
    folder: TempDir,
    host: Host,
}

/// The options of a search that a test changes.
#[derive(Clone, Copy)]
struct Options<'a> {
    path: &'a str,
    globs: &'a [&'a str],
    extra: Extra,
    limits: Limits,
}

const OPTIONS: Options<'static> = Options {
    path: "",
    globs: &[],
    extra: Extra { hidden: false, ignored: false },
    limits: Limits { context: 0, matches: 100, line_bytes: DEFAULT_LINE_BYTES, time: Duration::from_secs(60) },
};

impl Tree {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let host = Host::new().tree(folder.path().display().to_string());
        let tree = Self { folder, host };
        for (name, content) in files {
            tree.write(name, content.as_bytes());
        }
        tree
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("the folder is made");
        fs::write(path, content).expect("the file is written");
    }

    /// Searches for the word `x`. Returns the result with paths relative to the tree.
    fn search(&mut self, options: Options<'_>) -> String {
        let root = self.folder.path().display().to_string();
        let path = if options.path.is_empty() { root.clone() } else { format!("{root}/{}", options.path) };
        let search = Search {
            path: &path,
            expression: Expression::new(Wanted::Text("x"), LetterCase::Distinct, Boundaries::WholeWords)
                .expect("a valid expression"),
            globs: Globs::parse(options.globs).expect("valid globs"),
            extra: options.extra,
            limits: options.limits,
        };
        let result = self.host.run(|| search.run()).expect("the tree is readable");
        result.replace(&format!("{root}/"), "")
    }

    /// The paths of the files with matches, in the order of the result.
    fn found(&mut self, options: Options<'_>) -> String {
        let result = self.search(options);
        let lines = result.lines().filter(|line| !line.starts_with('['));
        lines.map(|line| line.split(':').next().unwrap_or(line)).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn nested_ignore_files_and_negations_decide() {
    let mut tree = Tree::with(&[
        (".gitignore", "*.log\n/build/\n!important.log\n"),
        ("a.txt", "x"),
        ("a.log", "x"),
        ("important.log", "x"),
        ("build/out.txt", "x"),
        ("lib/build/out.txt", "x"),
        ("lib/.gitignore", "!*.log\nsecret*\n"),
        ("lib/b.log", "x"),
        ("lib/secret.txt", "x"),
        ("lib/deep/secret.md", "x"),
        ("lib/deep/.gitignore", "!secret.md\n"),
        ("lib/open/.ignore", "*\n!this.txt\n"),
        ("lib/open/this.txt", "x"),
        ("lib/open/other.txt", "x"),
    ]);
    let expected = "a.txt important.log lib/b.log lib/build/out.txt lib/deep/secret.md lib/open/this.txt";
    assert_eq!(tree.found(OPTIONS), expected);
    let last = tree.search(OPTIONS).lines().last().map(str::to_owned);
    let expected = "[6 matches in 6 files; searched 6 files; left out 5 ignored entries (such as `a.log`), \
                    3 hidden entries (such as `.gitignore`)]";
    assert_eq!(last.as_deref(), Some(expected));
    let all = Options { extra: Extra { hidden: false, ignored: true }, ..OPTIONS };
    assert_eq!(tree.found(all).split(' ').count(), 10);
}

#[test]
fn ignore_files_above_the_searched_directory_apply() {
    let mut tree = Tree::with(&[
        (".gitignore", "*.tmp\nsrc/generated/\n/x.txt\n"),
        ("src/.ignore", "old/\n"),
        ("src/lib/a.tmp", "x"),
        ("src/lib/x.txt", "x"),
        ("src/lib/old/b.txt", "x"),
        ("src/generated/c.txt", "x"),
        ("src/generated/d.tmp", "x"),
    ]);
    assert_eq!(tree.found(Options { path: "src/lib", ..OPTIONS }), "src/lib/x.txt");
    assert_eq!(tree.found(Options { path: "src", ..OPTIONS }), "src/lib/x.txt");
    // A path that the call names is searched although it is ignored. The rules for its entries still apply.
    assert_eq!(tree.found(Options { path: "src/generated", ..OPTIONS }), "src/generated/c.txt");
    assert_eq!(tree.found(Options { path: "src/lib/a.tmp", ..OPTIONS }), "src/lib/a.tmp");
}

#[test]
fn dot_ignore_takes_precedence_over_gitignore() {
    let mut tree = Tree::with(&[
        (".ignore", "!kept.log\nmanual.txt\n"),
        ("in/.gitignore", "*.log\n!manual.txt\n"),
        ("in/kept.log", "x"),
        ("in/other.log", "x"),
        ("in/manual.txt", "x"),
    ]);
    assert_eq!(tree.found(OPTIONS), "in/kept.log");
}

#[test]
fn repositories_do_not_inherit_gitignore_rules() {
    let mut tree = Tree::with(&[
        (".gitignore", "*.txt\n"),
        (".ignore", "*.md\n"),
        ("inner/.git/config", "x"),
        ("inner/a.txt", "x"),
        ("inner/b.md", "x"),
        ("inner/deep/c.txt", "x"),
        ("inner/deep/.gitignore", "d.txt\n"),
        ("inner/deep/d.txt", "x"),
        ("other/e.txt", "x"),
    ]);
    assert_eq!(tree.found(OPTIONS), "inner/a.txt inner/deep/c.txt");
    assert_eq!(tree.found(Options { path: "inner/deep", ..OPTIONS }), "inner/deep/c.txt");
}

#[test]
fn hidden_entries_need_a_rule_or_the_option() {
    let mut tree = Tree::with(&[
        (".ignore", "!.github\n.cache\n"),
        (".github/a.yml", "x"),
        (".env", "x"),
        (".cache/b", "x"),
        (".git/config", "x"),
        ("sub/.git/config", "x"),
        ("sub/.hidden/c", "x"),
    ]);
    assert_eq!(tree.found(OPTIONS), ".github/a.yml");
    let hidden = Extra { hidden: true, ignored: false };
    assert_eq!(tree.found(Options { extra: hidden, ..OPTIONS }), ".env .github/a.yml sub/.hidden/c");
    let ignored = Extra { hidden: false, ignored: true };
    assert_eq!(tree.found(Options { extra: ignored, ..OPTIONS }), ".github/a.yml");
    let both = Extra { hidden: true, ignored: true };
    assert_eq!(tree.found(Options { extra: both, ..OPTIONS }), ".cache/b .env .github/a.yml sub/.hidden/c");
    assert_eq!(tree.found(Options { path: ".git", ..OPTIONS }), ".git/config");
}

#[test]
fn says_what_was_left_out() {
    let mut tree = Tree::with(&[("a.txt", "x\nno\nx\n"), ("b.md", "no\n"), (".gitignore", "c\n"), ("c", "x")]);
    tree.write("binary", b"x\0");
    tree.write("latin", b"x \xfc\n");
    let large = fs::File::create(tree.folder.path().join("large")).expect("a temporary file");
    large.set_len(MAX_FILE_SIZE + 1).expect("a sparse file");
    assert_eq!(
        tree.search(OPTIONS),
        "a.txt:1: x\na.txt:3: x\n[2 matches in 1 file; searched 2 files; left out 1 ignored entry (such as `c`), \
         1 hidden entry (such as `.gitignore`), 1 binary file (such as `binary`), 1 file that is not UTF-8 text (such \
         as `latin`), 1 file over 4 MiB (such as `large`)]"
    );
    fs::File::create(tree.folder.path().join(".gitignore")).and_then(|file| file.set_len(300_000)).expect("a file");
    let result = tree.search(OPTIONS);
    assert!(
        result.contains("c:1: x\n") && result.contains("1 unusable ignore file (such as `.gitignore: "),
        "{result}"
    );
}

#[test]
fn limits_end_the_search_and_are_named() {
    let mut tree = Tree::with(&[("a", "x\nx\n"), ("b", "x\n"), ("c", "no\n")]);
    let limited = |limits: Limits| Options { limits, ..OPTIONS };
    let result = tree.search(limited(Limits { matches: 2, ..OPTIONS.limits }));
    let expected = "a:1: x\na:2: x\n[2 matches in 1 file; searched 2 files; stopped in `b`, before line 1, because the \
                    maximum number of matches was reached; there may be more]";
    assert_eq!(result, expected);
    let result = tree.search(limited(Limits { time: Duration::ZERO, ..OPTIONS.limits }));
    let expected = "[0 matches in 0 files; searched 0 files; stopped before `a`, after 0 files, because the time was \
                    reached; there may be more]";
    assert_eq!(result, expected);
    tree.write("a", format!("x{}\n", " y".repeat(300)).repeat(1_000).as_bytes());
    let result = tree.search(limited(Limits { matches: 1_000, ..OPTIONS.limits }));
    assert!(result.len() < 66 * 1024 && result.contains("maximum size of the result"), "{}", result.len());
}

#[test]
fn long_lines_show_the_match() {
    let mut tree = Tree::with(&[("a", &format!("{} x {}", "é".repeat(500), "ö".repeat(500)))]);
    let result = tree.search(Options { limits: Limits { line_bytes: 40, ..OPTIONS.limits }, ..OPTIONS });
    let line = result.lines().next().unwrap_or_default();
    assert!(line.contains("é x ö") && line.starts_with("a:1: …") && line.ends_with('…') && line.len() < 60, "{line}");
}

#[test]
fn context_lines_are_marked_and_not_repeated() {
    let mut tree = Tree::with(&[("a", "1\nx\n3\n4\nx\n6\n7\n8\n9\n10\nx\n"), ("b", "x\n")]);
    let result = tree.search(Options { limits: Limits { context: 2, ..OPTIONS.limits }, ..OPTIONS });
    let lines = "a:1- 1\na:2: x\na:3- 3\na:4- 4\na:5: x\na:6- 6\na:7- 7\n--\na:9- 9\na:10- 10\na:11: x\n--\nb:1: x\n";
    assert_eq!(result, format!("{lines}[4 matches in 2 files; searched 2 files]"));
}

#[test]
fn links_are_not_followed() {
    let mut tree = Tree::with(&[("real/a", "x")]);
    #[cfg(unix)]
    for (target, name) in [("real", "linked"), ("real/a", "b"), ("..", "real/up")] {
        std::os::unix::fs::symlink(target, tree.folder.path().join(name)).expect("a link");
    }
    assert_eq!(tree.found(OPTIONS), "real/a");
}

#[test]
fn globs_filter_files_and_not_directories() {
    let mut tree = Tree::with(&[("a.rs", "x"), ("src/b.rs", "x"), ("src/c.md", "x"), ("src/gen/d.rs", "x")]);
    let mut found = |globs: &[&str]| tree.found(Options { globs, ..OPTIONS });
    assert_eq!(found(&["*.rs"]), "a.rs src/b.rs src/gen/d.rs");
    assert_eq!(found(&["*.rs", "!src/gen/**"]), "a.rs src/b.rs");
    assert_eq!(found(&["src/*"]), "src/b.rs src/c.md");
}
