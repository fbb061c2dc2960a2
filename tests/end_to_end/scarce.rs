//! Machines that allow a process little: it works with less, or says in one line which limit is too low, and ends with code 2.

use crate::support::{calling, components, saying, script};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with a plugin and a model that calls it.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("plugins")).unwrap();
    std::fs::copy(components().join("calc.wasm"), place.path().join("plugins/calc.wasm")).unwrap();
    let replies = [calling(&[("calc.evaluate", json!({"expression": "1+1"}))]), saying("It is two.")];
    std::fs::write(place.path().join("script.json"), script(&replies).to_string()).unwrap();
    place
}

/// The exit code, and all that was printed, under limits that a shell sets.
fn under(limits: &str, place: &Path, arguments: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_agent-host");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits} && exec '{program}' {arguments} --data data")]).current_dir(place);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

const ASK: &str = "--plugins plugins --model scripted:script.json Go.";

/// With a small stack, and without the address space that the engine reserves, plugins work.
#[test]
fn a_small_stack_or_address_space_is_enough() {
    let place = place();
    for limits in ["ulimit -s 256", "ulimit -v 4000000", "ulimit -v 4000000 && ulimit -s 256"] {
        let (code, text) = under(limits, place.path(), ASK);
        assert!(code == Some(0) && text.contains("It is two."), "{limits}: {text}");
        assert_eq!(limits.contains("-v"), text.contains("`ulimit -v`"), "it is said: {text}");
    }
}

/// Where it cannot work, the limit is named, and not whatever met it first.
#[test]
fn a_limit_that_is_too_low_is_named() {
    for (limits, named) in [("ulimit -n 20", "`ulimit -n`"), ("ulimit -f 10", "`ulimit -f`")] {
        let place = place();
        let (code, text) = under(limits, place.path(), ASK);
        assert!(code == Some(2) && text.contains(named), "{limits}: {code:?} {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// Processor time that is used up is said, also where the system would kill the process without a signal before.
#[test]
fn used_processor_time_is_said() {
    let place = place();
    let endless = "(component (core module $m (func $run loop br 0 end) (start $run)) (core instance $i (instantiate $m))\
                   (core module $n (func (export \"f\"))) (core instance $j (instantiate $n))\
                   (func (export \"f\") (canon lift (core func $j \"f\"))))";
    std::fs::write(place.path().join("endless.wasm"), wat::parse_str(endless).unwrap()).unwrap();
    for limits in ["ulimit -t 2", "ulimit -S -t 2"] {
        let (code, text) = under(limits, place.path(), "plugin inspect endless.wasm");
        assert!(code == Some(2) && text.contains("`ulimit -t`"), "{limits}: {code:?} {text}");
    }
}
