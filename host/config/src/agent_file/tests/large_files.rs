//! Row 26: a large file is read, or refused, in a time that grows only with its size.

use super::super::*;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Returns a text with this number of parts, each of which names its number.
fn text_of(count: usize, before: &str, part: &dyn Fn(usize) -> String) -> String {
    let mut text = before.to_owned();
    (0..count).for_each(|number| writeln!(text, "{}", part(number)).expect("text is written"));
    text
}

/// Row 26: files with many thousands of tables, keys and problems are read or refused quickly, and an error stays small.
#[test]
fn row_26_large_files_are_read_in_linear_time() {
    type Part = dyn Fn(usize) -> String;
    let names: String =
        (0..8_000).map(|number| format!("[providers.q{number}]\nbase_url = \"https://a.example\"\n")).collect();
    let policies = format!("{names}[media_policies]\n");
    let shapes: [(&str, &str, &Part); 11] = [
        ("plugins", "", &|number| format!("[plugins.p{number}]")),
        ("grants", "", &|number| format!("[plugins.p{number}.grants]\nmedia = true")),
        ("grants of one plugin", "[plugins.p.grants]\n", &|number| format!("config.k{number} = \"v\"")),
        ("unknown tables", "", &|number| format!("[x{number}]")),
        ("unknown keys", "", &|number| format!("modle{number} = 1")),
        ("unknown providers", "[media_policies]\n", &|number| format!("p{number} = \"x\"")),
        ("unknown providers among many", &policies, &|number| format!("p{number} = \"x\"")),
        ("providers", "", &|number| format!("[providers.p{number}]\nbase_url = \"https://a.example\"")),
        ("services", "", &|number| format!("[services.s{number}]\ntype = \"a.b{number}\"")),
        ("servers", "", &|number| format!("[mcp.m{number}]\ncommand = \"true\"")),
        ("double tables", "", &|number| format!("[plugins.p{}]", number / 2)),
    ];
    for (name, before, part) in shapes {
        let time = |count: usize| {
            let text = text_of(count, before, part);
            assert!(text.len() as u64 <= MAX_BYTES, "{name}: {}", text.len());
            let started = Instant::now();
            match AgentFile::parse(&text, Path::new("agent.toml")) {
                Ok(file) => drop(crate::trust::permissions_of_file(&file, &text)),
                Err(error) => {
                    let (located, shown) = (error.located(), error.to_string());
                    let size =
                        located.iter().map(|problem| problem.message.len() + problem.advice.len()).sum::<usize>();
                    assert!(located.len() <= 50 && size < 200_000 && shown.len() < 200_000, "{name}: {size}");
                    assert!(shown.contains("more problems"), "{name}: the further problems are counted");
                }
            }
            started.elapsed()
        };
        let (few, many) = (time(4_000), time(16_000));
        assert!(many < Duration::from_secs(10), "{name}: {many:?}");
        assert!(many < few * 8 + Duration::from_secs(1), "{name}: {few:?} for a quarter of what took {many:?}");
    }
}
