//! The SDK for JavaScript: its own tests, and a plugin that uses each function of the SDK in a component (S8).

use crate::peers::{node, npm_package};
use crate::plugin_authoring::{TestCli, peer};
use crate::support::repository;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program, which must succeed, and returns its output.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// Returns the paths of the files in this folder whose names have this ending.
fn files_in(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

/// S8: The tests of the SDK for JavaScript pass in Node.js.
#[test]
fn s8_the_tests_of_the_javascript_sdk_pass() {
    let Some(node) = node() else { return };
    let sdk = repository().join("sdk/javascript");
    let tests = files_in(&sdk.join("tests"), ".test.js");
    assert!(tests.len() >= 5, "{tests:?}");
    let printed = succeed(Command::new(node).arg("--test").args(tests).current_dir(sdk));
    assert!(printed.contains("fail 0") && !printed.contains("pass 0"), "{printed}");
}

/// S8: TypeScript infers the types of arguments from the schemas, and finds wrong declarations.
#[test]
fn s8_the_types_of_the_javascript_sdk_are_correct() {
    let (Some(node), Some(compiler)) = (node(), npm_package("typescript", "bin/tsc")) else { return };
    let mut command = Command::new(node);
    command.arg(compiler).args(["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022", "--types", ""]);
    command.args(["--module", "nodenext", "--moduleResolution", "nodenext", "tests/types.ts"]);
    succeed(command.current_dir(repository().join("sdk/javascript")));
}

/// S8, S2, S3: A plugin in TypeScript uses each function of the SDK. The component imports only what the source uses,
/// so that the manifest requests exactly the imports. The stack of an exception names lines of the source, and is shown
/// when the plugin fails.
#[test]
fn s8_functions_of_the_javascript_sdk_reach_the_host() {
    let Some((variables, _)) = peer("js") else { return };
    let cli = TestCli::new();
    let name = "javascript-sdk";
    cli.new_project_of_guest(name, "js", &["app.js", "app.test.js"]);
    let printed = cli.succeed(&["plugin", "build", name], &variables);
    for import in ["wasi:http@0.2.0 types, outgoing-handler", "wasi:keyvalue@", "wasi:config@", "agent-host:model@"] {
        assert!(printed.contains(import), "{printed}");
    }
    assert!(!printed.contains("host:http"), "{printed}");
    let printed = cli.succeed(&["plugin", "check", name], &variables);
    assert!(!printed.contains("asks"), "{printed}");
    let (code, printed, stderr) = cli.run(&["test", name], &variables);
    assert!(code == Some(0) && printed.contains("1 scenario: 1 passed"), "{printed}{stderr}");
    assert!(stderr.contains("RangeError: too deep") && stderr.contains("(other.js:25)"), "{stderr}");

    let component = format!("{name}/{name}.wasm");
    let arguments = ["plugin", "call", &component, "sdk.fail", r#"{"how": "exception"}"#];
    let (code, _, stderr) = cli.run(&arguments, &[]);
    assert_ne!(code, Some(0));
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].contains("RangeError: too deep"), "{stderr}");
    assert!(lines[1].contains("(other.js:25)"), "{stderr}");
    assert!(!stderr.contains("plugin.js") && !stderr.contains("(native)"), "{stderr}");
}

/// S8: If the source exports no plugin, or something else that cannot be built, the error says what to change.
#[test]
fn s8_build_errors_of_javascript_plugins_explain_the_fix() {
    let Some((variables, _)) = peer("js") else { return };
    let cli = TestCli::new();
    cli.succeed(&["plugin", "new", "words", "--lang", "js"], &[]);
    for (source, words) in [
        ("export const tool = 1;", "exports no plugin: export at least one of `tools`"),
        ("export const tools = {};", "`tools` must be an array of tools"),
        ("export const outputValidator = { validate() {} };", "`outputValidator` must be a function"),
        ("import './missing.js'; export const tools = [];", "missing.js"),
        ("export const tools = [;", "app.js"),
        ("import { tool } from 'agent-host-sdk'; export const tools = [tool({ name: 'a' })];", "has no description"),
    ] {
        std::fs::write(cli.path("words/app.js"), source).unwrap();
        let (code, _, stderr) = cli.run(&["plugin", "build", "words"], &variables);
        assert!(code == Some(1) && stderr.contains(words), "{source}: {stderr}");
    }
}
