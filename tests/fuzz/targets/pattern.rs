//! Grants a URL prefix of a server, requests a URL, and compares the decision with how lenient servers read the path.

#![no_main]

use agent_plugins::HttpPattern;
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use url::Url;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    pattern: &'a str,
    path: &'a str,
}

/// A path as lenient servers read it: decoded repeatedly until it no longer changes, cut at `;`, with `\` as `/`,
/// without empty parts, dots resolved.
fn lenient(path: &str) -> Vec<String> {
    let mut text = path.to_owned();
    for _ in 0..4 {
        let bytes =
            url::form_urlencoded::parse(format!("x={}", text.replace('+', "%2B").replace('&', "%26")).as_bytes())
                .next()
                .map(|(_, value)| value.into_owned());
        text = bytes.unwrap_or_default();
    }
    let mut parts: Vec<String> = Vec::new();
    for part in text.replace('\\', "/").split('/') {
        match part.split(';').next().unwrap_or_default().trim_matches(['\0', ' ', '\t', '\r', '\n']) {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

fuzz_target!(|input: Input<'_>| {
    // Any text as a grant is either refused or parsed; it never allows another host.
    if let Ok(pattern) = input.pattern.parse::<HttpPattern>() {
        let shown = pattern.to_string();
        assert_eq!(shown.parse::<HttpPattern>().as_ref(), Ok(&pattern), "{shown}");
    }
    let pattern: HttpPattern = "GET https://a.example/pub/inner/".parse().expect("a pattern");
    let Ok(url) = Url::parse(&format!("https://a.example/pub/inner/{}", input.path)) else { return };
    if agent_plugins::fuzzing::allows(&pattern, "GET", &url) {
        assert_eq!(url.host_str(), Some("a.example"));
        let parts = lenient(url.path());
        assert!(parts.starts_with(&["pub".to_owned(), "inner".to_owned()]), "{url} is parsed as {parts:?}");
    }
});
