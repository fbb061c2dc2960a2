//! Grants a URL prefix of a server, and requests a URL. If the host allows the request, even a lenient server must
//! consider the path to be below the prefix.

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

/// Returns the parts of a path as a lenient server interprets them. The function decodes the path several times, treats
/// `\` as `/`, cuts each part at `;`, removes empty parts, and resolves dots.
fn lenient_parts(path: &str) -> Vec<String> {
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
    // If a text can be parsed as a grant, printing the grant and parsing the printed text returns an equal grant.
    if let Ok(pattern) = input.pattern.parse::<HttpPattern>() {
        let shown = pattern.to_string();
        assert_eq!(shown.parse::<HttpPattern>().as_ref(), Ok(&pattern), "{shown}");
    }
    let pattern: HttpPattern = "GET https://a.example/pub/inner/".parse().expect("the pattern is valid");
    let Ok(url) = Url::parse(&format!("https://a.example/pub/inner/{}", input.path)) else { return };
    if agent_plugins::fuzzing::allows(&pattern, "GET", &url) {
        assert_eq!(url.host_str(), Some("a.example"));
        let parts = lenient_parts(url.path());
        assert!(parts.starts_with(&["pub".to_owned(), "inner".to_owned()]), "{url} is parsed as {parts:?}");
    }
});
