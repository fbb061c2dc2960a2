//! The pages for authors, followed to the letter: their files laid out, their commands typed, and what they print compared
//! (S1–S5, S7).

use super::walk::{Walk, file_of};
use crate::kit::peer;
use crate::page::{Block, blocks, page};
use crate::support::{cargo, repository};
use std::path::PathBuf;

const SDK: &str = "sdk/README.md";
const CONTRACT: &str = "wit/README.md";

/// The sections with code, and whether they are followed here. Those that are not have only Rust that names no file, which the
/// doctests of the SDK compile and run.
const SECTIONS: [(&str, &str, Checked); 7] = [
    (SDK, "From nothing", Checked::Followed),
    (SDK, "A tool in two minutes", Checked::Followed),
    (SDK, "The other kinds", Checked::Followed),
    (SDK, "What the host offers", Checked::ByDoctests),
    (CONTRACT, "Python", Checked::Followed),
    (CONTRACT, "JavaScript", Checked::Followed),
    (CONTRACT, "C", Checked::Followed),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    Followed,
    ByDoctests,
}

/// The blocks of a section that is followed.
fn section(of: &str, name: &str) -> Vec<Block> {
    assert!(SECTIONS.contains(&(of, name, Checked::Followed)), "{of}: {name}");
    let found: Vec<Block> = blocks(&page(of)).into_iter().filter(|block| block.section == name).collect();
    assert!(found.iter().any(|block| block.language == "console"), "{of}: {name} types nothing");
    found
}

fn follow(walk: &mut Walk, blocks: &[Block]) {
    blocks.iter().for_each(|block| walk.follow(block));
}

/// Cargo's folder is shared by what is followed, so that crates are compiled once.
fn rust(folder: &str) -> [(&'static str, PathBuf); 2] {
    [("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder)), ("CARGO", cargo())]
}

/// What a page shows is true: no block of the pages for authors is left unchecked (S1–S5, S7).
#[test]
fn every_block_of_the_pages_is_checked() {
    for of in [SDK, CONTRACT] {
        let found = blocks(&page(of));
        for block in &found {
            let known = SECTIONS.iter().find(|(page, name, _)| *page == of && *name == block.section);
            let Some((_, _, checked)) = known else { panic!("{of}: nothing checks what is below `{}`", block.section) };
            match checked {
                Checked::ByDoctests => assert!(of == SDK && block.language == "rust", "nothing checks {block:?}"),
                Checked::Followed if block.language == "console" => assert!(!block.typed().is_empty(), "{block:?}"),
                Checked::Followed => assert!(!file_of(block).is_empty()),
            }
        }
        let of_page = SECTIONS.iter().filter(|(page, ..)| *page == of);
        of_page.for_each(|(_, name, _)| assert!(found.iter().any(|block| block.section == *name), "{of}: {name}"));
    }
}

/// S1, S2, S3, S4, S5: the first commands of the SDK's page.
#[test]
fn the_sdks_first_commands() {
    let mut walk = Walk::begin("sdk-first", &rust("new-projects/target"));
    follow(&mut walk, &section(SDK, "From nothing"));
}

/// A folder that is this checkout but for its plugins, which it has none of.
fn checkout(walk: &Walk) {
    for name in ["host", "sdk", "wit", "tests", "rust-toolchain.toml"] {
        std::os::unix::fs::symlink(repository().join(name), walk.place.join(name)).unwrap();
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        std::fs::copy(repository().join(name), walk.place.join(name)).unwrap();
    }
    std::fs::create_dir(walk.place.join("plugins")).unwrap();
}

/// S2, S7: the tools that README and the SDK's page write by hand in a checkout; a component is as large as its page says.
#[test]
fn the_tools_in_two_minutes() {
    let readme: Vec<Block> =
        blocks(&page("README.md")).into_iter().filter(|block| block.section == "A tool in two minutes").collect();
    for (name, blocks) in [("readme-tool", readme), ("sdk-tool", section(SDK, "A tool in two minutes"))] {
        let mut walk = Walk::begin(name, &rust("end-to-end/shout"));
        checkout(&walk);
        follow(&mut walk, &blocks);
        if name == "sdk-tool" {
            let size = std::fs::metadata(walk.place.join("shout.wasm")).unwrap().len();
            assert_is_about(size, "This plugin has ");
        }
    }
}

/// S1, S2, S4, S7: the SDK's page has a plugin of each other kind, which does in its scenario what the page says.
#[test]
fn the_other_kinds_of_the_sdks_page() {
    let mut walk = Walk::begin("sdk-kinds", &rust("new-projects/target"));
    follow(&mut walk, &section(SDK, "The other kinds"));
    let size = std::fs::metadata(walk.place.join("thrifty/thrifty.wasm")).unwrap().len();
    assert_is_about(size, "A media\npolicy has ");
}

/// Within a tenth of what the SDK's page says behind these words.
fn assert_is_about(size: u64, words: &str) {
    let page = page(SDK);
    let said = page.split(words).nth(1).and_then(|rest| rest.split(' ').next()).expect("the page says its size");
    let said: u64 = said.parse().expect("KB");
    let found = size.div_ceil(1000);
    assert!(found.abs_diff(said) * 10 <= said, "{words}{said} KB, and it is {found} KB");
}

/// What the page of the contract says of a language, with that one's toolchain.
fn language(name: &str, key: &str) {
    let Some((variables, _)) = peer(key) else { return };
    // The toolchain is found where the page's installation puts it.
    let kept = ["PATH", "ZIG_GLOBAL_CACHE_DIR"];
    let variables: Vec<_> = variables.into_iter().filter(|(name, _)| kept.contains(name)).collect();
    let mut walk = Walk::begin(&format!("contract-{key}"), &variables);
    follow(&mut walk, &section(CONTRACT, name));
}

/// S1–S4, P1, P2: what the page of the contract says of Python.
#[test]
fn the_page_of_the_contract_in_python() {
    language("Python", "python");
}

/// S1–S4, P1: of JavaScript.
#[test]
fn the_page_of_the_contract_in_javascript() {
    language("JavaScript", "js");
}

/// S1–S4, P1: of C.
#[test]
fn the_page_of_the_contract_in_c() {
    language("C", "c");
}
