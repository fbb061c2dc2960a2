//! Tests of the context builder and its steps with real directories and without a host (L2, S7).

use agent_host_sdk::context_builder::{Budget, Input, Lifecycle, Memory, Prompt, Request, Section, Stability};
use agent_host_sdk::prelude::*;
use agent_host_sdk::step_context;
use agent_host_sdk::testing::{Host, model, scope};
use project_context::ProjectContext;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn project(files: &[(&str, &str)]) -> (TempDir, Host) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files {
        write(folder.path(), name, content);
    }
    let host = Host::new().tree(folder.path().display().to_string());
    (folder, host)
}

fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder is made");
    fs::write(path, content).expect("the file is written");
}

fn budget(available: u32) -> Budget {
    Budget { available, reserved: 1_000, tools: 0 }
}

fn init(host: &mut Host, available: u32) -> Prompt {
    let request = Request {
        lifecycle: Lifecycle::Init,
        scope: scope(),
        model: model(),
        input: Input::Text("hello".to_owned()),
        tools: Vec::new(),
        memory: Memory { history: Vec::new(), hidden: 0, summary: None, recollections: Vec::new() },
        budget: budget(available),
    };
    host.run(|| ProjectContext::init(request)).expect("the project is readable")
}

fn step(host: &mut Host, step: u32, state: Option<Vec<u8>>) -> Result<Vec<Section>, Failure> {
    let request = step_context::Request {
        lifecycle: Lifecycle::ToolResult,
        scope: scope(),
        model: model(),
        step,
        steps_left: 5,
        latest: Vec::new(),
        budget: budget(10_000),
        state,
    };
    host.run(|| ProjectContext::step(request))
}

fn text<'a>(prompt: &'a Prompt, name: &str) -> &'a str {
    prompt.system.iter().find(|section| section.name == name).map_or("", |section| &section.text)
}

#[test]
fn adds_notes_and_tree_as_fixed_sections() {
    let (_folder, mut host) = project(&[
        ("AGENTS.md", "Use tabs.\n"),
        ("Readme.md", "# Hello\n"),
        ("docs/notes.md", "Later.\n"),
        ("src/inner/a.rs", ""),
        ("target/x", ""),
        (".git/config", ""),
    ]);
    let prompt = init(&mut host, 100_000);
    assert_eq!(
        text(&prompt, "project-notes"),
        "--- AGENTS.md ---\nUse tabs.\n\n--- Readme.md ---\n# Hello\n\n--- docs/notes.md ---\nLater.\n"
    );
    assert_eq!(text(&prompt, "project-tree"), "AGENTS.md\nReadme.md\ndocs/\n  notes.md\nsrc/\n  inner/\n    a.rs\n");
    assert!(prompt.system.iter().all(|section| section.stability == Stability::Fixed));
}

#[test]
fn adds_nothing_without_a_grant() {
    let mut host = Host::new();
    let prompt = init(&mut host, 100_000);
    assert_eq!((prompt.system.len(), prompt.state), (0, None));
    assert_eq!(host.log().len(), 1);
}

#[test]
fn sections_use_at_most_a_quarter_of_the_budget() {
    let note = "A line of the notes, äöü.\n".repeat(5_000);
    let (folder, mut host) = project(&[("AGENTS.md", &note), ("README.md", &note), ("docs/README.md", &note)]);
    for number in 0..300 {
        write(folder.path(), &format!("src/deep/file-{number:03}.rs"), "");
    }
    for available in [0, 10, 100, 400, 1_000, 4_000, 40_000, 1_000_000] {
        let prompt = init(&mut host, available);
        let bytes = prompt.system.iter().map(|section| section.text.len()).sum::<usize>();
        assert!(bytes <= (available as usize / 4).min(8_000) * 3, "{bytes} bytes of {available} tokens");
        assert!(available < 400 || !prompt.system.is_empty());
        assert!(prompt.state.is_some_and(|state| state.len() <= 64 * 1024));
    }
    let drawing = init(&mut host, 1_000_000);
    assert!(text(&drawing, "project-tree").contains("    … 260 more\n"), "{}", text(&drawing, "project-tree"));
    assert!(text(&init(&mut host, 400), "project-notes").contains("(AGENTS.md continues)"));
}

#[test]
fn l2_step_lists_changes_since_the_turn_began() {
    let (folder, mut host) = project(&[("a.txt", "1"), ("b.txt", "1"), ("src/c.txt", "1")]);
    let state = init(&mut host, 10_000).state;
    assert_eq!(step(&mut host, 1, state.clone()), Ok(Vec::new()));
    write(folder.path(), "a.txt", "longer");
    write(folder.path(), "src/new.txt", "");
    fs::remove_file(folder.path().join("b.txt")).expect("it exists");
    let text = "Files of the project since this turn began:\nchanged: a.txt\nnew: src/new.txt\nremoved: b.txt\n";
    assert_eq!(step(&mut host, 1, state.clone()), Ok(vec![Section::dynamic("project-changes", text)]));
    assert_eq!(step(&mut host, 0, state), Ok(Vec::new()), "nothing has run before the first step");
    assert!(matches!(step(&mut host, 1, Some(b"other".to_vec())), Err(Failure::InvalidInput(_))));
    assert_eq!(step(&mut host, 1, None), Ok(Vec::new()));
}

#[test]
fn large_project_fits_into_the_state() {
    let (folder, mut host) = project(&[]);
    for number in 0..1_500 {
        write(folder.path(), &format!("{}/a-rather-long-file-name-{number:04}.txt", number / 100), "");
    }
    let state = init(&mut host, 10_000).state;
    assert!(state.as_ref().is_some_and(|state| state.len() <= 64 * 1024 && state.len() > 20_000));
    write(folder.path(), "0/a-rather-long-file-name-0000.txt", "changed");
    write(folder.path(), "zzz.txt", "new, but maybe only not among the stamps");
    let sections = step(&mut host, 1, state).expect("the project is readable");
    let text = "Files of the project since this turn began:\nchanged: 0/a-rather-long-file-name-0000.txt\n";
    assert_eq!(sections, vec![Section::dynamic("project-changes", text)]);
}
