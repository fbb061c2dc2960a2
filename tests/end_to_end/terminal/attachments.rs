//! Files and folders that a prompt names with `@path` (I1).

use super::{CTRL_C, TestCli};
use serde_json::json;
use std::path::Path;

/// I1: the files that a typed prompt names are attached, with numbered lines. A path that does not exist is plain text.
/// Tab completes paths.
#[test]
fn i1_files_that_a_typed_prompt_names_are_attached() {
    let reads = json!({"text": "Read.", "expect": {"last_contains": [
        "Compare @notes.txt, and @docs to @absent.md.", "[The user attached the file notes.txt: 2 lines, 8 bytes.",
        "    1 | one\n    2 | two\n[End of notes.txt]",
        "[The user attached the names in the folder docs/: 1 entry.", "    1 | deep guide.md\n[End of docs/]"
    ]}});
    let deep =
        json!({"text": "Deep.", "expect": {"last_contains": ["    1 | deep words\n[End of docs/deep guide.md]"]}});
    let cli = TestCli::new(&[reads, deep]);
    let tree = cli.folder.path().join("tree");
    std::fs::create_dir(tree.join("docs")).unwrap();
    std::fs::write(tree.join("notes.txt"), "one\ntwo\n").unwrap();
    std::fs::write(tree.join("docs/deep guide.md"), "deep words").unwrap();
    let mut screen = cli.session();
    screen.send("Compare @not\t");
    screen.wait_for_end("> Compare @notes.txt");
    screen.send(CTRL_C);
    screen.wait_for_end("\n\n>");
    screen.send("Compare @notes.txt, and @docs to @absent.md.\r");
    screen.wait_for("attached notes.txt: 2 lines, 8 bytes\nattached docs: 1 entry\n");
    screen.wait_for("! there is no file or folder @absent.md.: sent as plain text\n");
    screen.wait_for("\nRead.\n");
    screen.wait_for_end("\n>");
    // A folder is completed without a space, so that the user can continue with Tab.
    screen.send("@doc\t");
    screen.wait_for_end("> @docs/");
    screen.send("\t");
    screen.wait_for_end("> @\"docs/deep guide.md\"");
    screen.send("\r");
    screen.wait_for("\nDeep.\n");
}

fn exported_parts(cli: &TestCli) -> String {
    let exported = cli.host(&["session", "export", "tree-"]).output().unwrap();
    String::from_utf8(exported.stdout).unwrap()
}

/// I1: a picture that the prompt on the command line names is an image of the prompt. Files with secrets, the data folder,
/// and links that leave the folder are not attached.
#[test]
fn i1_files_with_secrets_and_links_out_of_the_folder_are_not_attached() {
    let cli = TestCli::new(&[json!({"text": "Seen."})]);
    let tree = cli.folder.path().join("tree");
    let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    std::fs::write(tree.join("dot.gif"), gif).unwrap();
    std::fs::write(tree.join(".env"), "TOKEN=hunter2\n").unwrap();
    std::fs::write(cli.folder.path().join("outside.txt"), "hunter2\n").unwrap();
    std::os::unix::fs::symlink("../outside.txt", tree.join("link.txt")).unwrap();
    std::os::unix::fs::symlink(".env", tree.join("settings")).unwrap();
    std::fs::write(tree.join("binary"), b"\xff\xfe\x00").unwrap();
    let prompt = "Look at @dot.gif @.env @link.txt @settings @../data/agent-host.db @binary, \\@dot.gif, a@dot.gif.";
    let output = cli.command(&[prompt]).stdin(std::process::Stdio::null()).output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "Seen.", "{notes}");
    for expected in [
        "attached dot.gif: image/gif, ",
        "! @.env was not attached, because files with such a name usually contain secrets\n",
        "! @link.txt was not attached, because it is a link to ",
        "! @settings was not attached, because files with such a name",
        "! @../data/agent-host.db was not attached, because it belongs to the data folder of agent-host\n",
        "! @binary was not attached: it is neither text nor a PNG, JPEG, GIF or WebP image\n",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
    assert_eq!(notes.matches("dot.gif").count(), 1, "{notes}");
    let parts = exported_parts(&cli);
    assert!(parts.contains("image/gif") && parts.contains("Look at @dot.gif") && !parts.contains("hunter2"), "{parts}");
}

/// I1: text that is piped to the host may come from others, so the host attaches no file that the text names.
#[test]
fn i1_paths_in_piped_text_are_not_attached() {
    let cli = TestCli::new(&[json!({"text": "One."}), json!({"text": "Two."})]);
    std::fs::write(cli.folder.path().join("tree/notes.txt"), "the notes\n").unwrap();
    let piped = cli.folder.path().join("piped");
    std::fs::write(&piped, "Read @notes.txt and @absent.\n").unwrap();
    let run = |arguments: &[&str], stdin: &Path| {
        let output = cli.command(arguments).stdin(std::fs::File::open(stdin).unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let notes = run(&["-"], &piped) + &run(&["--continue", "Summarise this."], &piped);
    assert!(!notes.contains("attached") && !notes.contains("absent"), "{notes}");
    let parts = exported_parts(&cli);
    assert!(parts.contains("Read @notes.txt") && !parts.contains("the notes"), "{parts}");
}
