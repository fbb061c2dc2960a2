//! Formats untrusted text, sizes, times and numbers for output that users read.

use super::flow::fitting;
use crate::environment;
pub(crate) use agent_config::{grouped, one_line, shell_word, size};
use agent_core::message::Media;
use agent_core::visible::visible;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use unicode_width::UnicodeWidthStr;

/// Minimum number of characters of each value in a list of arguments.
const MIN_VALUE_CHARACTERS: usize = 8;

/// Escapes control and invisible characters, so that untrusted text can neither control the terminal nor hide other
/// text (row 49).
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    visible(text)
}

/// Shortens a text to one line of at most `columns`. A shortened line ends with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let text = harmless(text).replace(['\t', '\n'], " ");
    if text.width() <= columns {
        return text;
    }
    format!("{}…", &text[..fitting(&text, columns.saturating_sub(1))])
}

/// Wraps text between words into lines of at most `columns`. Escape codes of styles do not count toward the width. A
/// word that is longer than `columns` is not broken.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    wrapped_below(text, columns, "")
}

/// Wraps an entry of a list as [`wrapped`] does, and indents the continued lines more than the beginning of their line.
pub(crate) fn wrapped_entry(text: &str, columns: usize) -> String {
    wrapped_below(text, columns, "    ")
}

/// Wraps text into lines of at most `columns`. If a line is continued, `hanging` is added to its indentation.
fn wrapped_below(text: &str, columns: usize, hanging: &str) -> String {
    let width = |text: &str| anstream::adapter::strip_str(text).to_string().width();
    let lines = text.lines().map(|line| {
        if width(line) <= columns {
            return line.to_owned();
        }
        let indent = &line[..line.len() - line.trim_start_matches(' ').len()];
        let (mut shown, mut column) = (indent.to_owned(), indent.len());
        for (number, word) in line.trim_start_matches(' ').split(' ').enumerate() {
            let next = width(word);
            if number > 0 && column + 1 + next > columns {
                shown.push_str(&format!("\n{indent}{hanging}"));
                column = indent.len() + hanging.len();
            } else if number > 0 {
                shown.push(' ');
                column += 1;
            }
            shown.push_str(word);
            column += next;
        }
        shown
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats JSON on one line, shortened to at most `characters`.
pub(crate) fn json_line(value: &Value, characters: usize) -> String {
    one_line(&value.to_string(), characters)
}

/// Formats the arguments of a call on one line of at most `characters`: as JSON if it fits, and otherwise as a list of
/// `name: value`, in which the long values are shortened.
pub(crate) fn arguments(value: &Value, characters: usize) -> String {
    let fields = match value {
        Value::Object(fields) if value.to_string().chars().count() > characters => fields,
        _ => return json_line(value, characters),
    };
    let texts: Vec<(String, String)> =
        fields.iter().map(|(name, value)| (one_line(name, 40), one_line(&value.to_string(), characters))).collect();
    let length = |text: &str| text.chars().count();
    let mut left = characters.saturating_sub(texts.iter().map(|(name, _)| length(name) + 4).sum());
    // Short values are shown in full, and long values share the rest of the line.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|index| length(&texts[*index].1));
    let mut shown = vec![String::new(); texts.len()];
    for (position, index) in order.into_iter().enumerate() {
        let (name, value) = &texts[index];
        let value = one_line(value, (left / (texts.len() - position)).max(MIN_VALUE_CHARACTERS));
        left = left.saturating_sub(length(&value));
        shown[index] = format!("{name}: {value}");
    }
    one_line(&shown.join(", "), characters)
}

/// Describes a media item by its type, size and digest, for example as `[image/png, 1.2 KiB, 0123456789ab]`.
pub(crate) fn media_item(media: &Media) -> String {
    format!("[{}, {}, {}]", media.mime_type, size(media.size), media.digest.short())
}

/// Formats a duration in microseconds with a suitable unit, for example as `0.3 ms`, `12 ms` or `4.2 s`.
pub(crate) fn time(microseconds: u64) -> String {
    let exact = microseconds as f64;
    match microseconds {
        0..=9_949 => format!("{:.1} ms", exact / 1e3),
        9_950..=999_499 => format!("{:.0} ms", exact / 1e3),
        _ => format!("{:.1} s", exact / 1e6),
    }
}

/// Formats a time in RFC 3339 in the user's time zone and without fractions of a second, for example as `2026-01-31
/// 13:01:00 CET`. Another text is returned unchanged.
pub(crate) fn local_time(rfc3339: &str) -> String {
    time_in(rfc3339, environment::time_zone())
}

fn time_in(rfc3339: &str, zone: TimeZone) -> String {
    match rfc3339.parse::<Timestamp>() {
        Ok(time) => time.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => rfc3339.to_owned(),
    }
}

/// Formats the interfaces that a component imports, with one line for each package, such as `wasi:cli@0.2.12 exit,
/// stderr, stdin`. If the component imports no interface, the only line is `nothing`.
pub(crate) fn imports(names: &[String]) -> Vec<String> {
    if names.is_empty() {
        return vec!["nothing".to_owned()];
    }
    let mut packages: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let (path, version) = name.split_once('@').unwrap_or((name, ""));
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        let version = if version.is_empty() { String::new() } else { format!("@{version}") };
        packages.entry(format!("{package}{version}")).or_default().push(interface);
    }
    let line = |(package, interfaces): (&String, &Vec<&str>)| {
        format!("{package} {}", interfaces.join(", ")).trim_end().to_owned()
    };
    packages.iter().map(line).collect()
}

/// Formats a number with its noun, for example as `1 line` or `2 lines`. The plural of the noun is formed by
/// adding `s`.
pub(crate) fn count(number: usize, singular: &str) -> String {
    if number == 1 { format!("1 {singular}") } else { format!("{number} {singular}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_49_escapes_control_and_invisible_characters() {
        assert_eq!(harmless("a\u{1b}[31mb\n\tc\u{202e}d"), "a\\u{1b}[31mb\n\tc\\u{202e}d");
        assert_eq!(harmless("\u{61c}\u{200e}\u{200f}"), r"\u{61c}\u{200e}\u{200f}");
        for invisible in
            ["\u{200b}", "\u{2028}", "\u{2029}", "\u{2060}", "\u{feff}", "\u{e0041}", "\u{200d}", "\u{200c}"]
        {
            assert_eq!(harmless(&format!("a{invisible}b")), format!("a{}b", invisible.escape_unicode()));
        }
        assert_eq!(one_line("\n first\r\nsecond", 100), "first…");
        assert_eq!(one_line("äöü", 2), "äö…");
        assert_eq!(one_line("äöü", 3), "äöü");
    }

    /// Row 8: joiners are kept in emoji and scripts that need them, and escaped everywhere else.
    #[test]
    fn row_8_keeps_joiners_in_emoji_and_scripts() {
        for whole in ["👩\u{200d}💻", "❤\u{fe0f}\u{200d}🔥", "👩🏽\u{200d}🚀", "می\u{200c}خواهم", "क्\u{200d}ष"]
        {
            assert_eq!(harmless(whole), whole);
        }
        assert_eq!(harmless("👩\u{200d}x \u{200d}💻"), r"👩\u{200d}x \u{200d}💻");
    }

    #[test]
    fn cuts_text_by_display_width() {
        assert_eq!((cut("abcdef", 6), cut("abcdef", 5)), ("abcdef".into(), "abcd…".into()));
        assert_eq!((cut("漢字漢字", 8), cut("漢字漢字", 6)), ("漢字漢字".into(), "漢字…".into()));
        assert_eq!([0, 12, 123, 1234, 1_234_567].map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn wraps_prose_without_counting_styles() {
        let text = "\u{1b}[2mone two\u{1b}[0m three\n  four five six seven\nshort";
        let shown = "\u{1b}[2mone two\u{1b}[0m\nthree\n  four five\n  six seven\nshort";
        assert_eq!(wrapped(text, 11), shown);
        assert_eq!(wrapped("averyverylongword and", 5), "averyverylongword\nand");
        assert_eq!(wrapped_entry("  one two three four\nshort", 11), "  one two\n      three\n      four\nshort");
    }

    #[test]
    fn groups_imports_by_package() {
        let names =
            ["wasi:io/poll@0.2.12", "agent-host:plugin/types@0.1.0", "wasi:io/error@0.2.12", "wasi:logging/logging"];
        let shown = imports(&names.map(str::to_owned));
        let expected = ["agent-host:plugin@0.1.0 types", "wasi:io@0.2.12 poll, error", "wasi:logging logging"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn long_arguments_are_a_list_of_names_and_values() {
        let short = serde_json::json!({"path": "a.md", "mode": "create"});
        assert_eq!(arguments(&short, 60), r#"{"path":"a.md","mode":"create"}"#);
        let long = serde_json::json!({"path": "a.md", "text": "x".repeat(100), "mode": "create\u{1b}"});
        let shown = arguments(&long, 60);
        assert_eq!(shown, r#"path: "a.md", text: "xxxxxxxxxxxxxxx…, mode: "create\u001b""#);
        assert!(shown.chars().count() <= 60, "{shown}");
        let many: serde_json::Map<_, _> = (0..50).map(|number| (format!("name{number}"), 1.into())).collect();
        assert!(arguments(&Value::Object(many), 60).starts_with("name0: 1, name1: 1, "));
        assert_eq!(arguments(&"x".repeat(9).into(), 5), "\"xxxx…");
    }

    #[test]
    fn times_are_shown_in_the_time_zone_of_the_user() {
        let zone = |name| TimeZone::get(name).expect("a known zone");
        let time = "2026-07-31T22:30:59.123Z";
        assert_eq!(time_in(time, TimeZone::UTC), "2026-07-31 22:30:59 UTC");
        assert_eq!(time_in(time, zone("Europe/Berlin")), "2026-08-01 00:30:59 CEST");
        assert_eq!(time_in("2026-01-31T12:00:00Z", zone("Asia/Kolkata")), "2026-01-31 17:30:00 IST");
        assert_eq!(time_in("yesterday", TimeZone::UTC), "yesterday");
    }

    #[test]
    fn formats_sizes_and_times() {
        let sizes: Vec<_> = [0, 1, 1023, 1024, 1_258_291].into_iter().map(size).collect();
        assert_eq!(sizes, ["0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.2 MiB"]);
        let times: Vec<_> = [40, 9_949, 9_950, 999_499, 999_500, 4_210_000].into_iter().map(time).collect();
        assert_eq!(times, ["0.0 ms", "9.9 ms", "10 ms", "999 ms", "1.0 s", "4.2 s"]);
    }
}
