//! What is written into an agent.toml, and what of it stays as it was.

use super::*;

fn grant(kind: Kind, value: &str) -> Grant {
    let receiver = Receiver::Plugin("text".into());
    Grant { receiver, kind, value: value.into(), base: PathBuf::new(), origin: String::new() }
}

fn with(text: &str, addition: &Addition<'_>) -> Result<String, EditError> {
    Draft { path: "agent.toml".into(), text: text.into() }.with("text", addition)
}

fn reading(text: &str) -> String {
    with(text, &Addition::Grants(&[grant(Kind::Read, ".")])).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// P6: whatever way the tables are written in, what is granted comes into them, and comments and layout stay.
#[test]
fn p6_grants_come_into_a_file_as_it_is_written() {
    let files = [
        "",
        "# mine\nname = \"a\" # the name\n",
        "name = \"a\"\n\n[plugins.files.grants]\nread = [\"docs\"]   # only these\n\n[approval]\ndefault = \"ask\"\n",
        "[plugins.text.grants]\n# what it may\nenv = [\"LANG\"]\n\n[plugins.files.grants]\nread = [\".\"]\n",
        "[plugins.text.grants]\nread = [ \"docs\" ] # these\n",
        "[plugins.text.grants]\nread = [\n    \"docs\", # these\n    # and those\n    \"more\",\n]\n",
        "[plugins.text.limits]\ntool_wall_ms = 5\n",
        "plugins.text.grants.env = [\"LANG\"]\n",
        "plugins = { text = { grants = { env = [\"LANG\"] } } }\n",
        "[plugins]\ntext = { limits = { tool_wall_ms = 5 } }\n",
        "[plugins]\ntext.grants = {}\n",
        "[plugins.text]\ngrants = { read = [\"docs\"] }",
        "[plugins.files.grants]\nread = [\".\"]\n# so much for files\n\n# [approval]\n",
        "[plugins.files.grants]\nread = [\".\"]\n\n[approval]\ndefault = \"ask\"\n# the end\n",
    ];
    let written: Vec<_> = files.iter().map(|file| reading(file)).collect();
    insta::assert_snapshot!(written.join("\n=====\n"), @r#"
    [plugins.text.grants]
    read = ["."]

    =====
    # mine
    name = "a" # the name

    [plugins.text.grants]
    read = ["."]

    =====
    name = "a"

    [plugins.files.grants]
    read = ["docs"]   # only these

    [plugins.text.grants]
    read = ["."]

    [approval]
    default = "ask"

    =====
    [plugins.text.grants]
    # what it may
    env = ["LANG"]
    read = ["."]

    [plugins.files.grants]
    read = ["."]

    =====
    [plugins.text.grants]
    read = [ "docs" , "."] # these

    =====
    [plugins.text.grants]
    read = [
        "docs", # these
        # and those
        "more",
        ".",
    ]

    =====
    [plugins.text.limits]
    tool_wall_ms = 5

    [plugins.text.grants]
    read = ["."]

    =====
    plugins.text.grants.env = ["LANG"]
    plugins.text.grants.read = ["."]

    =====
    plugins = { text = { grants = { env = ["LANG"] , read = ["."] } } }

    =====
    [plugins]
    text = { limits = { tool_wall_ms = 5 } , grants = { read = ["."] } }

    =====
    [plugins]
    text.grants = { read = ["."] }

    =====
    [plugins.text]
    grants = { read = ["docs", "."] }

    =====
    [plugins.files.grants]
    read = ["."]
    # so much for files

    # [approval]

    [plugins.text.grants]
    read = ["."]

    =====
    [plugins.files.grants]
    read = ["."]

    [plugins.text.grants]
    read = ["."]

    [approval]
    default = "ask"
    # the end
    "#);
}

/// P6: every kind is written as it was shown, and a name that is no bare key in quotes.
#[test]
fn p6_all_kinds_are_written() {
    let all = [
        grant(Kind::Write, "out \"x\""),
        grant(Kind::Env, "LANG"),
        grant(Kind::Http, "GET https://*:*"),
        grant(Kind::KeyValue, "10"),
    ];
    let written = with("model = \"offline\"\n", &Addition::Grants(&all)).expect("written");
    insta::assert_snapshot!(written, @r#"
    model = "offline"

    [plugins.text.grants]
    write = ['out "x"']
    env = ["LANG"]
    http = ["GET https://*:*"]
    key_value_mib = 10
    "#);
    let refused = with(&written, &Addition::AskNoMore).expect("written");
    assert_eq!(refused, format!("{written}ask = false\n"));
    assert_eq!(
        with("[plugins.text.grants]\nask = true\n", &Addition::AskNoMore).expect("written"),
        "[plugins.text.grants]\nask = false\n"
    );
}

/// P6: a file that says something else than it seems to is left alone.
#[test]
fn p6_what_cannot_be_added_to_is_left_alone() {
    for file in ["plugins = 1\n", "[plugins]\ntext = []\n", "[plugins.text.grants]\nread = \".\"\n", "= \n"] {
        let refused = with(file, &Addition::Grants(&[grant(Kind::Read, ".")]));
        assert!(matches!(refused, Err(EditError::Form { .. })), "{file}: {refused:?}");
    }
    // What the file says already is not said again by an answer, and a value that is there is not replaced.
    let replaced =
        with("[plugins.text.grants]\nkey_value_mib = 5\n", &Addition::Grants(&[grant(Kind::KeyValue, "10")]));
    assert!(matches!(replaced, Err(EditError::Form { .. })), "{replaced:?}");
}

/// P6: written whole, with the same permissions, through a link; and not at all, where somebody else was faster.
#[cfg(unix)]
#[test]
fn p6_a_file_is_replaced_whole_or_not_at_all() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, link) = (folder.path().join("real.toml"), folder.path().join("agent.toml"));
    std::fs::write(&file, "# mine\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("set");
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    let grants = [grant(Kind::Env, "LANG")];
    let addition = Addition::Grants(&grants);
    let draft = Draft::read(&link).expect("read");
    draft.add("text", &addition).expect("added");
    let text = std::fs::read_to_string(&file).expect("there");
    assert_eq!(text, "# mine\n\n[plugins.text.grants]\nenv = [\"LANG\"]\n");
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    let again = draft.add("text", &addition);
    assert!(matches!(again, Err(EditError::Changed(_))), "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
    let names = std::fs::read_dir(folder.path()).expect("listed").count();
    assert_eq!(names, 2, "no draft is left behind");
}
