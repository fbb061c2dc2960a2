//! The pages for plugin authors, followed literally: their files are created, their commands typed, and the output
//! compared (S1–S5, S7).

use super::walk::{ShellUser, file_of};
use crate::documentation_page::{Block, blocks, page};
use crate::plugin_authoring::peer;
use crate::support::{cargo, repository};
use std::path::PathBuf;

const SDK: &str = "sdk/README.md";
const CONTRACT: &str = "wit/README.md";

/// The sections with code, and whether these tests follow them. The others contain only Rust without a file name, which
/// the doctests of the SDK compile and run.
const SECTIONS: [(&str, &str, SectionCheck); 7] = [
    (SDK, "Create a project", SectionCheck::Followed),
    (SDK, "A tool in two minutes", SectionCheck::Followed),
    (SDK, "The other kinds", SectionCheck::Followed),
    (SDK, "What the host offers", SectionCheck::ByDoctests),
    (CONTRACT, "Python", SectionCheck::Followed),
    (CONTRACT, "JavaScript", SectionCheck::Followed),
    (CONTRACT, "C", SectionCheck::Followed),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionCheck {
    Followed,
    ByDoctests,
}

/// The blocks of a section that is followed.
fn section(of: &str, name: &str) -> Vec<Block> {
    assert!(SECTIONS.contains(&(of, name, SectionCheck::Followed)), "{of}: {name}");
    let found: Vec<Block> = blocks(&page(of)).into_iter().filter(|block| block.section == name).collect();
    assert!(found.iter().any(|block| block.language == "console"), "{of}: {name} contains no command");
    found
}

fn follow_blocks(walk: &mut ShellUser, blocks: &[Block]) {
    blocks.iter().for_each(|block| walk.follow_block(block));
}

/// All followed sections share cargo's target folder, so that crates are compiled once.
fn rust(folder: &str) -> [(&'static str, PathBuf); 2] {
    [("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder)), ("CARGO", cargo())]
}

/// S1–S5, S7: Every code block of the pages for authors is checked by a test.
#[test]
fn every_block_of_the_pages_is_checked() {
    for of in [SDK, CONTRACT] {
        let found = blocks(&page(of));
        for block in &found {
            let known = SECTIONS.iter().find(|(page, name, _)| *page == of && *name == block.section);
            let Some((_, _, checked)) = known else { panic!("{of}: no test checks the section `{}`", block.section) };
            match checked {
                SectionCheck::ByDoctests => assert!(of == SDK && block.language == "rust", "no test checks {block:?}"),
                SectionCheck::Followed if block.language == "console" => {
                    assert!(!block.typed().is_empty(), "{block:?}")
                }
                SectionCheck::Followed => assert!(!file_of(block).is_empty()),
            }
        }
        let of_page = SECTIONS.iter().filter(|(page, ..)| *page == of);
        of_page.for_each(|(_, name, _)| assert!(found.iter().any(|block| block.section == *name), "{of}: {name}"));
    }
}

/// S1, S2, S3, S4, S5: The first commands of the SDK's page.
#[test]
fn s1_the_first_commands_of_the_sdk_page_work() {
    let mut walk = ShellUser::begin("sdk-first", &rust("new-projects/target"));
    follow_blocks(&mut walk, &section(SDK, "Create a project"));
}

/// A folder that is this repository without its plugins.
fn checkout(walk: &ShellUser) {
    for name in ["host", "sdk", "wit", "tests", "rust-toolchain.toml"] {
        std::os::unix::fs::symlink(repository().join(name), walk.current_folder.join(name)).unwrap();
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        std::fs::copy(repository().join(name), walk.current_folder.join(name)).unwrap();
    }
    std::fs::create_dir(walk.current_folder.join("plugins")).unwrap();
}

/// S2, S7: The tools that the README and the SDK's page write by hand in a checkout; a component is about as large as
/// its page says.
#[test]
fn s2_the_tools_in_two_minutes_work() {
    let readme: Vec<Block> =
        blocks(&page("README.md")).into_iter().filter(|block| block.section == "A tool in two minutes").collect();
    for (name, blocks) in [("readme-tool", readme), ("sdk-tool", section(SDK, "A tool in two minutes"))] {
        let mut walk = ShellUser::begin(name, &rust("end-to-end/shout"));
        checkout(&walk);
        follow_blocks(&mut walk, &blocks);
        if name == "sdk-tool" {
            let size = std::fs::metadata(walk.current_folder.join("shout.wasm")).unwrap().len();
            assert_is_about(size, "This plugin has ");
        }
    }
}

/// S1, S2, S4, S7: The SDK's page has a plugin of each other kind, whose scenario passes as the page says.
#[test]
fn s2_the_other_plugin_kinds_of_the_sdk_page_work() {
    let mut walk = ShellUser::begin("sdk-kinds", &rust("new-projects/target"));
    follow_blocks(&mut walk, &section(SDK, "The other kinds"));
    let size = std::fs::metadata(walk.current_folder.join("thrifty/thrifty.wasm")).unwrap().len();
    assert_is_about(size, "A media policy has ");
}

/// Checks that the size is within a tenth of the number that follows these words on the SDK's page.
fn assert_is_about(size: u64, words: &str) {
    let page = page(SDK);
    let output_text = page.split(words).nth(1).and_then(|rest| rest.split(' ').next()).expect("the page says its size");
    let output_text: u64 = output_text.parse().expect("KB");
    let found = size.div_ceil(1000);
    assert!(
        found.abs_diff(output_text) * 10 <= output_text,
        "the page says {words}{output_text} KB, and the component has {found} KB"
    );
}

/// Follows the section on a language in the page of the contract, with the toolchain of that language.
fn language(name: &str, key: &str) {
    let Some((variables, _)) = peer(key) else { return };
    // The toolchain is found where the page installs it.
    let kept = ["PATH", "ZIG_GLOBAL_CACHE_DIR"];
    let variables: Vec<_> = variables.into_iter().filter(|(name, _)| kept.contains(name)).collect();
    let mut walk = ShellUser::begin(&format!("contract-{key}"), &variables);
    follow_blocks(&mut walk, &section(CONTRACT, name));
}

/// S1–S4, P1, P2: The section on Python in the page of the contract.
#[test]
fn s1_the_contract_page_works_in_python() {
    language("Python", "python");
}

/// S1–S4, P1: The section on JavaScript in the page of the contract.
#[test]
fn s1_the_contract_page_works_in_javascript() {
    language("JavaScript", "js");
}

/// S1–S4, P1: The section on C in the page of the contract.
#[test]
fn s1_the_contract_page_works_in_c() {
    language("C", "c");
}
