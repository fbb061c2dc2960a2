//! Lists on a narrow terminal: no line is wider than the window (I1).

use super::TestCli;
use super::screen::Screen;
use serde_json::json;
use std::process::Stdio;

/// I1: in a window of 60 columns, the entries of lists break between words, and the continued lines are indented. In a pipe,
/// each entry has its whole lines.
#[test]
fn i1_entries_of_lists_break_between_words() {
    let cli = TestCli::new(&[json!({"text": "It is a long answer that mentions the walrus and more. ".repeat(3)})]);
    let prompt = "What does the walrus do on the ice when the winter is long and the fish are few?";
    assert!(cli.command(&[prompt]).stdin(Stdio::null()).output().unwrap().status.success());
    for list in [
        &["session", "list"][..],
        &["session", "show"],
        &["session", "search", "walrus"],
        &["memory", "list"],
        &["audit"],
    ] {
        let piped = cli.host(list).output().unwrap();
        let piped = String::from_utf8(piped.stdout).unwrap();
        assert!(piped.lines().any(|line| line.chars().count() > 60), "{list:?}: {piped}");
        let mut screen = Screen::start(cli.host(list), 60, 60);
        assert_eq!(screen.exit_code(), Some(0));
        // The screen shows a line that is too wide as two lines, so the words are compared with those of the pipe.
        let shown = screen.text();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&shown), words(&piped), "{list:?}: {shown}");
        assert!(shown.lines().any(|line| line.starts_with("    ")), "{list:?}: {shown}");
    }
}
