//! What an agent is made of changes while a person types: its plugins, and its file (P6, P10, L17).

use super::CTRL_D;
use super::first_use::{Place, count};
use super::screen::Screen;
use crate::support::{calling, components, saying};
use agent_plugins::{Access, Asks, Manifest, with_manifest};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const GRANTED: &str =
    "plugin_directory = \"../plugins\"\nplugins.probe.grants.ask = false\n\n[plugins.text.grants]\nread = [\".\"]\n";

/// As an editor saves.
fn save(place: &Place, text: &str) {
    let (new, file) = (place.path("work/.agent.toml.new"), place.path("work/agent.toml"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Types an empty line until the session says it: the prompt itself does not move while somebody types.
fn wait_until_said(screen: &mut Screen, text: &str) {
    let started = std::time::Instant::now();
    while !screen.text().contains(text) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "`{text}` did not appear:\n{}", screen.text());
        screen.send("\r");
        std::thread::sleep(std::time::Duration::from_millis(1_000));
    }
}

/// The plugin as somebody has built it anew.
fn rebuilt(place: &Path, version: &str) {
    let asks = Asks { files: Some(Access::Read), ..Asks::default() };
    let manifest = Manifest { name: "text".into(), version: version.into(), asks, ..Manifest::default() };
    let bytes = with_manifest(&std::fs::read(components().join("text.wasm")).unwrap(), &manifest).unwrap();
    std::fs::write(place, bytes).unwrap();
}

/// P10: a plugin is replaced while the chat runs: the next turn says so, and uses it. The same requests need no new answer.
#[test]
fn p10_a_replaced_plugin_serves_the_next_turn() {
    let place = Place::new(GRANTED, &[count(), saying("First."), count(), saying("Second.")]);
    let mut screen = place.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    screen.wait_for_end("\n>");
    rebuilt(&place.path("plugins/text.wasm"), "9.9.9");
    let digest = agent_plugins::digest_of(&std::fs::read(place.path("plugins/text.wasm")).unwrap());
    // `/plugins` shows what the next turn has.
    let started = std::time::Instant::now();
    while !screen.text().contains(digest.short()) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "not swapped:\n{}", screen.text());
        screen.send("/plugins\r");
        std::thread::sleep(std::time::Duration::from_millis(1_000));
    }
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    let shown = screen.text();
    let turn = &shown[shown.rfind("> Again.").unwrap()..];
    assert!(turn.contains(digest.short()) && turn.contains("text"), "the swap is said: {turn}");
    assert!(turn.contains("a.txt has 1 line"), "{turn}");
    assert!(!shown.contains("first use"), "{shown}");
}

/// P6, I2: a changed file counts from the next turn; one with errors leaves what held before and is said with line and key.
#[test]
fn p6_a_changed_file_counts_from_the_next_turn() {
    let replies: Vec<_> = (1..=3).flat_map(|number| [count(), saying(&format!("Answer {number}."))]).collect();
    let place = Place::new(GRANTED, &replies);
    let mut screen = place.session();
    screen.send("Count.\r");
    screen.wait_for("\nAnswer 1.\n");
    screen.wait_for_end("\n>");
    save(&place, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"never\"\n"));
    wait_until_said(&mut screen, "agent.toml:8:");
    wait_until_said(&mut screen, "what the configuration said before holds until that is mended");
    assert!(screen.text().contains("approval.tools"), "{}", screen.text());
    screen.send("Again.\r");
    screen.wait_for("\nAnswer 2.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 2, "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&place, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"deny\"\n"));
    wait_until_said(&mut screen, "agent.toml has changed: the next turn has it");
    screen.send("And again.\r");
    screen.wait_for("\nAnswer 3.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 2, "{}", screen.text());
    assert!(screen.text().contains("denies `text.count_file`"), "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&place, &format!("name = \"other\"\n{GRANTED}"));
    wait_until_said(&mut screen, "`name` counts from the next start");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// Row 47: a pipe in place of agent.toml is refused at once; the session goes on with what held before, and takes the next file.
#[cfg(unix)]
#[test]
fn row_47_a_pipe_in_place_of_agent_toml_stops_nothing() {
    let place = Place::new(GRANTED, &[count(), saying("Answer 1."), count(), saying("Answer 2.")]);
    let mut screen = place.session();
    let (pipe, file) = (place.path("work/pipe"), place.path("work/agent.toml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    wait_until_said(&mut screen, "not a file");
    screen.send("Count.\r");
    screen.wait_for("\nAnswer 1.\n");
    assert_eq!(screen.raw().matches("a.txt has 1 line").count(), 1, "{}", screen.text());
    screen.wait_for_end("\n>");
    save(&place, &format!("{GRANTED}\n[approval.tools]\n\"text.count_file\" = \"deny\"\n"));
    wait_until_said(&mut screen, "agent.toml has changed: the next turn has it");
    screen.send("Again.\r");
    screen.wait_for("\nAnswer 2.\n");
    assert!(screen.text().contains("denies `text.count_file`"), "{}", screen.text());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    // A start finds the pipe itself, and does not wait for who writes to it.
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    let output = place.command(&["Count."]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("not a file"), "{said}");
}

/// P6, P10, L17: what is taken back counts at once, also for calls of the turn that runs.
#[test]
fn p10_what_is_taken_back_counts_at_once() {
    let waiting = calling(&[("probe.sleep", json!({"ms": 8000}))]);
    let nothing = GRANTED.replace("read = [\".\"]", "ask = false");
    let denied = format!("{GRANTED}\n[approval.tools]\n\"text.*\" = \"deny\"\n");
    for (taken_back, reason) in
        [(nothing.as_str(), "was denied reading files"), (denied.as_str(), "denies `text.count_file`")]
    {
        let place = Place::new(GRANTED, &[waiting.clone(), count(), saying("Done.")]);
        let mut screen = place.session();
        screen.send("Count.\r");
        screen.wait_for("running probe.sleep");
        save(&place, taken_back);
        screen.wait_for("\nDone.\n");
        let shown = screen.text();
        assert!(shown.contains(reason) && !shown.contains("a.txt has 1 line"), "{reason}: {shown}");
    }
}

/// P6, P10: the same holds for a turn that a script runs.
#[test]
fn p10_what_is_taken_back_counts_in_a_single_turn() {
    let waiting = calling(&[("probe.sleep", json!({"ms": 4000}))]);
    let place = Place::new(GRANTED, &[waiting, count(), saying("Done.")]);
    let mut command = place.command(&["--json", "Count."]);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let runs = |line: &String| line.contains("\"tool_call\"") && line.contains("probe.sleep");
    assert!(lines.by_ref().any(|line| runs(&line.unwrap())), "the first call begins");
    save(&place, &GRANTED.replace("read = [\".\"]", "ask = false"));
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(running.wait().unwrap().success());
    let counted = rest.iter().find(|line| line.contains("\"tool_result") && line.contains("text.count_file"));
    assert!(counted.is_some_and(|line| line.contains("not granted")), "{rest:#?}");
}
