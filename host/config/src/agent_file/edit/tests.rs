//! Tests that additions are written into an `agent.toml` and that the other contents of the file are kept.

use super::*;

fn grant(kind: Kind, value: &str) -> Grant {
    let receiver = Receiver::Plugin("text".into());
    Grant { receiver, kind, value: value.into(), base: PathBuf::new(), origin: String::new() }
}

fn text_with(text: &str, addition: &Addition<'_>) -> Result<String, EditError> {
    Draft { path: "agent.toml".into(), text: text.into() }.text_with("text", addition)
}

fn with_read_grant(text: &str) -> String {
    text_with(text, &Addition::Grants(&[grant(Kind::Read, ".")])).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// P6: grants are added to tables in every TOML notation, and comments and layout are kept.
#[test]
fn p6_adds_grants_and_keeps_layout_and_comments() {
    let files = [
        "",
        "# mine\nname = \"a\" # the name\n",
        "name = \"a\"\n\n[plugins.files.grants]\nread = [\"docs\"]   # only these\n\n[approval]\ndefault = \"ask\"\n",
        "[plugins.text.grants]\n# allowed variables\nenv = [\"LANG\"]\n\n[plugins.files.grants]\nread = [\".\"]\n",
        "[plugins.text.grants]\nread = [ \"docs\" ] # these\n",
        "[plugins.text.grants]\nread = [\n    \"docs\", # these\n    # another comment\n    \"more\",\n]\n",
        "[plugins.text.limits]\ntool_wall_ms = 5\n",
        "plugins.text.grants.env = [\"LANG\"]\n",
        "plugins = { text = { grants = { env = [\"LANG\"] } } }\n",
        "[plugins]\ntext = { limits = { tool_wall_ms = 5 } }\n",
        "[plugins]\ntext.grants = {}\n",
        "[plugins.text]\ngrants = { read = [\"docs\"] }",
        "[plugins.files.grants]\nread = [\".\"]\n# end of the file grants\n\n# [approval]\n",
        "[plugins.files.grants]\nread = [\".\"]\n\n[approval]\ndefault = \"ask\"\n# last comment\n",
    ];
    let written: Vec<_> = files.iter().map(|file| with_read_grant(file)).collect();
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
    # allowed variables
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
        # another comment
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
    # end of the file grants

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
    # last comment
    "#);
}

/// P6: every kind of grant is written as it was shown to the user, with quotes where TOML needs them.
#[test]
fn p6_writes_every_kind_of_grant() {
    let all = [
        grant(Kind::Write, "out \"x\""),
        grant(Kind::Env, "LANG"),
        grant(Kind::Http, "GET https://*:*"),
        grant(Kind::KeyValue, "10"),
    ];
    let written = text_with("model = \"offline\"\n", &Addition::Grants(&all)).expect("written");
    insta::assert_snapshot!(written, @r#"
    model = "offline"

    [plugins.text.grants]
    write = ['out "x"']
    env = ["LANG"]
    http = ["GET https://*:*"]
    key_value_mib = 10
    "#);
    let refused = text_with(&written, &Addition::NeverAsk).expect("written");
    assert_eq!(refused, format!("{written}ask = false\n"));
    assert_eq!(
        text_with("[plugins.text.grants]\nask = true\n", &Addition::NeverAsk).expect("written"),
        "[plugins.text.grants]\nask = false\n"
    );
}

/// P6: the file is not changed if the TOML notation in the file does not allow the addition.
#[test]
fn p6_leaves_unsupported_files_unchanged() {
    for file in ["plugins = 1\n", "[plugins]\ntext = []\n", "[plugins.text.grants]\nread = \".\"\n", "= \n"] {
        let refused = text_with(file, &Addition::Grants(&[grant(Kind::Read, ".")]));
        assert!(matches!(refused, Err(EditError::Form { .. })), "{file}: {refused:?}");
    }
    // An addition must not replace a value that is already in the file.
    let replaced =
        text_with("[plugins.text.grants]\nkey_value_mib = 5\n", &Addition::Grants(&[grant(Kind::KeyValue, "10")]));
    assert!(matches!(replaced, Err(EditError::Form { .. })), "{replaced:?}");
}

/// P6: the file is replaced atomically. The replacement keeps the permissions of the file, and keeps a symbolic link to
/// the file. A file that was changed after it was read is not replaced.
#[cfg(unix)]
#[test]
fn p6_replaces_the_file_atomically_or_not_at_all() {
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
    let text = std::fs::read_to_string(&file).expect("exists");
    assert_eq!(text, "# mine\n\n[plugins.text.grants]\nenv = [\"LANG\"]\n");
    assert_eq!(std::fs::metadata(&file).expect("exists").permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).expect("exists").is_symlink());
    let second = draft.add("text", &addition);
    assert!(matches!(second, Err(EditError::Changed(_))), "{second:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("exists"), text);
    let names = std::fs::read_dir(folder.path()).expect("listed").count();
    assert_eq!(names, 2, "no temporary file is left behind");
}

/// P13, row 40: a file that is written before it becomes a configuration has a name that no plugin can use.
#[test]
fn p13_row_40_unfinished_files_have_a_protected_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let unfinished = TemporaryFile::next_to(&folder.path().join("agent.toml")).expect("created");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("listed").flatten().map(|entry| entry.file_name()).collect();
    assert!(
        matches!(&names[..], [name] if name.to_string_lossy().starts_with(agent_plugins::DRAFT_PREFIX)),
        "{names:?}"
    );
    drop(unfinished);
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

/// P10: removing grants keeps comments, other keys and other plugins. Without the right to write, folders stay readable.
#[test]
fn p10_removes_grants_and_keeps_everything_else() {
    let file = "# mine\n[plugins.text.grants]\nread = [\"docs\"] # these\nwrite = [\"out\", \"docs\"]\nhttp = [\"https://a.example\"]\n\
                ask = false\n\n[plugins.files.grants]\nread = [\".\"]\n";
    let draft = Draft { path: "agent.toml".into(), text: file.into() };
    let without = |kind| draft.text_without("text", kind).unwrap_or_else(|error| panic!("{error}"));
    let texts = [without(Some(Kind::Write)), without(Some(Kind::Read)), without(None), without(Some(Kind::Env))];
    insta::assert_snapshot!(texts.join("=====\n"), @r#"
    # mine
    [plugins.text.grants]
    read = ["docs", "out"] # these
    http = ["https://a.example"]
    ask = false

    [plugins.files.grants]
    read = ["."]
    =====
    # mine
    [plugins.text.grants]
    http = ["https://a.example"]
    ask = false

    [plugins.files.grants]
    read = ["."]
    =====
    # mine
    [plugins.text.grants]
    ask = false

    [plugins.files.grants]
    read = ["."]
    =====
    # mine
    [plugins.text.grants]
    read = ["docs"] # these
    write = ["out", "docs"]
    http = ["https://a.example"]
    ask = false

    [plugins.files.grants]
    read = ["."]
    "#);
    let other = draft.text_without("unknown", None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(other, file);
}
