//! The web console: its files, which are part of the program, and the headers that limit what its pages can do (I3).

use crate::problem::Problem;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::borrow::Cow;

/// Path below which the files of the console are served.
pub(crate) const PATH: &str = "/console/";

/// A file of the console.
struct File {
    /// Path of the file below [`PATH`].
    path: &'static str,
    /// A development build reads the file instead, so that a change needs no new build.
    #[cfg(not(debug_assertions))]
    bytes: &'static [u8],
}

/// Lists files of the folder `console`. A test compares the list with the folder.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(File {
            path: $path,
            #[cfg(not(debug_assertions))]
            bytes: include_bytes!(concat!("../console/", $path)),
        }),*]
    };
}

const FILES: &[File] = files![
    "icon.svg",
    "index.html",
    "main.js",
    "chat/budget-bar.js",
    "chat/composer.js",
    "chat/conversation.js",
    "chat/kept-messages.js",
    "chat/live-text.js",
    "chat/message-view.js",
    "chat/session-actions.js",
    "chat/session-list.js",
    "chat/tool-card.js",
    "components/agent-choice.js",
    "components/decision.js",
    "components/dialog.js",
    "components/icon.js",
    "components/json-view.js",
    "components/media.js",
    "components/menu.js",
    "components/notice.js",
    "components/page.js",
    "components/schema-form.js",
    "components/share-bar.js",
    "components/shell.js",
    "components/tabs.js",
    "core/api.js",
    "core/diff.js",
    "core/dom.js",
    "core/events.js",
    "core/format.js",
    "core/inbox-count.js",
    "core/keys.js",
    "core/rendered.js",
    "core/router.js",
    "core/sign-in.js",
    "core/theme.js",
    "pages/about.js",
    "pages/agents.js",
    "pages/agents/editor.js",
    "pages/agents/schema-help.js",
    "pages/chat.js",
    "pages/inbox.js",
    "pages/plugins.js",
    "pages/plugins/access.js",
    "pages/plugins/tools.js",
    "pages/plugins/versions.js",
    "pages/sign-in.js",
    "pages/turns.js",
    "pages/turns/prompt.js",
    "pages/turns/replay.js",
    "pages/turns/step.js",
    "pages/turns/timeline.js",
    "pages/turns/words.js",
    "style/agents.css",
    "style/base.css",
    "style/chat.css",
    "style/components.css",
    "style/plugins.css",
    "style/shell.css",
    "style/tokens.css",
    "style/turns.css",
];

/// What a browser may do with the pages of the console. Scripts and styles come only from this server, nothing is evaluated,
/// text never becomes markup (`require-trusted-types-for`), no other server is asked, and no other page can show the console in
/// a frame. Pictures are fetched with the token, so that they are `blob:` URLs.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Returns whether a request with this path is about the files of the console, which contain no data of the host.
pub(crate) fn is_console(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with(PATH)
}

/// Sends a browser to the console.
pub(crate) async fn redirect() -> Redirect {
    Redirect::temporary(PATH)
}

/// Returns the page of the console.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

/// Returns a file of the console.
pub(crate) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    answer(&path, &headers)
}

fn answer(path: &str, request: &HeaderMap) -> Response {
    let Some(bytes) = FILES.iter().find(|file| file.path == path).and_then(bytes_of) else {
        return Problem::not_found("the console has no such file").into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..32]);
    let is_known = request.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, content_type(path))], bytes.into_owned()).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Returns the bytes of a file.
#[cfg(not(debug_assertions))]
fn bytes_of(file: &File) -> Option<Cow<'static, [u8]>> {
    Some(Cow::Borrowed(file.bytes))
}

/// Reads a file in a development build.
#[cfg(debug_assertions)]
fn bytes_of(file: &File) -> Option<Cow<'static, [u8]>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    std::fs::read(folder.join(file.path)).ok().map(Cow::Owned)
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn collect(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => collect(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name)),
            }
        }
    }

    /// I3: the program contains every file of the console, and every file has a type that browsers accept.
    #[test]
    fn i3_the_list_of_files_is_complete() {
        let mut found = BTreeSet::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("console"), "", &mut found);
        let listed: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(listed, found);
        assert!(FILES.iter().all(|file| content_type(file.path) != "application/octet-stream"));
    }

    /// Returns the modules that a module imports when it is loaded, with their paths below [`PATH`].
    fn imports_of(path: &str) -> BTreeSet<String> {
        let bytes = FILES.iter().find(|file| file.path == path).and_then(bytes_of).unwrap();
        let (text, folder) = (std::str::from_utf8(&bytes).unwrap(), Path::new(path).parent().unwrap());
        let statements = text.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "));
        let sources = statements.filter_map(|line| line.split('"').nth(1));
        let resolved = sources.map(|source| {
            let mut parts: Vec<&str> = folder.iter().map(|part| part.to_str().unwrap()).collect();
            for part in source.split('/') {
                match part {
                    "." => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            parts.join("/")
        });
        resolved.collect()
    }

    /// I3: a page names the modules that it needs first, and no others, so that a browser loads them at once. Each of them is a file
    /// of the console.
    #[test]
    fn i3_the_first_modules_are_loaded_at_once() {
        let page = FILES.iter().find(|file| file.path == "index.html").and_then(bytes_of).unwrap();
        let page = std::str::from_utf8(&page).unwrap();
        let named = page.split("rel=\"modulepreload\" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let named: BTreeSet<String> = named.map(str::to_owned).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
        // The chat is the first page.
        let mut needed = imports_of("main.js");
        needed.insert("pages/chat.js".to_owned());
        let mut waiting: Vec<String> = needed.iter().cloned().collect();
        while let Some(module) = waiting.pop() {
            assert!(listed.contains(&module), "{module} is imported, and is no file of the console");
            waiting.extend(imports_of(&module).into_iter().filter(|imported| needed.insert(imported.clone())));
        }
        assert_eq!(named, needed, "modules on the left are named in index.html, and those on the right are imported");
        let styles = page.split("rel=\"stylesheet\" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let styles: BTreeSet<String> = styles.map(str::to_owned).collect();
        let all: BTreeSet<String> = listed.into_iter().filter(|path| path.ends_with(".css")).collect();
        assert_eq!(styles, all);
    }

    /// Row 24: the pages contain no inline scripts and styles, which the policy would refuse, and name no other server.
    #[test]
    fn row_24_pages_are_their_own_source() {
        for file in FILES {
            let bytes = bytes_of(file).unwrap();
            let text = std::str::from_utf8(&bytes).unwrap();
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(forbidden), "{} has `{forbidden}`", file.path);
            }
            let without_names = text.replace("http://www.w3.org/", "");
            let other_server = ["src=\"http", "href=\"http", "import(\"http", "from \"http", "url(http"];
            assert!(!other_server.iter().any(|other| without_names.contains(other)), "{}", file.path);
            if file.path.ends_with(".html") {
                assert!(!text.contains("<style") && !text.contains("style=") && !text.contains(" on"), "{}", file.path);
            }
        }
    }
}
