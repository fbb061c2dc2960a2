//! Tests of the Markdown renderer. The tests check the output for an example page, and check that the output does not
//! depend on how the text is split into pieces.

use super::*;
use proptest::prelude::*;

fn render(rendering: Rendering, width: usize, text: &str) -> String {
    let mut markdown = Markdown::new(rendering, width);
    let mut out = markdown.push(text);
    out.push_str(&markdown.finish());
    out
}

fn render_pieces<'t>(rendering: Rendering, width: usize, pieces: impl IntoIterator<Item = &'t str>) -> String {
    let mut markdown = Markdown::new(rendering, width);
    let mut out: String = pieces.into_iter().map(|piece| markdown.push(piece)).collect();
    out.push_str(&markdown.finish());
    out
}

/// Replaces escape codes with readable tags such as `<b>` and `</>`.
fn tagged(out: &str) -> String {
    let tags = [("1", "b"), ("2", "d"), ("3", "i"), ("4", "u"), ("9", "s"), ("36", "c"), ("0", "/")];
    tags.iter().fold(out.to_owned(), |out, (code, tag)| out.replace(&format!("\u{1b}[{code}m"), &format!("<{tag}>")))
}

fn styled(width: usize, text: &str) -> String {
    tagged(&render(Rendering::Styled, width, text))
}

const PAGE: &str = "# A title\n\nSome *italic*, **bold**, ***both***, ~~struck~~ and `code` words, a [link](https://example.com/a_b)\
    , <https://example.com> and an ![image](a.png).\nA second line, snake_case_name, 2 * 3 * 4 and \\*no mark\\*.\n\n\
    - one\n- two, which is long enough to be wrapped at this width\n  - nested\n    more of it\n1. first\n10) tenth\n\n\
    > quoted **words**\n> > deeper\n\n```rust\nfn main() {\n    let very_long_name = \"a line that is longer than the terminal\";\n}\n```\n\n\
    | Name | Count |\n|:-----|------:|\n| a | 1 |\n| a longer name | 20 |\n\n---\n\n    indented code\n\nThe end";

#[test]
fn l21_renders_page_with_styles() {
    insta::assert_snapshot!(styled(40, PAGE));
}

#[test]
fn keeps_marks_without_styles() {
    insta::assert_snapshot!(render(Rendering::Plain, 40, PAGE));
}

/// Words appear as soon as they are complete, and styled text appears as soon as its marks are certain.
#[test]
fn shows_text_as_soon_as_its_format_is_certain() {
    let mut markdown = Markdown::new(Rendering::Styled, 80);
    let steps = [
        ("Hel", ""),
        ("lo **bo", "Hello"),
        ("ld** and ", " <b>bold</> and"),
        ("`a", ""),
        ("` b ", " <c>a</> b"),
        ("* ", " *"),
        ("c\n", " c\n"),
        ("- ", ""),
        ("item ", "• item"),
        ("\n```\nlet", "\n"),
        (" a\n", "  <c>let a</>\n"),
        ("```\n| a |\n", ""),
        ("|---|\n", ""),
        ("| 1 |\n", ""),
        ("\n", "<b>a</>\n<d>─</>\n1\n"),
    ];
    for (piece, shown) in steps {
        assert_eq!(tagged(&markdown.push(piece)), shown, "{piece:?}");
    }
}

#[test]
fn shows_unmatched_marks_as_plain_text() {
    let cases = [
        ("a * b * c", "a * b * c\n"),
        ("snake_case_name and __init__", "snake_case_name and <b>init</>\n"),
        ("2*3*4 **", "2*3*4 **\n"),
        ("an open *mark", "an open *mark\n"),
        ("an open `mark", "an open `mark\n"),
        ("[no link] (x)", "[no link] (x)\n"),
        ("[ ] to do", "[ ] to do\n"),
        ("a < b > c", "a < b > c\n"),
        ("#hashtag", "#hashtag\n"),
        ("-5 degrees", "-5 degrees\n"),
        ("1.5 times", "1.5 times\n"),
        ("2024 was", "2024 was\n"),
        ("|x| is not a table\nnext", "|x| is not a table\nnext\n"),
        ("`` a`b ``", "<c>a`b</>\n"),
        ("**a `*` b**", "<b>a</> <b><c>*</> <b>b</>\n"),
        ("\\`not code\\`", "`not code`\n"),
        ("<https://a.b>", "<u>https://a.b</>\n"),
    ];
    for (text, shown) in cases {
        assert_eq!(styled(80, text).replace("\u{1b}[1m\u{1b}[36m", "<b><c>"), shown, "{text}");
    }
    let far = format!("*{}*", "word ".repeat(200));
    assert!(styled(80, &far).starts_with("*word word"), "the closing mark is too far away");
}

#[test]
fn wraps_at_words_and_counts_wide_characters_as_two() {
    assert_eq!(styled(10, "one two three four"), "one two\nthree four\n");
    assert_eq!(styled(10, "漢字漢字漢字"), "漢字漢字漢\n字\n");
    assert_eq!(styled(10, "abcdefghijklmnopqrstuvwxyz"), "abcdefghij\nklmnopqrst\nuvwxyz\n");
    assert_eq!(styled(14, "- one two three"), "• one two\n  three\n");
    assert_eq!(styled(16, "> one two three four"), "<d>│ </>one two three\n<d>│ </>four\n");
    assert_eq!(styled(10, "👨‍👩‍👧 a 👍🏽"), "👨‍👩‍👧 a 👍🏽\n");
}

#[test]
fn applies_new_width_from_the_next_word() {
    let mut markdown = Markdown::new(Rendering::Plain, 20);
    let mut out = markdown.push("one two three four ");
    markdown.resize(10);
    out.push_str(&markdown.push("five six seven"));
    out.push_str(&markdown.finish());
    assert_eq!(out, "one two three four\nfive six\nseven\n");
}

#[test]
fn fits_tables_into_the_width() {
    let table = "| Name | What it does |\n|---|:-:|\n| `a` | reads a file that you name |\n| 数える | counts |";
    insta::assert_snapshot!([60, 30, 14].map(|width| styled(width, table)).join("----\n"), @r"
    <b>Name</>  <d> │ </>       <b>What</> <b>it</> <b>does</>
    <d>───────┼───────────────────────────</>
    <c>a</>     <d> │ </>reads a file that you name
    数える<d> │ </>          counts
    ----
    <b>Name</>  <d> │ </>    <b>What</> <b>it</> <b>does</>
    <d>───────┼──────────────────────</>
    <c>a</>     <d> │ </>reads a file that you
          <d> │ </>        name
    数える<d> │ </>       counts
    ----
    <b>Name:</> <c>a</>
    <b>What</> <b>it</> <b>does:</>
      reads a file
      that you
      name

    <b>Name:</> 数える
    <b>What</> <b>it</> <b>does:</>
      counts
    ");
    let many: String = (0..450).map(|row| format!("| {row} |\n")).collect();
    let shown = styled(40, &format!("| n |\n|---|\n{many}"));
    assert_eq!(shown.lines().count(), 452);
    assert!(shown.ends_with("\n449\n"));
}

#[test]
fn ends_code_block_at_the_end_of_its_quote() {
    assert_eq!(styled(40, "> ```\n> a\nb"), "<d>│ </>  <c>a</>\nb\n");
    assert_eq!(
        styled(40, "- x\n  ```sh\n  a\n\n   b\n  ```\n  y"),
        "• x\n    <d>sh</>\n    <c>a</>\n\n    <c> b</>\n  y\n"
    );
}

#[test]
fn escapes_control_characters() {
    assert_eq!(styled(40, "a\u{1b}[31mb\r\n`\u{7}`"), "a\\u{1b}[31mb\n<c>\\u{7}</>\n");
}

const MARKS: &[&str] = &[
    "*",
    "**",
    "***",
    "_",
    "__",
    "~~",
    "`",
    "``",
    "```",
    "[",
    "]",
    "(",
    ")",
    "](",
    "!",
    "<",
    ">",
    "\\",
    "#",
    "- ",
    "1. ",
    "---",
    "| ",
    "|",
    "|---|---|\n",
    "    ",
    "\t",
    "漢",
    "👍🏽",
    "é",
    "https://a.b/c",
    "\u{1b}[2J",
    "\r\n",
];

/// Generates texts with many marks.
fn markdown_like() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        4 => "[a-z]{1,9}",
        3 => Just(" ".to_owned()),
        2 => Just("\n".to_owned()),
        1 => Just("\n\n".to_owned()),
        4 => prop::sample::select(MARKS).prop_map(str::to_owned),
    ];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

/// Generates long lines with few marks, so that the distance between an opening and a closing mark is often close to
/// the maximum.
fn far_marks() -> impl Strategy<Value = String> {
    let token = prop_oneof![20 => Just("some words "), 1 => prop::sample::select(&MARKS[..13]), 1 => Just("end*")];
    prop::collection::vec(token, 40..120).prop_map(|tokens| tokens.concat())
}

/// Cuts a text into pieces whose lengths in characters are `lengths`. After the last length, the lengths are used again
/// from the first one.
fn cut<'t>(text: &'t str, lengths: &[usize]) -> Vec<&'t str> {
    let (mut rest, mut parts) = (text, Vec::new());
    for length in lengths.iter().cycle() {
        let end = rest.char_indices().nth(*length).map_or(rest.len(), |(position, _)| position);
        parts.push(&rest[..end]);
        rest = &rest[end..];
        if rest.is_empty() {
            break;
        }
    }
    parts
}

/// Returns true if a line is a horizontal rule. The renderer writes a rule with a length that differs from the length
/// of the source line.
fn has_rule(text: &str) -> bool {
    let is_rule = |line: &str| line.contains(['-', '*', '_']) && line.chars().all(|mark| "-*_> \t".contains(mark));
    text.lines().any(is_rule)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The output does not depend on how the text is cut into pieces.
    #[test]
    fn renders_pieces_like_the_whole_text(
        text in prop_oneof![4 => markdown_like(), 1 => far_marks()],
        width in 1_usize..60,
        lengths in prop::collection::vec(1_usize..7, 1..40),
    ) {
        for rendering in [Rendering::Styled, Rendering::Plain] {
            prop_assert_eq!(render_pieces(rendering, width, cut(&text, &lengths)), render(rendering, width, &text));
        }
    }

    /// The output contains no control characters from the text, and ends every style that it begins.
    #[test]
    fn escapes_control_characters_and_closes_styles(text in markdown_like(), width in 1_usize..60) {
        let out = render(Rendering::Styled, width, &text);
        let visible = anstream::adapter::strip_str(&out).to_string();
        prop_assert!(!visible.contains(|mark: char| mark.is_control() && !matches!(mark, '\n' | '\t')));
        let closed = |line: &str| line.rfind('\u{1b}').is_none_or(|position| line[position + 1..].starts_with("[0m"));
        prop_assert!(out.lines().all(closed));
        prop_assert!(out.is_empty() || out.ends_with('\n'));
    }

    /// Without styles, the output differs from the text only in white space and in the marks of quotes.
    #[test]
    fn keeps_all_words_without_styles(text in markdown_like()) {
        let text = text.replace(['|', '\r', '\u{1b}'], "");
        prop_assume!(!has_rule(&text));
        let words = |text: &str| text.replace(|mark: char| mark == '>' || mark.is_whitespace(), "");
        prop_assert_eq!(words(&render(Rendering::Plain, 30, &text)), words(&text));
    }

    /// Text and tables stay within the width. Only lines of code may be longer.
    #[test]
    fn keeps_lines_within_the_width(text in markdown_like(), width in 30_usize..60) {
        let text = text.replace(['`', '~', '\t'], "").replace("    ", "");
        for line in render(Rendering::Styled, width, &text).lines() {
            let visible = anstream::adapter::strip_str(line).to_string();
            prop_assert!(unicode_width::UnicodeWidthStr::width(visible.as_str()) <= width, "{:?}", visible);
        }
    }
}
