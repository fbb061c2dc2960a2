//! `doctor` checks whether everything is ready, says how to fix what is not, and changes nothing (I2).

use super::{Printed, User};
use serde_json::Value;

/// Returns the level of each finding in an area, and the fix of the first of them.
fn levels(printed: &Printed, area: &str) -> (Vec<String>, String) {
    let document: Value = serde_json::from_str(printed.stdout.trim()).unwrap_or_else(|_| panic!("{printed:?}"));
    let findings: Vec<&Value> =
        document["findings"].as_array().unwrap().iter().filter(|finding| finding["area"] == area).collect();
    let levels = findings.iter().map(|finding| finding["level"].as_str().unwrap().to_owned()).collect();
    (levels, findings.first().and_then(|finding| finding["fix"].as_str()).unwrap_or_default().to_owned())
}

/// I2: a new user gets hints and no errors, and nothing is created.
#[test]
fn i2_doctor_changes_nothing_for_a_new_user() {
    let user = User::new(&[]);
    let data = user.path("no-data").display().to_string();
    let printed = user.run("home/project", &["doctor", "--data", &data]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(
        printed.stdout.contains("agent-host setup") && printed.stdout.contains("agent-host is ready"),
        "{printed:?}"
    );
    assert!(!user.path("no-data").exists());
    assert!(!user.path("home/.config").exists());
    user.set_up();
    let before = user.user_text();
    let printed = user.run("home/project", &["doctor", "--json"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert_ne!(levels(&printed, "data folder").0, ["error"], "{printed:?}");
    for area in ["clock", "user-wide", "model", "plugins"] {
        assert_eq!(levels(&printed, area).0, ["ok"], "{area}: {printed:?}");
    }
    assert_eq!(user.user_text(), before);
}

/// I2: broken parts are errors with a fix, and the exit code is 1.
#[test]
fn i2_doctor_explains_how_to_fix_what_is_broken() {
    let user = User::new(&[]);
    user.set_up();
    let file = User::user_file().display().to_string();
    let valid = user.user_text();
    let cases = [
        ("modle = \"offline\"\n", "user-wide", "editor"),
        ("model = \"openai/gpt-4.1-mini\"\n", "model", "set the variable"),
        (
            "model = \"mine/large\"\n[providers.mine]\nbase_url = \"http://127.0.0.1:9/v1\"\n",
            "model",
            "start the server",
        ),
        ("plugin_directory = \"absent\"\n", "configuration", "config check"),
    ];
    for (text, area, fix) in cases {
        user.write(&file, text);
        let printed = user.run("home/project", &["doctor", "--json"]);
        assert_eq!(printed.code, Some(1), "{text}: {printed:?}");
        let (levels, found) = levels(&printed, area);
        assert!(levels.contains(&"error".to_owned()) && found.contains(fix), "{text}: {printed:?}");
    }
    user.write(&file, &valid);
    user.write("installed/broken.wasm", "not a component");
    let printed = user.run("home/project", &["doctor"]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.stdout.contains("broken.wasm") && printed.stdout.contains("must be fixed"), "{printed:?}");
}

/// P14: an agent.toml that is not trusted is a hint, and nothing in it is used.
#[test]
fn p14_doctor_does_not_use_an_untrusted_file() {
    let user = User::new(&[]);
    user.set_up();
    user.write("home/project/agent.toml", "model = \"nobody/model\"\nplugin_directory = \"absent\"\n");
    let printed = user.run("home/project", &["doctor", "--json"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let (levels, fix) = levels(&printed, "this folder");
    assert!(levels == ["hint"] && fix.contains("agent-host trust"), "{printed:?}");
}

/// I2, O1: a collector that does not answer is a warning with a fix, because traces are kept and sent later.
#[test]
fn o1_doctor_asks_the_collector() {
    let user = User::new(&[]);
    user.set_up();
    let file = User::user_file().display().to_string();
    user.write(&file, &format!("{}\n[telemetry]\nendpoint = \"http://127.0.0.1:9\"\n", user.user_text()));
    let printed = user.run("home/project", &["doctor", "--json"]);
    let (found, fix) = levels(&printed, "collector");
    assert_eq!((found, printed.code), (vec!["warning".to_owned()], Some(0)), "{printed:?}");
    assert!(fix.contains("start the collector"), "{fix}");
}
