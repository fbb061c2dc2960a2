//! Tests changes to the plugins and to the agent file of an interactive session while the user types (P6, P10, L17).

use super::CTRL_D;
use super::first_use::{AgentFolder, count};
use super::screen::Screen;
use crate::support::{call_reply, components, text_reply};
use agent_plugins::{Access, Asks, Manifest, with_manifest};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const GRANTED: &str =
    "plugin_directory = \"../plugins\"\nplugins.probe.grants.ask = false\n\n[plugins.text.grants]\nread = [\".\"]\n";

/// Replaces `agent.toml` by a new file with this text, as an editor does.
fn save(folder: &AgentFolder, text: &str) {
    let (new, file) = (folder.path("work/.agent.toml.new"), folder.path("work/agent.toml"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Sends empty lines until the text appears, because the session prints notices only between inputs.
fn wait_until_shown(screen: &mut Screen, text: &str) {
    let started = std::time::Instant::now();
    while !screen.text().contains(text) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "`{text}` did not appear:\n{}", screen.text());
        screen.send("\r");
        std::thread::sleep(std::time::Duration::from_millis(1_000));
    }
}

/// Writes another version of the plugin to its file, as a rebuild does.
fn write_rebuilt_plugin(file: &Path, version: &str) {
    let asks = Asks { files: Some(Access::Read), ..Asks::default() };
    let manifest = Manifest { name: "text".into(), version: version.into(), asks, ..Manifest::default() };
    let bytes = with_manifest(&std::fs::read(components().join("text.wasm")).unwrap(), &manifest).unwrap();
    std::fs::write(file, bytes).unwrap();
}

/// P10: If a plugin is replaced during an interactive session, the next turn reports and uses the new version. The user
/// is not asked again if the new version requests the same permissions.
#[test]
fn p10_the_next_turn_uses_the_new_version_of_a_plugin() {
    let folder = AgentFolder::new(GRANTED, &[count(), text_reply("First."), count(), text_reply("Second.")]);
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    screen.wait_for_end("\n>");
    write_rebuilt_plugin(&folder.path("plugins/text.wasm"), "9.9.9");
    let digest = agent_plugins::digest_of(&std::fs::read(folder.path("plugins/text.wasm")).unwrap());
    // `/plugins` shows the plugins that the next turn will use.
    let started = std::time::Instant::now();
    while !screen.text().contains(digest.short()) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "not swapped:\n{}", screen.text());
        screen.send("/plugins\r");
        std::thread::sleep(std::time::Duration::from_millis(1_000));
    }
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    let screen_text = screen.text();
    let turn = &screen_text[screen_text.rfind("> Again.").unwrap()..];
    assert!(turn.contains(digest.short()) && turn.contains("text"), "the swap is reported: {turn}");
    assert!(turn.contains("a.txt has 1 line"), "{turn}");
    assert!(!screen_text.contains("first use"), "{screen_text}");
}

/// P6, I2: A changed agent file applies from the next turn on. If the file has errors, the previous configuration stays
/// in effect, and the error is shown with line and key.
#[test]
fn p6_a_changed_file_applies_from_the_next_turn() {
    let replies: Vec<_> = (1..=3).flat_map(|number| [count(), text_reply(&format!("Answer {number}."))]).collect();
    let folder = AgentFolder::new(GRANTED, &replies);
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for("\nAnswer 1.\n");
    screen.wait_for_end("\n>");
    save(&folder, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"never\"\n"));
    wait_until_shown(&mut screen, "agent.toml:8:");
    wait_until_shown(&mut screen, "the previous configuration stays in effect until the problem is fixed");
    assert!(screen.text().contains("approval.tools"), "{}", screen.text());
    screen.send("Again.\r");
    screen.wait_for("\nAnswer 2.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 2, "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&folder, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"deny\"\n"));
    wait_until_shown(&mut screen, "agent.toml has changed: the next turn uses it");
    screen.send("And again.\r");
    screen.wait_for("\nAnswer 3.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 2, "{}", screen.text());
    assert!(screen.text().contains("denies `text.count_file`"), "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&folder, &format!("name = \"other\"\n{GRANTED}"));
    wait_until_shown(&mut screen, "`name` takes effect at the next start");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// Row 47: If agent.toml is replaced by a pipe, the pipe is refused immediately. The session continues with the
/// previous configuration, and loads agent.toml once it is a regular file.
#[cfg(unix)]
#[test]
fn row_47_a_pipe_in_place_of_agent_toml_does_not_block() {
    let folder = AgentFolder::new(GRANTED, &[count(), text_reply("Answer 1."), count(), text_reply("Answer 2.")]);
    let mut screen = folder.session();
    let (pipe, file) = (folder.path("work/pipe"), folder.path("work/agent.toml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    wait_until_shown(&mut screen, "not a file");
    screen.send("Count.\r");
    screen.wait_for("\nAnswer 1.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 1, "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&folder, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"deny\"\n"));
    wait_until_shown(&mut screen, "agent.toml has changed: the next turn uses it");
    screen.send("Again.\r");
    screen.wait_for("\nAnswer 2.\n");
    assert!(screen.text().contains("denies `text.count_file`"), "{}", screen.text());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    // A new process refuses the pipe, and does not wait until another process writes to the pipe.
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    let output = folder.command(&["Count."]).stdin(Stdio::null()).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && output_text.contains("not a file"), "{output_text}");
}

/// P6, P10, L17: The revocation of a grant takes effect immediately, even for calls of the running turn.
#[test]
fn p10_a_revocation_takes_effect_during_a_chat() {
    let waiting = call_reply(&[("probe.sleep", json!({"ms": 8000}))]);
    let nothing = GRANTED.replace("read = [\".\"]", "ask = false");
    let denied = format!("{GRANTED}\n[approval.tools]\n\"text.*\" = \"deny\"\n");
    for (changed_file, reason) in
        [(nothing.as_str(), "is not granted reading files"), (denied.as_str(), "denies `text.count_file`")]
    {
        let folder = AgentFolder::new(GRANTED, &[waiting.clone(), count(), text_reply("Done.")]);
        let mut screen = folder.session();
        screen.send("Count.\r");
        screen.wait_for("running probe.sleep");
        save(&folder, changed_file);
        screen.wait_for("\nDone.\n");
        let screen_text = screen.text();
        assert!(screen_text.contains(reason) && !screen_text.contains("a.txt has 1 line"), "{reason}: {screen_text}");
    }
}

/// P6, P10: The revocation of a grant takes effect immediately in a turn that a script started without a terminal.
#[test]
fn p10_a_revocation_takes_effect_in_a_single_turn() {
    let waiting = call_reply(&[("probe.sleep", json!({"ms": 4000}))]);
    let folder = AgentFolder::new(GRANTED, &[waiting, count(), text_reply("Done.")]);
    let mut command = folder.command(&["--json", "Count."]);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let runs = |line: &String| line.contains("\"tool_call\"") && line.contains("probe.sleep");
    assert!(lines.by_ref().any(|line| runs(&line.unwrap())), "the first call begins");
    save(&folder, &GRANTED.replace("read = [\".\"]", "ask = false"));
    let remaining_lines: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(running.wait().unwrap().success());
    let counted =
        remaining_lines.iter().find(|line| line.contains("\"tool_result") && line.contains("text.count_file"));
    assert!(counted.is_some_and(|line| line.contains("not granted")), "{remaining_lines:#?}");
}
