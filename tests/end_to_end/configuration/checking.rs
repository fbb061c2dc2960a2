//! `config check` with the real binary: what it says of an agent that is right, and of everything that can be wrong with one,
//! in its own file and in those that it names (I2, L7).

use super::Place;
use crate::support::components;

fn with_plugins(files: &[(&str, &str)], plugins: &[&str]) -> Place {
    let place = Place::new(files);
    for plugin in plugins {
        let file = format!("plugins/{plugin}.wasm");
        std::fs::copy(components().join(format!("{plugin}.wasm")), place.path(&file)).unwrap();
    }
    place
}

/// The file is refused, with all of these words; nothing is said to be right.
fn refused(place: &Place, agent: &str, words: &[&str]) {
    let ended = place.run(&["config", "check", agent]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "`{word}` is not in: {}", ended.stderr);
    }
}

/// I2: what it would run, line by line; what may be put right later is a warning.
#[test]
fn i2_an_agent_that_is_right_is_told_as_it_would_run() {
    let text = "name = \"buyer\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\n[plugins.text.grants]\nread = [\"agents\"]\n\n\
                [services.pay]\ntype = \"com.example.pay\"\n\n[mcp.notes]\ncommand = \"no-such-program\"\n\n\
                [agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let files = [
        ("agent.toml", text),
        ("agents/reader.toml", "instructions = \"Read.\"\n"),
        ("replies.json", "[{\"text\": \"a\"}]"),
    ];
    let place = with_plugins(&files, &["text"]);
    let ended = place.run(&["config", "check", "agent.toml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<String> =
        ended.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
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
    assert!(ended.stderr.contains(warning), "{ended:?}");
}

/// P8, I2: limits of the host in the file of an agent that is delegated to do nothing, which is said when it is checked and
/// when it runs; in the file that the host is started with they hold, and nothing is said.
#[test]
fn p8_limits_of_the_host_below_are_told() {
    let lead =
        "plugin_directory = \"plugins\"\n[agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let reader = "model = \"offline\"\n\n[host.limits]\nqueue = 7\n";
    let place = Place::new(&[("agent.toml", lead), ("agents/reader.toml", reader)]);
    let told = "agents/reader.toml:3: `[host.limits]` does nothing here";
    for line in [&["config", "check"][..], &["--agent", "agent.toml", "Hello"]] {
        let ended = place.run(line);
        assert!(ended.code == Some(0) && ended.stderr.contains(told), "{line:?}: {ended:?}");
    }
    let ended = place.run(&["config", "check", "agents/reader.toml"]);
    assert!(ended.code == Some(0) && !ended.stderr.contains("host.limits"), "{ended:?}");
}

/// P8: a plugin that is looked at or called for an agent has that agent's limits and grants; for nobody, the defaults.
#[test]
fn p8_single_plugins_have_the_limits_of_the_agent_that_is_named() {
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
    let place = with_plugins(&files, &["files", "text"]);
    let call = ["plugin", "call", "plugins/files.wasm", "files.read", "{\"path\": \"note.txt\"}"];
    let granted = place.run(&[&call[..], &["--grant", "files:read=."]].concat());
    assert!(granted.code == Some(0) && granted.stdout.contains("Read me."), "{granted:?}");
    for agent in ["all.toml", "one.toml"] {
        let ended = place.run(&[&call[..], &["--agent", agent]].concat());
        assert!(ended.code == Some(1) && ended.stderr.contains("memory of 1 MiB"), "{agent}: {ended:?}");
    }
    let other = place.run(&[&call[..], &["--agent", "other.toml"]].concat());
    assert!(other.code == Some(0) && other.stdout.contains("Read me."), "{other:?}");
    let mut large = std::fs::read(place.path("plugins/text.wasm")).unwrap();
    // A custom section of 2 MiB: its id, its size as LEB128 (4 bytes), and its name, which is empty.
    large.extend([0, 0x80, 0x80, 0x80, 0x01]);
    large.extend(vec![0; 2 << 20]);
    std::fs::write(place.path("large.wasm"), large).unwrap();
    assert_eq!(place.run(&["plugin", "inspect", "large.wasm"]).code, Some(0));
    for line in [
        &["plugin", "inspect", "large.wasm", "--agent", "host.toml"][..],
        &["plugin", "explain", "large.wasm", "--agent", "host.toml"],
        &["plugin", "call", "large.wasm", "text.count", "--agent", "host.toml"],
    ] {
        let ended = place.run(line);
        assert!(ended.code == Some(2) && ended.stderr.contains("component_mib"), "{line:?}: {ended:?}");
    }
}

/// I2: files that cannot be read at all are named, with the line where there is one.
#[test]
fn i2_a_file_that_cannot_be_read_is_named() {
    let place = Place::new(&[]);
    refused(
        &place,
        "absent.toml",
        &["there is no file `absent.toml`", "work/absent.toml`", "config init --output absent.toml"],
    );
    place.write("lead.toml", "[agents.a]\nagent = \"gone.toml\"\ndescription = \"d\"\n");
    refused(&place, "lead.toml", &["lead.toml:2:9: agents.a.agent: there is no file `gone.toml`"]);
    refused(&place, "leed.toml", &["did you mean `lead.toml`?"]);
    std::fs::write(place.path("bytes.toml"), b"name = \"a\"\n# a note\nmodel = \"caf\xe9\"\n").unwrap();
    refused(&place, "bytes.toml", &["bytes.toml", "line 3 has a byte that is no UTF-8"]);
    place.write("broken.toml", "name = \"a\"\nmodel = [\n");
    refused(&place, "broken.toml", &["broken.toml:2:", "https://toml.io"]);
    place.write("large.toml", &format!("# {}\n", "x".repeat(1 << 20)));
    refused(&place, "large.toml", &["large.toml", "more than 1024 KiB"]);
    place.write("twice.toml", "model = \"offline\"\nname = \"a\"\nmodel = \"offline\"\n");
    refused(&place, "twice.toml", &["twice.toml:3:1: `model` is there twice: first in line 1"]);
}

/// L7: two tools of one name name both of their sources, whichever they are.
#[test]
fn l7_two_tools_of_one_name_name_both_sources() {
    let service = "plugin_directory = \"plugins\"\n\n[services.\"text.count\"]\ntype = \"com.example.count\"\n";
    let place = with_plugins(&[("agent.toml", service)], &["text"]);
    refused(&place, "agent.toml", &["two tools are named `text.count`", "text@", "service com.example.count"]);
    let agent = "[services.reader]\ntype = \"com.example.read\"\n\n[agents.reader]\nagent = \"agents/reader.toml\"\ndescription = \"Reads.\"\n";
    let place = Place::new(&[("agent.toml", agent), ("agents/reader.toml", "")]);
    refused(&place, "agent.toml", &["two tools are named `reader`", "service com.example.read", "agent reader"]);
    let own = "[services.read_result]\ntype = \"com.example.read\"\n";
    let place = Place::new(&[("agent.toml", own)]);
    refused(
        &place,
        "agent.toml",
        &["agent.toml:1:11: `services.read_result`", "two tools are named `read_result`", "built in"],
    );
}

/// I2, L16: what is wrong with an agent below is shown in its own file, with line and key, however deep it is.
#[test]
fn i2_an_error_in_a_delegates_file_names_that_file() {
    let below = |name: &str, file: &str| {
        format!("name = \"{name}\"\n[agents.below]\nagent = \"{file}\"\ndescription = \"Works.\"\n")
    };
    let place = Place::new(&[
        ("agent.toml", &below("top", "agents/middle.toml")),
        ("agents/middle.toml", &below("middle", "last.toml")),
    ]);
    place.write("agents/last.toml", "name = \"last\"\nmodle = \"offline\"\n");
    refused(&place, "agent.toml", &["agents/last.toml:2:1: unknown key `modle`", "did you mean `model`?"]);
    std::fs::write(place.path("agents/last.toml"), b"model = \"\xff\"\n").unwrap();
    refused(&place, "agent.toml", &["agents/last.toml", "line 1 has a byte that is no UTF-8"]);
    std::fs::remove_file(place.path("agents/last.toml")).unwrap();
    refused(&place, "agent.toml", &["agents/last.toml", "agents/middle.toml:3"]);
    place.write("agents/last.toml", "plugin_directory = \"nowhere\"\n");
    refused(&place, "agent.toml", &["agents/nowhere", "last"]);
    place.write("agents/last.toml", &below("last", "../agent.toml"));
    refused(&place, "agent.toml", &["agents/last.toml:3", "top → middle → last → top"]);
}

/// I2: what a file names must be there: folders, variables, plugins, scripts, schemas.
#[test]
fn i2_what_a_file_names_must_be_there() {
    let cases: [(&str, &[&str]); 6] = [
        ("plugin_directory = \"nowhere\"\n", &["nowhere"]),
        ("model = \"scripted:absent.json\"\n", &["absent.json"]),
        ("output_schema = \"absent.json\"\n", &["agent.toml:1:17: `output_schema`", "absent.json"]),
        ("validators = [\"strict-json\"]\n", &["agent.toml:1", "strict-json"]),
        ("model = \"openai/gpt-4.1-mini\"\n", &["OPENAI_API_KEY"]),
        ("[plugins.absent.grants]\nread = [\".\"]\n", &["absent"]),
    ];
    for (text, words) in cases {
        refused(&Place::new(&[("agent.toml", text)]), "agent.toml", words);
    }
}
