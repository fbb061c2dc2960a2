//! F1: the files for containers in `host/packages/deploy` start the program with options that exist, and Kubernetes accepts them.

use crate::support::{agent_host, repository};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

fn file(name: &str) -> String {
    let path = repository().join("host/packages/deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the arguments of each container of the program: lists in one line, or one item per line.
fn arguments(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let line = line.trim();
        let Some(list) = line.strip_prefix("command:").or_else(|| line.strip_prefix("args:")) else { continue };
        let list: Vec<String> = if list.is_empty() {
            let items = lines[number + 1..].iter().map_while(|line| line.trim().strip_prefix("- "));
            items.map(str::to_owned).collect()
        } else {
            serde_json::from_str(list.trim()).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        if list.first().is_some_and(|command| command == "serve" || command == "worker") {
            found.push(list);
        }
    }
    found
}

#[test]
fn f1_containers_start_with_options_that_exist() {
    for name in ["compose.yaml", "kubernetes.yaml"] {
        let text = file(name);
        let commands = arguments(&text);
        let started: BTreeSet<_> = commands.iter().map(|arguments| arguments[0].as_str()).collect();
        assert_eq!(started, ["serve", "worker"].into(), "{name}");
        for arguments in &commands {
            // With `--help`, the options are checked and nothing is started.
            let output =
                agent_host().args(arguments).arg("--help").stdin(Stdio::null()).output().expect("the program runs");
            assert!(output.status.success(), "{name}: {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            let all = arguments.join(" ");
            let port = all.split(':').nth(1).map(|rest| &rest[..4]).expect("an address with a port");
            assert!(text.matches(port).count() > 1 || name == "compose.yaml", "{name}: the port {port} is opened");
        }
    }
}

#[test]
fn f1_containers_use_documented_variables() {
    let guide = std::fs::read_to_string(repository().join("host/docs/guide/fleet.md")).expect("the guide");
    let pattern = regex::Regex::new("AGENT_HOST_[A-Z]+").expect("a pattern");
    for name in ["compose.yaml", "kubernetes.yaml"] {
        let text = file(name);
        let variables: BTreeSet<_> = pattern.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(variables.contains("AGENT_HOST_STORE"), "{name}: {variables:?}");
        for variable in variables {
            assert!(guide.contains(variable), "{name}: the guide does not describe {variable}");
        }
    }
}

/// The official schemas of Kubernetes accept the file.
#[test]
fn f1_kubernetes_accepts_the_file() {
    let Some(program) = crate::peers::python_peer("kubernetes-validate") else { return };
    let path = repository().join("host/packages/deploy/kubernetes.yaml");
    let output = Command::new(program).arg("--strict").arg(path).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches(" passed for resource ").count(), 5, "{text}");
}
