//! Converts HTML to readable text in paragraphs, without scripts, styles and navigation. The converter reads the HTML
//! once, from start to end. Invalid HTML is not an error: the converter returns the text that it can read.

use crate::entities;
use agent_host_sdk::prelude::*;
use url::Url;

/// A page as readable text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The title in the page's head.
    pub title: String,
    /// The text in paragraphs. Headings start with `#`, list items with `-`.
    pub text: String,
    /// The links in the order of the page, without duplicate addresses.
    pub links: Vec<Link>,
}

/// A link of a page.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The text of the link.
    pub text: String,
    /// The address of the link.
    pub url: String,
}

/// Elements whose content is skipped.
const SKIPPED: [&str; 9] = ["script", "style", "noscript", "template", "svg", "iframe", "nav", "footer", "select"];
/// Elements that start and end a paragraph.
const PARAGRAPH_ELEMENTS: [&str; 22] = [
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "ul",
    "ol",
    "table",
    "blockquote",
    "pre",
    "figure",
    "form",
    "dl",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "address",
];
/// The maximum number of links of a page.
const MAX_LINKS: usize = 500;

/// A token of HTML: text, an opening tag or a closing tag.
enum Token<'h> {
    Text(&'h str),
    Open { name: String, attributes: &'h str },
    Close { name: String },
}

impl Page {
    /// Converts the HTML of the page at this address.
    pub fn of_html(html: &str, base: &Url) -> Self {
        let mut reader = Reader { base: base.clone(), ..Reader::default() };
        let mut remaining = html;
        while let Some((token, after)) = next_token(remaining) {
            remaining = match &token {
                Token::Open { name, .. } if SKIPPED.contains(&name.as_str()) && !name.is_empty() => {
                    after_element(after, name)
                }
                _ => after,
            };
            reader.process(token);
        }
        reader.finish()
    }
}

/// Returns the HTML after the end of the element, or an empty text if the element is not closed.
fn after_element<'h>(html: &'h str, name: &str) -> &'h str {
    let mut from = 0;
    while let Some(at) = html[from..].find("</") {
        let start = from + at + 2;
        let end = start + name.len();
        if html.get(start..end).is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            return html[end..].find('>').map_or("", |close| &html[end + close + 1..]);
        }
        from = start;
    }
    ""
}

/// Splits the HTML into the first token and the remaining HTML. Returns `None` if the HTML is empty.
fn next_token(html: &str) -> Option<(Token<'_>, &str)> {
    if html.is_empty() {
        return None;
    }
    let Some(tag) = html.strip_prefix('<') else {
        let end = html.find('<').unwrap_or(html.len());
        return Some((Token::Text(&html[..end]), &html[end..]));
    };
    if let Some(comment) = tag.strip_prefix("!--") {
        let after = comment.find("-->").map_or("", |end| &comment[end + 3..]);
        return Some((Token::Text(""), after));
    }
    if !tag.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?')) {
        return Some((Token::Text("<"), tag));
    }
    let end = end_of_tag(tag);
    let (inner, after) = (&tag[..end], tag.get(end + 1..).unwrap_or(""));
    let (is_close, inner) = inner.strip_prefix('/').map_or((false, inner), |inner| (true, inner));
    let length = inner.find(|character: char| character.is_whitespace() || character == '/').unwrap_or(inner.len());
    let (name, attributes) = inner.split_at(length);
    let name = name.to_ascii_lowercase();
    Some((if is_close { Token::Close { name } } else { Token::Open { name, attributes } }, after))
}

/// Returns the index of the `>` that ends the tag. A `>` in quotes does not end the tag.
fn end_of_tag(tag: &str) -> usize {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at,
            (None, b'"' | b'\'') if tag[..at].trim_end().ends_with('=') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    tag.len()
}

/// Returns the decoded value of an attribute, or `None` if the attribute does not exist.
fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut remaining = attributes;
    loop {
        remaining = remaining.trim_start_matches(|character: char| character.is_whitespace() || character == '/');
        if remaining.is_empty() {
            return None;
        }
        let end =
            remaining.find(|character: char| character.is_whitespace() || character == '=').unwrap_or(remaining.len());
        let (name, after) = remaining.split_at(end);
        let after = after.trim_start();
        let Some(value) = after.strip_prefix('=') else {
            // Skip an `=` without an attribute name before it, because the loop would never end if it did not skip
            // the `=`.
            remaining = if name.is_empty() { after.get(1..)? } else { after };
            continue;
        };
        let value = value.trim_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(entities::decode(value));
        }
        remaining = after;
    }
}

/// Builds a [`Page`] from the tokens of the HTML.
struct Reader {
    base: Url,
    page: Page,
    in_title: bool,
    in_pre: bool,
    link: Option<(String, usize)>,
    /// The text of the current line or paragraph, which has not been added to the page yet.
    line: String,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            base: Url::parse("about:blank").unwrap_or_else(|_| unreachable!("a constant address")),
            page: Page::default(),
            in_title: false,
            in_pre: false,
            link: None,
            line: String::new(),
        }
    }
}

impl Reader {
    fn process(&mut self, token: Token<'_>) {
        match token {
            Token::Text(text) => self.text(&entities::decode(text)),
            Token::Open { name, attributes } => self.open(&name, attributes),
            Token::Close { name } => self.close(&name),
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.page.title.push_str(text);
        } else if self.in_pre {
            self.line.push_str(text);
        } else {
            for (index, word) in text.split(char::is_whitespace).enumerate() {
                if index > 0 && !self.line.is_empty() && !self.line.ends_with([' ', '\n']) {
                    self.line.push(' ');
                }
                self.line.push_str(word);
            }
        }
    }

    fn open(&mut self, name: &str, attributes: &str) {
        match name {
            "title" => self.in_title = self.page.title.is_empty(),
            "br" => self.line.push('\n'),
            "td" | "th" if !self.line.is_empty() && !self.line.ends_with('\n') => self.line.push_str(" | "),
            "li" | "dt" => {
                self.end_line();
                self.line.push_str("- ");
            }
            "tr" | "dd" => self.end_line(),
            "img" => {
                if let Some(text) = attribute(attributes, "alt").filter(|text| !text.trim().is_empty()) {
                    self.text(&format!("[{text}]"));
                }
            }
            "base" => {
                let address = attribute(attributes, "href").and_then(|href| self.base.join(&href).ok());
                self.base = address.unwrap_or(self.base.clone());
            }
            "a" => self.link = attribute(attributes, "href").map(|href| (href, self.line.len())),
            _ if PARAGRAPH_ELEMENTS.contains(&name) => {
                self.end_paragraph();
                self.in_pre |= name == "pre";
                if let Some(level) = name.strip_prefix('h').and_then(|level| level.parse::<usize>().ok()) {
                    self.line.push_str(&"#".repeat(level));
                    self.line.push(' ');
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "title" => self.in_title = false,
            "a" => self.end_link(),
            "li" | "tr" | "dt" | "dd" => self.end_line(),
            _ if PARAGRAPH_ELEMENTS.contains(&name) => {
                self.end_paragraph();
                self.in_pre &= name != "pre";
            }
            _ => {}
        }
    }

    fn end_link(&mut self) {
        let Some((href, start)) = self.link.take() else { return };
        let text = self.line.get(start..).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let url = self.base.join(href.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(mut url) = url.filter(|_| self.page.links.len() < MAX_LINKS) else { return };
        url.set_fragment(None);
        let url = String::from(url);
        if !text.is_empty() && !self.page.links.iter().any(|link| link.url == url) {
            self.page.links.push(Link { text, url });
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = if self.in_pre { line.as_str().trim_matches('\n') } else { line.trim() };
        if !line.is_empty() && !line.chars().all(|character| "#-| ".contains(character)) {
            self.page.text.push_str(line);
            self.page.text.push('\n');
        }
    }

    fn end_paragraph(&mut self) {
        self.end_line();
        if !self.page.text.is_empty() && !self.page.text.ends_with("\n\n") {
            self.page.text.push('\n');
        }
    }

    fn finish(mut self) -> Page {
        self.end_line();
        self.page.text.truncate(self.page.text.trim_end().len());
        self.page.title = self.page.title.split_whitespace().collect::<Vec<_>>().join(" ");
        self.page
    }
}
