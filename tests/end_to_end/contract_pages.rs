//! Checks `host/docs/spec.md` and `host/docs/threats.md` against the tests: every contract line that is proved by a
//! test is on a page, and every test that is listed on a page exists. Run with `UPDATE_CONTRACT_PAGES=1` to write the
//! lists of tests again.

use crate::support::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGES: [&str; 2] = ["host/docs/spec.md", "host/docs/threats.md"];

/// The text with which a page introduces the list of tests that belong to a contract line.
const TESTS_PREFIX: &str = "  - Tests: ";

/// The maximum number of tests that a page lists for one contract line.
const MAX_LISTED: usize = 4;

/// A test function, and the contract lines that its name and its comment contain.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    file: String,
    name: String,
    proves: BTreeSet<String>,
    /// The contract lines that are mentioned in the `//!` comment at the top of the test's file.
    topics: BTreeSet<String>,
}

#[test]
fn every_contract_line_in_a_comment_or_test_name_is_on_a_page() {
    let defined = defined_lines();
    assert_eq!(defined.iter().filter(|line| line.starts_with("row ")).count(), 56);
    let mut unknown = Vec::new();
    for (file, text) in sources() {
        let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        let mut named: BTreeSet<String> = comments.flat_map(lines_named_in).collect();
        named.extend(tests_in(&file, &text).into_iter().flat_map(|test| test.proves));
        unknown.extend(named.difference(&defined).map(|line| format!("{file}: {line}")));
    }
    assert!(unknown.is_empty(), "neither page defines these contract lines: {unknown:#?}");
}

#[test]
fn every_test_that_is_named_on_a_page_exists() {
    let sources = sources();
    let tests: Vec<Test> = sources.iter().flat_map(|(file, text)| tests_in(file, text)).collect();
    if std::env::var_os("UPDATE_CONTRACT_PAGES").is_some() {
        PAGES.iter().for_each(|page| write_lists(&repository().join(page), &tests));
    }
    let existing: BTreeSet<(&str, &str)> = tests.iter().map(|test| (test.file.as_str(), test.name.as_str())).collect();
    for page in PAGES {
        let listed = listed_tests(&read(&repository().join(page)));
        assert!(listed.len() > 50, "{page} lists {} tests", listed.len());
        for (file, name) in listed {
            assert!(
                existing.contains(&(file.as_str(), name.as_str())),
                "{page} names the test `{name}` in `{file}`, which does not exist; UPDATE_CONTRACT_PAGES=1 writes the lists again"
            );
        }
    }
}

#[test]
fn every_contract_line_has_a_test_or_is_marked_as_not_built() {
    for page in PAGES {
        let text = read(&repository().join(page));
        for line in text.split("\n- **").skip(1).filter(|line| defined_by(&format!("- **{line}")).is_some()) {
            let is_covered = line.contains(TESTS_PREFIX) || line.contains("**Not built yet**");
            assert!(is_covered, "{page}: no test names this line: {line}");
        }
    }
}

#[test]
fn ranges_and_names_of_contract_lines_are_parsed() {
    let named = |text: &str| lines_named_in(text).into_iter().collect::<Vec<_>>();
    assert_eq!(named("L10, S1–S3: a call"), ["L10", "S1", "S2", "S3"]);
    assert_eq!(named("(rows 3 to 5, 8 and 9)."), ["row 3", "row 4", "row 5", "row 8", "row 9"]);
    assert_eq!(named("rows_3_4_and_6_space"), ["row 3", "row 4", "row 6"]);
    assert_eq!(named("Row 10: 100 calls"), ["row 10"]);
    assert_eq!(named("P256, a row of 3, rows"), [""; 0]);
}

/// Returns the names of the contract lines that the pages define, for example `L1` and `row 1`.
fn defined_lines() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for page in PAGES {
        for line in read(&repository().join(page)).lines().filter_map(defined_by) {
            assert!(lines.insert(line.clone()), "{page} has {line} twice");
        }
    }
    lines
}

/// The contract line that starts on this line of a page: `- **L1** …` or `- **Row 1** …`.
fn defined_by(line: &str) -> Option<String> {
    let name = line.strip_prefix("- **")?.split_once("**")?.0;
    lines_named_in(name).pop_first()
}

/// Returns the tests that a page lists, with their files.
fn listed_tests(page: &str) -> Vec<(String, String)> {
    let (mut listed, mut file) = (Vec::new(), "");
    for list in page.lines().filter_map(|line| line.strip_prefix(TESTS_PREFIX)) {
        for span in list.split('`').skip(1).step_by(2) {
            if span.ends_with(".rs") {
                file = span;
            } else {
                listed.push((file.to_owned(), span.to_owned()));
            }
        }
    }
    listed
}

/// Rewrites the lists of tests on a page.
fn write_lists(path: &Path, tests: &[Test]) {
    let (mut page, mut current) = (String::new(), None);
    for line in read(path).lines().filter(|line| !line.starts_with(TESTS_PREFIX)) {
        // The list of tests is the last item of a contract line, so the list is written as soon as the contract line
        // has ended.
        if !line.starts_with("  ") {
            page += &current.take().map_or_else(String::new, |line: String| list_of(&line, tests));
        }
        current = defined_by(line).or(current);
        page += line;
        page.push('\n');
    }
    page += &current.map_or_else(String::new, |line| list_of(&line, tests));
    std::fs::write(path, page).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the list of the tests that prove a contract line. Tests that have the contract line in their name come
/// first, then tests that prove fewer contract lines than other tests, and then end-to-end tests.
fn list_of(line: &str, tests: &[Test]) -> String {
    let mut proofs: Vec<&Test> = tests.iter().filter(|test| test.proves.contains(line)).collect();
    if proofs.is_empty() {
        proofs = tests.iter().filter(|test| test.topics.contains(line)).collect();
    }
    let is_named = |test: &Test| lines_in_name(&test.name).contains(line);
    proofs.sort_by_key(|test| {
        (!is_named(test), test.proves.len(), !test.file.starts_with("tests/"), &test.file, &test.name)
    });
    let mut by_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in proofs.iter().take(MAX_LISTED) {
        by_file.entry(&test.file).or_default().push(format!("`{}`", test.name));
    }
    let files: Vec<String> = by_file.iter().map(|(file, names)| format!("`{file}`: {}", names.join(", "))).collect();
    let mut list = String::new();
    if !files.is_empty() {
        writeln!(list, "{TESTS_PREFIX}{}.", files.join("; ")).expect("writing to a string cannot fail");
    }
    list
}

/// Returns the test functions of a file.
fn tests_in(file: &str, text: &str) -> Vec<Test> {
    let module: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let topics = lines_named_in(&module.join(" "));
    let (mut tests, mut comment, mut is_test) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//").filter(|words| !words.starts_with('!')) {
            comment += words.trim_start_matches('/');
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") && !line.is_empty() {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
            if let Some(name) = name.filter(|_| is_test) {
                let mut proves = lines_named_in(&comment);
                proves.extend(lines_in_name(name));
                tests.push(Test { file: file.to_owned(), name: name.to_owned(), proves, topics: topics.clone() });
            }
            comment.clear();
            is_test = false;
        }
    }
    tests
}

/// Returns the contract lines in the name of a function. For example, `l16_row_13_…` contains `L16` and `row 13`.
fn lines_in_name(name: &str) -> BTreeSet<String> {
    let is_line = |word: &&str| spec_line(&word.to_uppercase()).is_some();
    let lines = name.split('_').take_while(is_line).map(str::to_uppercase).collect::<Vec<_>>().join(" ");
    lines_named_in(&format!("{lines} {name}"))
}

/// Returns the contract lines that a text names: `L10`, `S1–S3`, `row 12`, `rows 3 to 6, 8 and 9`, `row_12_…`.
fn lines_named_in(text: &str) -> BTreeSet<String> {
    let words = words_of(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut lines = BTreeSet::new();
    for (index, word) in words.iter().enumerate() {
        if matches!(word.to_lowercase().as_str(), "row" | "rows") {
            lines.extend(numbers(&words[index + 1..]).into_iter().map(|number| format!("row {number}")));
        }
        let Some((letter, number)) = spec_line(word) else { continue };
        let end = match words[index + 1..] {
            ["to", end, ..] => spec_line(end).filter(|(other, _)| *other == letter).map(|(_, end)| end),
            _ => None,
        };
        lines.extend((number..=end.unwrap_or(number)).map(|number| format!("{letter}{number}")));
    }
    lines
}

/// Splits a text into words and punctuation marks. Commas and underscores end a word, and a dash becomes the word `to`.
fn words_of(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for character in text.chars() {
        match character {
            '–' => spaced += " to ",
            ',' | '_' => spaced.push(' '),
            _ if character.is_ascii_alphanumeric() || character.is_whitespace() => spaced.push(character),
            _ => spaced.extend([' ', character, ' ']),
        }
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Parses a contract line such as `L10` into its letter and its number.
fn spec_line(word: &str) -> Option<(char, u8)> {
    let letter = word.chars().next().filter(|letter| "LPSMDIOF".contains(*letter))?;
    let number = &word[1..];
    (number.len() <= 2 && !number.starts_with('0')).then(|| number.parse().ok())?.map(|number| (letter, number))
}

/// Returns the numbers at the beginning of a list such as `3 to 6, 8 and 9`.
fn numbers(words: &[&str]) -> Vec<u8> {
    let (mut numbers, mut is_range) = (Vec::new(), false);
    for word in words {
        match (*word, word.parse()) {
            ("and", _) => {}
            ("to", _) => is_range = true,
            (_, Ok(number)) => {
                let from = numbers.last().filter(|_| is_range).map_or(number, |last: &u8| last + 1);
                numbers.extend(from..=number);
                is_range = false;
            }
            (_, Err(_)) => break,
        }
    }
    numbers
}

/// Returns the text of every Rust file that may contain tests, with its path from the root of the repository.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["host", "tests", "sdk", "plugins"].map(|folder| repository().join(folder)).into();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder entry can be read").path();
            let is_output = path.file_name().is_some_and(|name| name == "target" || name == "node_modules");
            if path.is_dir() && !path.is_symlink() && !is_output {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(repository()).expect("a path in the repository");
                found.push((name.to_string_lossy().into_owned(), read(&path)));
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
