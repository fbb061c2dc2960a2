//! What a user sees of earlier turns: the end of a continued conversation, and the memories that a turn recalled.

use super::{CTRL_D, TestCli};
use serde_json::json;

/// I1: a continued session begins with the last two prompts and replies, shortened and dimmed. A new session does not.
#[test]
fn i1_a_continued_session_shows_its_last_turns() {
    let long: String = (1..=30).map(|number| format!("Line {number}.\n\n")).collect();
    let cli = TestCli::new(&[json!({"text": "Alpha."}), json!({"text": long}), json!({"text": "Gamma."})]);
    let mut screen = cli.session();
    for (number, prompt) in [(2, "The first?"), (3, "The second?"), (4, "The third?")] {
        screen.send(&format!("{prompt}\r"));
        screen.wait_for("model call, ");
        screen.wait_for_end("\n>");
        assert!(!screen.text().contains("more line"), "prompt {number}: {}", screen.text());
    }
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let continued = cli.session_with_prompts(cli.command(&["--continue"]), 3);
    let shown = continued.text();
    assert!(shown.contains("\n\n> The second?\nLine 1.\nLine 2.\n"), "{shown}");
    assert!(shown.contains("Line 8.\n… 22 more lines\n\n> The third?\nGamma.\n\n>"), "{shown}");
    assert!(!shown.contains("The first?") && !shown.contains("Alpha."), "{shown}");
    assert!(continued.cells("Gamma.").iter().all(vt100::Cell::dim));
}

/// D4: a line says how many memories a turn recalled, and `/memory` shows them above the latest ones.
#[test]
fn d4_the_memories_that_a_turn_recalled_are_shown() {
    let cli = TestCli::new(&[json!({"text": "It sleeps."}), json!({"text": "Nothing."})]);
    let run = |prompt: &str| cli.command(&[prompt]).stdin(std::process::Stdio::null()).output().unwrap();
    assert!(run("What does the walrus do?").status.success());
    let piped = String::from_utf8(run("And a walrus?").stderr).unwrap();
    assert!(!piped.contains("recalled"), "{piped}");
    let mut screen = cli.session();
    screen.send("Unrelated.\r");
    screen.wait_for("model call, ");
    screen.wait_for_prompt(2);
    assert!(!screen.text().contains("recalled"), "{}", screen.text());
    screen.send("/memory\r");
    screen.wait_for("/memory forget ID deletes a memory");
    assert!(!screen.text().contains("recalled"), "{}", screen.text());
    screen.send("And the walrus?\r");
    screen.wait_for("recalled 2 memories: /memory shows them\n");
    screen.wait_for_end("\n>");
    screen.send("/memory\r");
    screen.wait_for("recalled for the last turn:");
    screen.wait_for("the latest memories:");
    let shown = screen.text();
    let recalled =
        shown.split("recalled for the last turn:").nth(1).unwrap().split("the latest memories:").next().unwrap();
    assert_eq!(recalled.matches("walrus?").count() + recalled.matches("walrus do?").count(), 2, "{recalled}");
}

/// D4: a session recalls only what was remembered in its project: the folder with `.git`, or else the working folder. With
/// `memory = "user"`, it recalls the memories of all projects.
#[test]
fn d4_recall_is_limited_to_the_project_folder() {
    let cli = TestCli::new(&[json!({"text": "It sleeps."}), json!({"text": "Nothing."})]);
    for folder in ["tree/.git", "tree/below", "elsewhere"] {
        std::fs::create_dir_all(cli.folder.path().join(folder)).unwrap();
    }
    let in_folder = |folder: &str, arguments: &[&str]| {
        let mut command = cli.command(arguments);
        command.current_dir(cli.folder.path().join(folder));
        command
    };
    let first = in_folder("tree", &["What does the walrus do?"]).stdin(std::process::Stdio::null()).output().unwrap();
    assert!(first.status.success());

    let mut screen = cli.session_with(in_folder("elsewhere", &[]));
    screen.send("And the walrus?\r");
    screen.wait_for("model call, ");
    screen.wait_for_end("\n>");
    screen.send("/memory\r");
    screen.wait_for("/memory forget ID deletes a memory");
    assert!(!screen.text().contains("recalled"), "{}", screen.text());
    assert!(!screen.text().contains("What does the walrus do?"), "{}", screen.text());

    let mut screen = cli.session_with(in_folder("tree/below", &[]));
    screen.send("And the walrus?\r");
    screen.wait_for("recalled 1 memory: /memory shows it");
    screen.wait_for_end("\n>");
    screen.send("/memory\r");
    screen.wait_for("these are the memories in");

    let file = format!("plugin_directory = {:?}\nmemory = \"user\"\n", cli.folder.path().join("plugins"));
    std::fs::write(cli.folder.path().join("elsewhere/agent.toml"), file).unwrap();
    let mut command = cli.host(&["--agent", "agent.toml", "--model"]);
    command.arg(format!("scripted:{}", cli.folder.path().join("script.json").display()));
    command.current_dir(cli.folder.path().join("elsewhere"));
    let mut screen = cli.session_with(command);
    screen.send("And the walrus?\r");
    screen.wait_for("recalled 3 memories: /memory shows them");
}
