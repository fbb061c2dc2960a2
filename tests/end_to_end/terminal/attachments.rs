//! Files and folders that a prompt names with `@path` (I1).

use super::{CTRL_C, CTRL_D, TestCli};
use serde_json::json;
use std::path::Path;

const CTRL_V: &str = "\u{16}";
/// An image with one pixel.
const GIF: &[u8] =
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";

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
    screen.wait_for_end("\n>");
    screen.send("@missing @nothere\r");
    screen.wait_for("! these files or folders do not exist: @missing, @nothere; sent as plain text\n");
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
    std::fs::write(tree.join("dot.gif"), GIF).unwrap();
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

/// I1: Ctrl-V pastes a picture from the clipboard, which is sent if its mark stays in the line. A program in the current folder
/// is not run, and a clipboard without a picture is reported.
#[test]
fn i1_a_picture_is_pasted_from_the_clipboard() {
    let programs = tempfile::tempdir().unwrap();
    let cli = TestCli::new(&[json!({"text": "Seen."}), json!({"text": "Nothing."})]);
    let tree = cli.folder.path().join("tree");
    let write_program = |path: &Path, text: &str| {
        std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    std::fs::write(programs.path().join("dot.gif"), GIF).unwrap();
    write_program(&tree.join("xclip"), "touch was-run");
    let clipboard = programs.path().join("xclip");
    write_program(&clipboard, "exit 1");
    let mut command = cli.command(&[]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!(":.:{}:{path}", programs.path().display()));
    command.env("DISPLAY", ":7").env_remove("WAYLAND_DISPLAY");
    let mut screen = cli.session_with(command);
    screen.send("Look ");
    screen.wait_for_end("> Look");
    screen.send(CTRL_V);
    screen.wait_for("! the clipboard contains no picture");
    screen.wait_for_end("> Look");
    let picture = programs.path().join("dot.gif");
    write_program(
        &clipboard,
        &format!("[ \"$*\" = '-selection clipboard -t image/png -o' ] && cat {}", picture.display()),
    );
    screen.send(CTRL_V);
    screen.wait_for_end("> Look [picture 1]");
    screen.send("here\r");
    screen.wait_for("attached picture 1: image/gif, 35 bytes\n");
    screen.wait_for("\nSeen.\n");
    screen.wait_for_end("\n>");
    screen.send(CTRL_V);
    screen.wait_for_end("> [picture 2]");
    screen.send("\u{15}Nothing?\r");
    screen.wait_for("\nNothing.\n");
    assert!(!screen.text().contains("attached picture 2"), "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(!tree.join("was-run").exists());
    let parts = exported_parts(&cli);
    assert!(parts.contains("Look [picture 1] here") && parts.contains("\"name\":\"picture 1\""), "{parts}");
    assert!(!parts.contains("picture 2"), "{parts}");
}
