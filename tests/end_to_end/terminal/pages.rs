//! The tests follow the pages for plugin authors literally: they create the files, type the commands, and compare the
//! output (S1–S5, S7).

use super::walk::{ShellUser, file_of};
use crate::documentation_page::{Block, blocks, page};
use crate::plugin_authoring::peer;
use crate::support::{cargo, repository};
use std::path::PathBuf;

const SDK: &str = "sdk/README.md";
const JAVASCRIPT_SDK: &str = "sdk/javascript/README.md";
const CONTRACT: &str = "wit/README.md";
const PYTHON: &str = "sdk/python/README.md";
const C_SDK: &str = "sdk/c/README.md";
const EXAMPLES: &str = "sdk/examples/README.md";

/// The pages' sections that contain code. Each entry names a page, a section, and how the section's code is
/// checked. Sections that these tests do not follow contain only Rust code without a file name, which is compiled and
/// run as doctests of the SDK.
const SECTIONS: [(&str, &str, SectionCheck); 15] = [
    (SDK, "Create a project", SectionCheck::Followed),
    (SDK, "A tool in two minutes", SectionCheck::Followed),
    (SDK, "The other kinds", SectionCheck::Followed),
    (SDK, "What the host offers", SectionCheck::ByDoctests),
    (JAVASCRIPT_SDK, "Create a project", SectionCheck::Followed),
    (JAVASCRIPT_SDK, "A tool", SectionCheck::Followed),
    (JAVASCRIPT_SDK, "The other kinds", SectionCheck::Followed),
    (JAVASCRIPT_SDK, "TypeScript", SectionCheck::Followed),
    (CONTRACT, "Python", SectionCheck::Followed),
    (CONTRACT, "JavaScript", SectionCheck::Followed),
    (CONTRACT, "C", SectionCheck::Followed),
    (PYTHON, "A tool in two minutes", SectionCheck::Followed),
    (PYTHON, "A tool that calls an API", SectionCheck::Followed),
    (PYTHON, "The other kinds", SectionCheck::Followed),
    (C_SDK, "A tool in two minutes", SectionCheck::Followed),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionCheck {
    Followed,
    ByDoctests,
}

/// Returns the code blocks of a section that the tests follow.
fn section(page_path: &str, name: &str) -> Vec<Block> {
    assert!(SECTIONS.contains(&(page_path, name, SectionCheck::Followed)), "{page_path}: {name}");
    let actual: Vec<Block> = blocks(&page(page_path)).into_iter().filter(|block| block.section == name).collect();
    assert!(actual.iter().any(|block| block.language == "console"), "{page_path}: {name} contains no command");
    actual
}

fn follow_blocks(walk: &mut ShellUser, blocks: &[Block]) {
    blocks.iter().for_each(|block| walk.follow_block(block));
}

/// Returns the environment variables with which a Rust toolchain uses this target folder. Several sections share a
/// target folder, so that each crate is compiled only once.
fn rust_variables(folder: &str) -> [(&'static str, PathBuf); 2] {
    [("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder)), ("CARGO", cargo())]
}

/// S1–S5, S7: A test checks every code block of the pages for plugin authors.
#[test]
fn every_block_of_the_pages_is_checked() {
    for page_path in [SDK, JAVASCRIPT_SDK, CONTRACT, PYTHON, C_SDK] {
        let actual = blocks(&page(page_path));
        for block in &actual {
            let known = SECTIONS.iter().find(|(page, name, _)| *page == page_path && *name == block.section);
            let Some((_, _, checked)) = known else {
                panic!("{page_path}: no test checks the section `{}`", block.section)
            };
            match checked {
                SectionCheck::ByDoctests => {
                    assert!(page_path == SDK && block.language == "rust", "no test checks {block:?}")
                }
                SectionCheck::Followed if block.language == "console" => {
                    assert!(!block.typed().is_empty(), "{block:?}")
                }
                SectionCheck::Followed => assert!(!file_of(block).is_empty()),
            }
        }
        let sections_of_page = SECTIONS.iter().filter(|(page, ..)| *page == page_path);
        sections_of_page
            .for_each(|(_, name, _)| assert!(actual.iter().any(|block| block.section == *name), "{page_path}: {name}"));
    }
}

/// S1, S2, S3, S4, S5: The commands at the beginning of the SDK's page succeed.
#[test]
fn s1_the_first_commands_of_the_sdk_page_work() {
    let mut walk = ShellUser::begin("sdk-first", &rust_variables("new-projects/target"));
    follow_blocks(&mut walk, &section(SDK, "Create a project"));
}

/// Puts the files of this repository, except its plugins, into the current folder.
fn copy_repository(walk: &ShellUser) {
    for name in ["host", "sdk", "wit", "tests", "rust-toolchain.toml"] {
        std::os::unix::fs::symlink(repository().join(name), walk.current_folder.join(name)).unwrap();
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        std::fs::copy(repository().join(name), walk.current_folder.join(name)).unwrap();
    }
    std::fs::create_dir(walk.current_folder.join("plugins")).unwrap();
}

/// S2, S7: The example tools of the README and of the SDK's page can be built in a checkout of the repository. The
/// built component is about as large as the page states.
#[test]
fn s2_readers_can_follow_the_sections_that_create_a_tool_in_two_minutes() {
    let readme: Vec<Block> =
        blocks(&page("README.md")).into_iter().filter(|block| block.section == "A tool in two minutes").collect();
    for (name, blocks) in [("readme-tool", readme), ("sdk-tool", section(SDK, "A tool in two minutes"))] {
        let mut walk = ShellUser::begin(name, &rust_variables("end-to-end/shout"));
        copy_repository(&walk);
        follow_blocks(&mut walk, &blocks);
        if name == "sdk-tool" {
            let size = std::fs::metadata(walk.current_folder.join("shout.wasm")).unwrap().len();
            assert_is_about(size, "The component of the plugin `shout` has a size of ");
        }
    }
}

/// S1, S2, S4, S7: The SDK's documentation page shows plugins that are not tools. These plugins work, and their
/// scenarios pass.
#[test]
fn s2_the_other_plugin_kinds_of_the_sdk_page_work() {
    let mut walk = ShellUser::begin("sdk-kinds", &rust_variables("new-projects/target"));
    follow_blocks(&mut walk, &section(SDK, "The other kinds"));
    let size = std::fs::metadata(walk.current_folder.join("thrifty/thrifty.wasm")).unwrap().len();
    assert_is_about(size, "The component of a media policy has a size of ");
}

/// Checks that the number that follows `words` on the SDK's page differs from `size` by at most a tenth.
fn assert_is_about(size: u64, words: &str) {
    let page = page(SDK).split_whitespace().collect::<Vec<_>>().join(" ");
    let documented =
        page.split(words).nth(1).and_then(|rest| rest.split(' ').next()).expect("the page states the size");
    let documented: u64 = documented.parse().expect("KB");
    let actual = size.div_ceil(1000);
    assert!(
        actual.abs_diff(documented) * 10 <= documented,
        "the page says {words}{documented} KB, and the component has {actual} KB"
    );
}

/// S7, S8: The commands on the examples' page copy an example and test it. The page's last command tests the examples in Rust,
/// which the tests of the examples do with a target folder of their own.
#[test]
fn s8_the_commands_of_the_page_of_the_examples_work() {
    let blocks = blocks(&page(EXAMPLES));
    let [copies, test] = &blocks[..] else { panic!("{EXAMPLES}: the page has {} blocks", blocks.len()) };
    let typed = |block: &Block| block.typed().into_iter().map(|typed| typed.command).collect::<Vec<_>>();
    assert_eq!(typed(test), ["agent-host test sdk/examples"]);
    assert_eq!(typed(copies).last().map(String::as_str), Some("agent-host test todo"));
    let Some((variables, _)) = peer("python") else { return };
    let mut walk = ShellUser::begin("sdk-examples-readme-md", &variables);
    copy_repository(&walk);
    walk.follow_block(copies);
}

/// Follows sections of a page with the toolchain of a language. Each section starts in an empty folder.
fn follow_sections(page_path: &str, names: &[&str], key: &str) {
    let Some((variables, _)) = peer(key) else { return };
    // One command of the page installs the toolchain in a folder. The other commands find the toolchain in this folder.
    let kept_variables = ["PATH", "ZIG_GLOBAL_CACHE_DIR"];
    let variables: Vec<_> = variables.into_iter().filter(|(name, _)| kept_variables.contains(name)).collect();
    for name in names {
        let folder = page_path.replace(['/', '.'], "-").to_lowercase();
        let mut walk = ShellUser::begin(&format!("{folder}-{}", name.to_lowercase().replace(' ', "-")), &variables);
        follow_blocks(&mut walk, &section(page_path, name));
    }
}

/// Follows the section about a language on the contract's page, with the toolchain of that language.
fn follow_language_section(name: &str, key: &str) {
    follow_sections(CONTRACT, &[name], key);
}

/// S2, S7, S8: The example tool of the Python SDK's page works as the page says.
#[test]
fn s8_the_first_tool_of_the_python_page_works() {
    follow_sections(PYTHON, &["A tool in two minutes"], "python");
}

/// S1, S4, S8: The commands of the Python SDK's page that create a tool for an API succeed.
#[test]
fn s8_the_http_tool_of_the_python_page_works() {
    follow_sections(PYTHON, &["A tool that calls an API"], "python");
}

/// S1, S2, S4, S8: The plugins of other kinds on the Python SDK's page work, and their scenarios pass.
#[test]
fn s8_the_other_plugin_kinds_of_the_python_page_work() {
    follow_sections(PYTHON, &["The other kinds"], "python");
}

/// S1–S4, S8: All steps on the page of the SDK for JavaScript succeed.
#[test]
fn s8_the_page_of_the_javascript_sdk_works() {
    follow_sections(JAVASCRIPT_SDK, &["Create a project", "A tool", "The other kinds", "TypeScript"], "js");
}

/// S2–S4, S8: The example tool of the page of the SDK for C works as the page says.
#[test]
fn s8_the_first_tool_of_the_c_page_works() {
    follow_sections(C_SDK, &["A tool in two minutes"], "c");
}

/// S1–S4, P1, P2: All steps in the Python section of the contract page succeed.
#[test]
fn s1_the_contract_page_works_in_python() {
    follow_language_section("Python", "python");
}

/// S1–S4, P1: All steps in the JavaScript section of the contract page succeed.
#[test]
fn s1_the_contract_page_works_in_javascript() {
    follow_language_section("JavaScript", "js");
}

/// S1–S4, P1: All steps in the C section of the contract page succeed.
#[test]
fn s1_the_contract_page_works_in_c() {
    follow_language_section("C", "c");
}
