//! `agent-host test` (S4): scenarios that pass, fail, or cannot run, including the scenarios of this
//! repository's plugins.

mod apart;
mod kept;
mod strict;

use crate::support::{agent_host, components, repository};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// A temporary folder with scenario files. The data folder is shared by all tests of this file.
struct ScenarioFolder(TempDir);

impl ScenarioFolder {
    fn with(scenarios: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in scenarios {
            folder.write(&format!("{name}.scenario.toml"), text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn test(&self, arguments: &[&str]) -> Output {
        self.test_with(components(), arguments)
    }

    /// Runs `agent-host test` in the scenario folder, with the components in the folder `plugins`.
    fn test_with(&self, plugins: &Path, arguments: &[&str]) -> Output {
        let mut command = agent_host();
        command.current_dir(self.path()).arg("test").args(arguments).arg("--plugins").arg(plugins);
        command.arg("--data").arg(data()).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `agent-host test`, and returns the exit code and the output without durations.
    fn code_and_output(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.code_and_output_with(components(), arguments)
    }

    /// Like [`Self::code_and_output`], but with the components in the folder `plugins`.
    fn code_and_output_with(&self, plugins: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.test_with(plugins, arguments);
        let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let time = regex::Regex::new(r" \([0-9.]+ m?s\)").unwrap();
        (output.status.code(), time.replace_all(&printed, "").into_owned())
    }
}

/// Returns the data folder that all runs of `agent-host test` use. The folder is kept between runs, so that tests share
/// its compiled code.
fn data() -> PathBuf {
    let data = crate::support::scratch();
    // The host requires that only the owner can access a data folder.
    #[cfg(unix)]
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    data
}

/// Returns the line `plugins = [...]`, which a scenario needs if it is not part of a plugin's project.
fn plugins_line(plugin: &str) -> String {
    format!("plugins = [{:?}]\n", components().join(format!("{plugin}.wasm")).display().to_string())
}

/// S4: Every scenario of the plugins in this repository passes.
#[test]
fn the_scenarios_of_the_projects_plugins_pass() {
    let folder = ScenarioFolder(tempfile::tempdir().unwrap());
    let plugins = repository().join("plugins");
    let (code, printed) = folder.code_and_output(&[plugins.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{printed}");
    let projects = agent_devkit::build::projects_in(&plugins).unwrap();
    assert_eq!(projects.len(), 15);
    for project in projects {
        let name = project.directory().file_name().unwrap().to_str().unwrap();
        assert!(printed.contains(&format!("✓ {name}/")), "{name} has no scenario: {printed}");
    }
}

/// S4: The two example scenarios of the guide pass.
#[test]
fn the_example_scenarios_of_the_guide_pass() {
    let page = std::fs::read_to_string(repository().join("host/docs/guide/scenarios.md")).unwrap();
    let examples: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 2);
    let folder = ScenarioFolder::with(&[
        ("first", &(plugins_line("text") + examples[0])),
        ("second", &(plugins_line("calc") + examples[1])),
    ]);
    let golden = repository().join("plugins/text/count.golden");
    std::fs::copy(golden, folder.0.path().join("first.golden")).unwrap();
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(0), "{printed}");
}

/// S4: A failed expectation is reported with its scenario, its line, the expected value and the actual value. The
/// report shows all failures of the run, not only the first failure.
#[test]
fn reports_a_failed_expectation_with_its_line() {
    let scenario = "plugins = [\"PLUGIN\"]
golden = true
[agent.plugins.text.grants]
read = [\".\"]
[[turns]]
say = \"Count.\"
replies = [
  { calls = [{ name = \"text.count\", arguments = { text = \"one\" } }, { name = \"text.count_file\", arguments = { path = \"no.md\" } }] },
  { text = \"fine\", expect = { contains = \"moon\" } },
  { text = \"never\" },
]
calls = [
  { name = \"text.count\", arguments = { text = \"two\" }, result = \"The text has 3 lines.\" },
  { name = \"text.count_file\", result = { at = { \"/a\" = 1 } } },
]
[[turns]]
say = \"Again.\"
replies = [{ text = \"done\" }]
calls = [{ name = \"text.count\" }]
output = { matches = \"^not\" }
ends = \"limit\"
[[turns]]
say = \"Fail.\"
replies = [{ error = { status = 400, message = \"no\" } }]
error = { contains = \"yes\" }
";
    let plugin = components().join("text.wasm").display().to_string();
    let folder = ScenarioFolder::with(&[("wrong", &scenario.replace("PLUGIN", &plugin))]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    insta::assert_snapshot!(printed);
}

/// S4: If a scenario contains a mistake and cannot run, the report contains the location of the mistake. The exit code
/// is 2 if there is no other scenario, and 1 if other scenarios could run.
#[test]
fn reports_why_a_scenario_cannot_run() {
    let text = plugins_line("text");
    let with = |rest: &str| text.clone() + rest;
    let folder = ScenarioFolder::with(&[
        ("key", "[[turns]]\nsay = \"hi\"\nreplys = []\n"),
        ("agent-key", &with("[agent]\nmax_interactons = 2\n[[turns]]\nsay = \"hi\"\n")),
        ("toml", "[[turns]\n"),
        ("plugin", "plugins = [\"nope\"]\n[[turns]]\nsay = \"hi\"\n"),
        ("network", &with("agent = { model = \"openai/gpt-4.1\" }\n[[turns]]\nsay = \"hi\"\n")),
        (
            "outside",
            &with(
                "[agent.plugins.text.grants]\nread = [\"/etc\"]\n[[turns]]\nsay = \"hi\"\nreplies = [{ text = \"\" }]\n",
            ),
        ),
        ("climbing", &with("files = { \"../x\" = \"\" }\n[[turns]]\nsay = \"hi\"\n")),
        ("good", &with("[[turns]]\nsay = \"hi\"\nreplies = [{ text = \"ho\" }]\noutput = \"ho\"\n")),
    ]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    let expected = [
        "key.scenario.toml:3:1: turns[0].replys: unknown field `replys`, expected one of `say`, `replies`",
        "agent-key.scenario.toml:3:1: unknown key `agent.max_interactons`",
        "did you mean `max_interactions`?",
        "toml.scenario.toml:1:",
        "plugin.scenario.toml:1: plugins[0]: there is no nope.wasm in `",
        "network.scenario.toml:2: agent.model: `openai/gpt-4.1` would be called over the network",
        "outside.scenario.toml:3: agent.plugins.text.grants.read[0]: a scenario can read and write only in its own folder",
        "climbing.scenario.toml:2:20: files.\"../x\" is not a path inside the scenario's folder",
        "✓ good",
        "8 scenarios: 1 passed, 7 not run",
    ];
    for line in expected {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
    assert_eq!(folder.code_and_output(&["network.scenario.toml"]).0, Some(2));
    assert_eq!(folder.code_and_output(&[".", "good"]).0, Some(0));
    let (code, printed) = folder.code_and_output(&[".", "zzz"]);
    assert_eq!(code, Some(2));
    assert!(printed.contains("no scenario's name contains `zzz`; the scenarios are: agent-key, climbing"), "{printed}");
    let (code, printed) = ScenarioFolder::with(&[]).code_and_output(&[]);
    assert_eq!(code, Some(2));
    assert!(printed.contains("there is no scenario (*.scenario.toml) in `.`"), "{printed}");
}

/// S4: If a run does not match its golden transcript, the report shows the difference as a diff. A transcript is
/// written only on request, and every run produces the same transcript.
#[test]
fn compares_and_writes_golden_transcripts() {
    let scenario = plugins_line("text")
        + "golden = true\n[[turns]]\nsay = \"Count.\"\n\
           replies = [{ calls = [{ name = \"text.count\", arguments = { text = \"one two\" } }] }, { text = \"Two.\" }]\n";
    let folder = ScenarioFolder::with(&[("words", &scenario)]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1));
    assert!(
        printed.contains("words.scenario.toml:2: golden") && printed.contains("there is no such file"),
        "{printed}"
    );
    assert_eq!(folder.code_and_output(&["--update"]).0, Some(0));
    let golden = std::fs::read_to_string(folder.0.path().join("words.golden")).unwrap();
    assert!(
        golden.starts_with("turn 1\nuser: Count.\ncall: text.count {\"text\":\"one two\"}\nresult of text.count: "),
        "{golden}"
    );
    assert!(golden.ends_with("\nmodel: Two.\nend: answered\n"), "{golden}");
    assert_eq!(folder.code_and_output(&[]).0, Some(0), "the transcript is the same in the next run");
    folder.write("words.scenario.toml", &scenario.replace("Two.", "It has two."));
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("    -model: Two.\n    +model: It has two.\n"), "{printed}");
    let (code, printed) = folder.code_and_output(&["--update"]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("words.golden; review the changes:") && printed.contains("-model: Two."), "{printed}");
}

/// S4, M3: A scenario can script faults of the model: an overloaded model, an interrupted reply, and a slow reply. A
/// model call without a scripted reply fails the scenario.
#[test]
fn scenarios_can_script_model_faults() {
    let busy = "golden = true\n[[turns]]\nsay = \"Hi.\"\nreplies = [\n\
        { text = \"It was bro\", error = { message = \"cut\", times = 1 } },\n]\nends = \"error\"\n[[turns]]\nsay = \"Hi.\"\n\
        replies = [{ text = \"It is here.\", error = { status = 503, message = \"busy\", times = 2 } }]\noutput = \"It is here.\"\n";
    // After a temporary fault, the scripted model returns the complete reply.
    let busy = busy.replace("ends = \"error\"", "output = \"It was bro\"");
    let slow = "time_limit_ms = 200\n[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"late\", delay_ms = 60000 }]\n";
    let more =
        "[[turns]]\nsay = \"Hi.\"\nreplies = [{ calls = [{ name = \"text.count\", arguments = { text = \"a\" } }] }]\n";
    let with = |rest: &str| plugins_line("text") + rest;
    let folder = ScenarioFolder::with(&[("busy", &with(&busy)), ("slow", &with(slow)), ("more", &with(more))]);
    let (code, printed) = folder.code_and_output(&[".", "busy", "--update"]);
    assert_eq!(code, Some(0), "{printed}");
    let golden = std::fs::read_to_string(folder.0.path().join("busy.golden")).unwrap();
    assert!(golden.contains("try 2: ") && golden.contains("try 3: "), "{golden}");
    let (code, printed) = folder.code_and_output(&[".", "slow"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("the scenario to finish in 200 ms"), "{printed}");
    let (code, printed) = folder.code_and_output(&[".", "more"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("the turn sends more model requests than the turn has scripted replies (1)"), "{printed}");
}

/// S4, P5: A scenario can send images together with the user's text. A file that is not an image is refused, and the
/// error contains the location in the scenario.
#[test]
fn sends_images_with_the_input() {
    let template = repository().join("host/devkit/templates/manifest/media-policy-scenario.toml");
    let template = std::fs::read_to_string(template).unwrap();
    let image_line = template.lines().find(|line| line.contains("base64")).unwrap();
    let scenario = format!(
        "golden = true\n{}[files]\n{image_line}\n[[turns]]\nsay = \"What is on this?\"\nmedia = [\"chart.png\"]\n\
         replies = [{{ text = \"Two colours.\", expect = {{ last_contains = [\"What is on this?\", \"sha256:\"] }} }}]\n",
        plugins_line("calc")
    );
    let folder = ScenarioFolder::with(&[("seen", &scenario)]);
    let (code, printed) = folder.code_and_output(&["--update"]);
    assert_eq!(code, Some(0), "{printed}");
    let golden = std::fs::read_to_string(folder.0.path().join("seen.golden")).unwrap();
    assert!(golden.contains("What is on this?") && golden.contains("[chart.png]"), "{golden}");
    for (name, media, words) in [
        ("absent", "none.png", "turns[0]: `none.png` cannot be attached: No such file"),
        ("other", "a.txt", "`a.txt` cannot be attached: the file is not a PNG"),
        ("outside", "../a.png", "turns[0].media[0] is not a path inside the scenario's folder"),
    ] {
        let turn = format!(
            "[files]\n\"a.txt\" = \"text\"\n[[turns]]\nsay = \"Look\"\nmedia = [\"{media}\"]\nreplies = [{{ text = \"a\" }}]\n"
        );
        let folder = ScenarioFolder::with(&[(name, &(plugins_line("calc") + &turn))]);
        let (code, printed) = folder.code_and_output(&[]);
        assert!(code == Some(2) && printed.contains(words), "{printed}");
    }
}

/// S4, P6: The HTTP requests of plugins get the answers in the scenario file. A request that the file does not contain
/// is denied and reported. The report also lists each request that is in the file but was not sent by any plugin.
#[test]
fn answers_recorded_requests_and_denies_others() {
    let scenario = plugins_line("web")
        + "[agent.plugins.web.grants]\nhttp = [\"GET https://*.example.com\"]\n[[http]]\nrequest = \"GET https://a.example.com/x\"\nbody = \"A\"\n\
           [[http]]\nrequest = \"GET https://never.example.com/\"\n\
           [[calls]]\nname = \"web.fetch\"\narguments = { url = \"https://a.example.com/x\" }\nresult = { at = { \"/text\" = \"A\" } }\n\
           [[calls]]\nname = \"web.fetch\"\narguments = { url = \"https://b.example.com/y\" }\nfails = true\n";
    let (code, printed) = ScenarioFolder::with(&[("page", &scenario)]).code_and_output(&[]);
    assert_eq!(code, Some(1));
    let expected = [
        "`web` sent GET https://b.example.com/y, which was denied",
        "request = \"GET https://b.example.com/y\"",
        "expected  `GET https://never.example.com/` to be sent at least once",
    ];
    for line in expected {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
    assert!(!printed.contains("calls["), "the expectations of the calls are met: {printed}");
}

/// L10, L16–L18: A scenario can run whole agents with approvals, questions, services and child agents.
#[test]
fn scenarios_run_whole_agents() {
    let agents = repository().join("tests/agents");
    let agents = agents.display();
    let careful = plugins_line("files")
        + &format!("agent = \"{agents}/careful.toml\"\n")
        + "[[turns]]\nsay = \"Write a note.\"\nreplies = [\n\
           { calls = [{ name = \"files.write\", arguments = { path = \"note.txt\", text = \"milk\" } }, { name = \"files.move\", arguments = { from = \"a\", to = \"b\" } }] },\n\
           { text = \"Done.\" }]\napprovals = [{ name = \"files.write\", verdict = \"allow\", arguments = { path = \"note.txt\", text = \"tea\" } }]\n\
           calls = [{ name = \"files.write\", arguments = { path = \"note.txt\", text = \"tea\" }, fails = true }, { name = \"files.move\", fails = true }]\n";
    let lead = format!(
        "agent = \"{agents}/lead.toml\"\nfiles = {{ \"lighthouse.md\" = {{ copy = \"{agents}/lighthouse.md\" }} }}\n[[turns]]\nsay = \"When does the lighthouse open?\"\noutput = {{ contains = \"nine\" }}\n"
    );
    let service = "plugins = []\n[agent.services.tide]\ntype = \"com.example.tide\"\n[agent.services.tide.emits.\"com.example.tide.known\"]\ntype = \"object\"\n\
        [agent.services.tide.accepts]\ntype = \"object\"\n[[turns]]\nsay = \"When?\"\nreplies = [{ calls = [{ name = \"tide\", arguments = {} }] }, { text = \"At four.\" }]\n\
        services = [{ name = \"tide\", type = \"com.example.tide.known\", data = { at = \"four\" } }]\ncalls = [{ name = \"tide\", result = { json = { at = \"four\" } } }]\n";
    let question = "plugins = []\nagent = { finish = \"tool\" }\n[[turns]]\nsay = \"Paint it.\"\nreplies = [\n\
        { calls = [{ name = \"ask_question\", arguments = { question = \"Which colour?\" } }] },\n\
        { calls = [{ name = \"task_completion\", arguments = { result = \"blue\" } }], expect = { last_contains = \"blue\" } }]\n\
        questions = [{ question = { contains = \"colour\" }, answer = \"blue\" }]\nends = \"completed\"\n";
    let folder =
        ScenarioFolder::with(&[("careful", &careful), ("lead", &lead), ("service", service), ("question", question)]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(0), "{printed}");
    // If the scenario has no answer, the agent waits, and the report shows the line to add to the scenario.
    let waiting = careful.replace("approvals = ", "approvals = [] # ");
    let folder = ScenarioFolder::with(&[
        ("careful", &waiting),
        ("question", &question.replace("colour\" }, answer", "size\" }, answer")),
    ]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("approvals = [{ name = \"files.write\", verdict = \"allow\" }]"), "{printed}");
    assert!(printed.contains("expected  a text that contains \"size\"\n    found     \"Which colour?\""), "{printed}");
}

/// S4: On request, the command writes a report as JSON for programs or as JUnit XML for CI servers.
#[test]
fn writes_reports_for_programs() {
    let good = plugins_line("text") + "[[calls]]\nname = \"text.count\"\narguments = { text = \"a\" }\n";
    let folder = ScenarioFolder::with(&[("good", &good), ("bad", &(good.clone() + "result = \"<&>\"\n"))]);
    let output = folder.test(&["--json", "--junit", "report.xml"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["passed"], &document["failed"]), (&1.into(), &1.into()));
    assert_eq!(document["scenarios"][0]["failures"][0]["key"], "calls[0].result");
    assert_eq!(document["scenarios"][0]["failures"][0]["line"], 5);
    let xml = std::fs::read_to_string(folder.0.path().join("report.xml")).unwrap();
    assert!(xml.contains("<testsuite name=\"scenarios\" tests=\"2\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(xml.contains("&lt;&amp;&gt;") && !xml.contains("<&>"), "{xml}");
    let (code, printed) = folder.code_and_output(&["--junit", "no/such/folder.xml"]);
    assert_eq!(code, Some(2));
    assert!(printed.contains("`no/such/folder.xml` cannot be written"), "{printed}");
    assert!(!printed.contains("✓ good"), "the error is reported before a scenario runs: {printed}");
}

/// S4: Without `--plugins`, the command first builds the plugin projects that the scenarios need, each in the folder of
/// the project.
#[test]
fn builds_projects_before_their_scenarios() {
    let folder = tempfile::tempdir().unwrap();
    let (project, sdk) = (folder.path().join("shout"), repository().join("sdk"));
    std::fs::create_dir_all(project.join("src")).unwrap();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let block = |language: &str, content: &str| {
        let fence = format!("```{language}\n");
        let blocks = readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
        let mut matching = blocks.filter(|block| block.contains(content)).map(str::to_owned);
        matching.next().unwrap()
    };
    let manifest = block("toml", "crate-type").replace("../../sdk", sdk.to_str().unwrap()) + "\n[workspace]\n";
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    std::fs::write(project.join("plugin.toml"), block("toml", "Text in capitals")).unwrap();
    std::fs::write(project.join("src/lib.rs"), block("rust", "text.shout")).unwrap();
    let scenario = block("toml", "[[calls]]");
    std::fs::write(project.join("shout.scenario.toml"), scenario).unwrap();
    let test = |arguments: &[&str]| {
        let mut command = agent_host();
        let target = crate::support::scratch().join("scenario-target");
        command
            .current_dir(&project)
            .arg("test")
            .args(arguments)
            .arg("--data")
            .arg(data())
            .env("CARGO_TARGET_DIR", target);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output_text = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let unbuilt = test(&["--no-build"]);
    assert_eq!(unbuilt.status.code(), Some(2), "{}", output_text(&unbuilt));
    assert!(output_text(&unbuilt).contains("the plugin `shout` has no component"), "{}", output_text(&unbuilt));
    let built = test(&[]);
    assert_eq!(built.status.code(), Some(0), "{}", output_text(&built));
    assert!(project.join("shout.wasm").is_file());
    std::fs::write(project.join("src/lib.rs"), block("rust", "text.shout").replace("to_uppercase", "to_lowercase"))
        .unwrap();
    let changed = test(&[]);
    assert_eq!(changed.status.code(), Some(1), "{}", output_text(&changed));
    assert!(output_text(&changed).contains("+hello"), "{}", output_text(&changed));
}
