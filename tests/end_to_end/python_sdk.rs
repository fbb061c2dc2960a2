//! The Python SDK with the real toolchain and the real host: its unit tests, a tool that calls an API, all functions of the
//! host, errors with tracebacks, and development builds (S8).

use crate::peers::python_peer;
use crate::plugin_authoring::{TestCli, peer};
use crate::support::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Runs the Python unit tests in a folder.
fn run_unit_tests(python: &Path, folder: &Path) {
    let mut tests = Command::new(python);
    tests.args(["-m", "unittest", "discover", "-s", "tests"]).current_dir(folder);
    let output = tests.env("PYTHONPATH", folder).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !printed.contains("Ran 0 tests"), "{printed}");
}

/// S8: the unit tests of the Python SDK pass without a host.
#[test]
fn s8_unit_tests_of_the_python_sdk_pass() {
    let Some(python) = python_peer("python") else { return };
    run_unit_tests(&python, &repository().join("sdk/python"));
}

/// Returns the components that development builds share, each with the time of its last change.
fn shared_runtimes(cli: &TestCli) -> BTreeMap<PathBuf, SystemTime> {
    let folders = std::fs::read_dir(cli.path("data/cache/development")).unwrap();
    let files = folders.map(|folder| folder.unwrap().path().join("runtime.wasm"));
    files.filter_map(|file| Some((file.clone(), std::fs::metadata(file).ok()?.modified().unwrap()))).collect()
}

/// Replaces a text in a file.
fn edit(cli: &TestCli, path: &str, before: &str, after: &str) {
    let text = std::fs::read_to_string(cli.path(path)).unwrap();
    assert!(text.contains(before), "{text}");
    std::fs::write(cli.path(path), text.replace(before, after)).unwrap();
}

/// S4, S5, S8: the project that `plugin new --http` creates passes its tests and its scenario, as a development build and as
/// a release. A change of the source is tested without building the component again. A development build cannot be pushed.
#[test]
fn s8_a_python_tool_that_calls_an_api_passes_its_scenario() {
    let Some((variables, tests)) = peer("python") else { return };
    let cli = TestCli::new();
    let (code, printed, stderr) = cli.run(&["plugin", "new", "orders", "--lang", "python", "--http"], &[]);
    assert_eq!(code, Some(0), "{printed}{stderr}");
    for command in &tests {
        let mut tests = Command::new(command.get_program());
        let output = tests.args(command.get_args()).current_dir(cli.path("orders")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (code, printed, stderr) = cli.run(&["test", "orders"], &variables);
    assert!(code == Some(0) && printed.contains("1 scenario: 1 passed"), "{printed}{stderr}");

    let built = shared_runtimes(&cli);
    assert!(!built.is_empty());
    edit(&cli, "orders/app.py", "state=found[\"state\"]", "state=found[\"state\"].upper()");
    let (code, printed, stderr) = cli.run(&["test", "orders"], &variables);
    assert!(code == Some(1) && printed.contains("SHIPPED"), "{printed}{stderr}");
    assert_eq!(shared_runtimes(&cli), built, "the component was not built again");
    edit(&cli, "orders/app.py", ".upper()", "");
    // Another project, which consists of a manifest and a module, uses the same component and the SDK of the binary.
    std::fs::create_dir(cli.path("other")).unwrap();
    for file in ["app.py", "plugin.toml", "orders.scenario.toml"] {
        std::fs::copy(cli.path("orders").join(file), cli.path("other").join(file)).unwrap();
    }
    edit(&cli, "other/app.py", "import ToolError", "import ToolError, values");
    edit(&cli, "other/app.py", "    try:", "    values.open()\n    try:");
    let (code, printed, stderr) = cli.run(&["test", "other"], &variables);
    let shown = printed + &stderr;
    assert!(code == Some(1) && shown.contains("add `key_value = true` below `[asks]`"), "{shown}");
    edit(&cli, "other/app.py", "    values.open()\n", "");
    cli.succeed(&["test", "other"], &variables);
    assert_eq!(shared_runtimes(&cli), built, "the component was not built again");
    let (code, _, stderr) = cli.run(&["plugin", "push", "registry.example/orders", "orders/orders.wasm"], &variables);
    assert!(code == Some(2) && stderr.contains("development build"), "{stderr}");

    let (code, printed, stderr) = cli.run(&["plugin", "check", "orders"], &variables);
    assert!(code == Some(0) && !printed.contains("error "), "{printed}{stderr}");
    let (code, printed, stderr) = cli.run(&["test", "orders", "--no-build"], &variables);
    assert!(code == Some(0) && printed.contains("1 scenario: 1 passed"), "{printed}{stderr}");
}

/// S5, S8: a development build reports mistakes in the source: a syntax error, and an exception of a tool with its traceback.
#[test]
fn s8_errors_of_python_plugins_have_tracebacks() {
    let Some((variables, _)) = peer("python") else { return };
    let cli = TestCli::new();
    cli.run(&["plugin", "new", "words", "--lang", "python"], &[]);
    edit(&cli, "words/app.py", "    return Counted(", "    print(len(text) // (len(word) - 3))\n    return Counted(");
    let (code, printed, stderr) = cli.run(&["test", "words", "-v"], &variables);
    let shown = printed + &stderr;
    assert!(code == Some(1) && shown.contains("ZeroDivisionError"), "{shown}");
    assert!(shown.contains("print(len(text) // (len(word) - 3))"), "the traceback shows the line: {shown}");
    assert!(!shown.contains("denied"), "the traceback needs no access to files: {shown}");
    edit(&cli, "words/app.py", "def count(", "def count((");
    let (code, printed, stderr) = cli.run(&["test", "words"], &variables);
    let shown = printed + &stderr;
    assert!(code == Some(2) && shown.contains("SyntaxError") && shown.contains("app.py"), "{code:?} {shown}");
}

/// S8: a Python plugin reads and writes files, stores values, reads settings and media, writes log lines, asks the model and
/// requests work from a service, as its scenario says.
#[test]
fn s8_a_python_plugin_uses_all_functions_of_the_host() {
    let Some((variables, _)) = peer("python") else { return };
    let cli = TestCli::new();
    cli.run(&["plugin", "new", "probe-host", "--lang", "python"], &[]);
    for file in ["app.py", "plugin.toml", "probe-host.scenario.toml"] {
        let source = repository().join("tests/guests/python-sdk").join(file);
        std::fs::copy(source, cli.path("probe-host").join(file)).unwrap();
    }
    let (code, printed, stderr) = cli.run(&["test", "probe-host"], &variables);
    assert!(code == Some(0) && printed.contains("1 scenario: 1 passed"), "{printed}{stderr}");
}
