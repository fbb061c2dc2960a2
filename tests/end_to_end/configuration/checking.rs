//! `config check` with the real binary: its output for a correct agent, and for every possible error in the agent's own
//! file and in the files that it names (I2, L7).

use super::WorkingFolder;
use crate::support::components;

fn with_plugins(files: &[(&str, &str)], plugins: &[&str]) -> WorkingFolder {
    let folder = WorkingFolder::new(files);
    for plugin in plugins {
        let file = format!("plugins/{plugin}.wasm");
        std::fs::copy(components().join(format!("{plugin}.wasm")), folder.path(&file)).unwrap();
    }
    folder
}

/// Checks that the file is refused, that stderr contains each of `texts`, and that stdout is empty.
fn check_refused(folder: &WorkingFolder, agent: &str, texts: &[&str]) {
    let result = folder.run(&["config", "check", agent]);
    assert_eq!((result.code, result.stdout.as_str()), (Some(2), ""), "{result:?}");
    for text in texts {
        assert!(result.stderr.contains(text), "`{text}` is not in: {}", result.stderr);
    }
}

/// I2: The report lists everything that the agent would run. A program that is not installed causes a warning and not
/// an error.
#[test]
fn i2_shows_what_a_correct_agent_would_run() {
    let text = "name = \"buyer\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\n[plugins.text.grants]\nread = [\"agents\"]\n\n\
                [services.pay]\ntype = \"com.example.pay\"\n\n[mcp.notes]\ncommand = \"no-such-program\"\n\n\
                [agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let files = [
        ("agent.toml", text),
        ("agents/reader.toml", "instructions = \"Read.\"\n"),
        ("replies.json", "[{\"text\": \"a\"}]"),
    ];
    let folder = with_plugins(&files, &["text"]);
    let result = folder.run(&["config", "check", "agent.toml"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    let lines: Vec<String> =
        result.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let begins = |word: &str| lines.iter().any(|line| line.starts_with(word));
    for expected in [
        "agent.toml: ok",
        "agent buyer",
        "model scripted",
        "plugins text",
        "agents reader",
        "grants text",
        "mcp notes",
        "services pay",
    ] {
        assert!(begins(expected), "no line begins with `{expected}`: {lines:?}");
    }
    let warning = "agent.toml:12: mcp.notes.command: there is no program `no-such-program` on its PATH";
    assert!(result.stderr.contains(warning), "{result:?}");
}

/// P8, I2: Host limits in the file of a delegated agent have no effect, and both `config check` and a turn warn about
/// them. If host limits are in the file with which the host is started, the limits apply without a warning.
#[test]
fn p8_reports_host_limits_in_the_file_of_a_delegate() {
    let lead =
        "plugin_directory = \"plugins\"\n[agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let reader = "model = \"offline\"\n\n[host.limits]\nqueue = 7\n";
    let folder = WorkingFolder::new(&[("agent.toml", lead), ("agents/reader.toml", reader)]);
    let warning = "agents/reader.toml:3: `[host.limits]` has no effect here";
    for line in [&["config", "check"][..], &["--agent", "agent.toml", "Hello"]] {
        let result = folder.run(line);
        assert!(result.code == Some(0) && result.stderr.contains(warning), "{line:?}: {result:?}");
    }
    let result = folder.run(&["config", "check", "agents/reader.toml"]);
    assert!(result.code == Some(0) && !result.stderr.contains("host.limits"), "{result:?}");
}

/// P8: If a plugin is inspected or called with `--agent`, the limits and grants of that agent apply to it. Without
/// `--agent`, the default limits apply, and only the command line gives grants.
#[test]
fn p8_inspected_and_called_plugins_have_the_limits_of_the_named_agent() {
    let files = [
        ("all.toml", "plugin_directory = \"plugins\"\n[limits]\nmemory_mib = 1\n"),
        (
            "one.toml",
            "plugin_directory = \"plugins\"\n[plugins.files.grants]\nread = [\".\"]\n[plugins.files.limits]\nmemory_mib = 1\n",
        ),
        (
            "other.toml",
            "plugin_directory = \"plugins\"\n[plugins.text.limits]\nmemory_mib = 1\n[plugins.files.grants]\nread = [\".\"]\n",
        ),
        ("host.toml", "plugin_directory = \"plugins\"\n[host.limits]\ncomponent_mib = 1\n"),
        ("note.txt", "Read me.\n"),
    ];
    let folder = with_plugins(&files, &["files", "text"]);
    let call = ["plugin", "call", "plugins/files.wasm", "files.read", "{\"path\": \"note.txt\"}"];
    let granted = folder.run(&[&call[..], &["--grant", "files:read=."]].concat());
    assert!(granted.code == Some(0) && granted.stdout.contains("Read me."), "{granted:?}");
    for agent in ["all.toml", "one.toml"] {
        let result = folder.run(&[&call[..], &["--agent", agent]].concat());
        assert!(result.code == Some(1) && result.stderr.contains("memory of 1 MiB"), "{agent}: {result:?}");
    }
    let result = folder.run(&[&call[..], &["--agent", "other.toml"]].concat());
    assert!(result.code == Some(0) && result.stdout.contains("Read me."), "{result:?}");
    let mut large = std::fs::read(folder.path("plugins/text.wasm")).unwrap();
    // Append a custom section of 2 MiB: its id, its size as LEB128 (4 bytes), and an empty name.
    large.extend([0, 0x80, 0x80, 0x80, 0x01]);
    large.extend(vec![0; 2 << 20]);
    std::fs::write(folder.path("large.wasm"), large).unwrap();
    assert_eq!(folder.run(&["plugin", "inspect", "large.wasm"]).code, Some(0));
    for line in [
        &["plugin", "inspect", "large.wasm", "--agent", "host.toml"][..],
        &["plugin", "explain", "large.wasm", "--agent", "host.toml"],
        &["plugin", "call", "large.wasm", "text.count", "--agent", "host.toml"],
    ] {
        let result = folder.run(line);
        assert!(result.code == Some(2) && result.stderr.contains("component_mib"), "{line:?}: {result:?}");
    }
}

/// I2: If a file cannot be read or parsed, the error names the file. If the problem is in a certain line, the error
/// also names the line.
#[test]
fn i2_errors_name_the_file_that_cannot_be_read() {
    let folder = WorkingFolder::new(&[]);
    check_refused(
        &folder,
        "absent.toml",
        &["there is no file `absent.toml`", "work/absent.toml`", "config init --output absent.toml"],
    );
    folder.write("lead.toml", "[agents.a]\nagent = \"gone.toml\"\ndescription = \"d\"\n");
    check_refused(&folder, "lead.toml", &["lead.toml:2:9: agents.a.agent: there is no file `gone.toml`"]);
    check_refused(&folder, "leed.toml", &["did you mean `lead.toml`?"]);
    std::fs::write(folder.path("bytes.toml"), b"name = \"a\"\n# a note\nmodel = \"caf\xe9\"\n").unwrap();
    check_refused(&folder, "bytes.toml", &["bytes.toml", "line 3 contains a byte that is not valid UTF-8"]);
    folder.write("broken.toml", "name = \"a\"\nmodel = [\n");
    check_refused(&folder, "broken.toml", &["broken.toml:2:", "https://toml.io"]);
    folder.write("large.toml", &format!("# {}\n", "x".repeat(1 << 20)));
    check_refused(&folder, "large.toml", &["large.toml", "more than 1024 KiB"]);
    folder.write("twice.toml", "model = \"offline\"\nname = \"a\"\nmodel = \"offline\"\n");
    check_refused(&folder, "twice.toml", &["twice.toml:3:1: `model` is defined twice, first in line 1"]);
}

/// L7: If two tools of any kind have the same name, the error states where each of the two tools comes from.
#[test]
fn l7_the_error_about_tools_with_the_same_name_shows_both_sources() {
    let service = "plugin_directory = \"plugins\"\n\n[services.\"text.count\"]\ntype = \"com.example.count\"\n";
    let folder = with_plugins(&[("agent.toml", service)], &["text"]);
    check_refused(&folder, "agent.toml", &["two tools are named `text.count`", "text@", "service com.example.count"]);
    let agent = "[services.reader]\ntype = \"com.example.read\"\n\n[agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let folder = WorkingFolder::new(&[("agent.toml", agent), ("agents/reader.toml", "")]);
    check_refused(&folder, "agent.toml", &["two tools are named `reader`", "service com.example.read", "agent reader"]);
    let own = "[services.read_result]\ntype = \"com.example.read\"\n";
    let folder = WorkingFolder::new(&[("agent.toml", own)]);
    check_refused(
        &folder,
        "agent.toml",
        &["agent.toml:1:11: `services.read_result`", "there is already a built-in tool with the name `read_result`"],
    );
}

/// I2, L16: An error in a delegate's file is reported with that file, the line and the key, at any delegation depth.
#[test]
fn i2_an_error_in_a_delegates_file_names_that_file() {
    let delegating_agent = |name: &str, file: &str| {
        format!("name = \"{name}\"\n[agents.below]\nagent = \"{file}\"\ndescription = \"Works.\"\n")
    };
    let folder = WorkingFolder::new(&[
        ("agent.toml", &delegating_agent("top", "agents/middle.toml")),
        ("agents/middle.toml", &delegating_agent("middle", "last.toml")),
    ]);
    folder.write("agents/last.toml", "name = \"last\"\nmodle = \"offline\"\n");
    check_refused(&folder, "agent.toml", &["agents/last.toml:2:1: unknown key `modle`", "did you mean `model`?"]);
    std::fs::write(folder.path("agents/last.toml"), b"model = \"\xff\"\n").unwrap();
    check_refused(&folder, "agent.toml", &["agents/last.toml", "line 1 contains a byte that is not valid UTF-8"]);
    std::fs::remove_file(folder.path("agents/last.toml")).unwrap();
    check_refused(&folder, "agent.toml", &["agents/last.toml", "agents/middle.toml:3"]);
    folder.write("agents/last.toml", "plugin_directory = \"nowhere\"\n");
    check_refused(&folder, "agent.toml", &["agents/nowhere", "last"]);
    folder.write("agents/last.toml", &delegating_agent("last", "../agent.toml"));
    check_refused(&folder, "agent.toml", &["agents/last.toml:3", "top → middle → last → top"]);
}

/// I2: The folders, variables, plugins, scripts and schemas that a file names must exist.
#[test]
fn i2_everything_that_is_named_in_a_file_must_exist() {
    let cases: [(&str, &[&str]); 6] = [
        ("plugin_directory = \"nowhere\"\n", &["nowhere"]),
        ("model = \"scripted:absent.json\"\n", &["absent.json"]),
        ("output_schema = \"absent.json\"\n", &["agent.toml:1:17: `output_schema`", "absent.json"]),
        ("validators = [\"strict-json\"]\n", &["agent.toml:1", "strict-json"]),
        ("model = \"openai/gpt-4.1-mini\"\n", &["OPENAI_API_KEY"]),
        ("[plugins.absent.grants]\nread = [\".\"]\n", &["absent"]),
    ];
    for (text, words) in cases {
        check_refused(&WorkingFolder::new(&[("agent.toml", text)]), "agent.toml", words);
    }
}
