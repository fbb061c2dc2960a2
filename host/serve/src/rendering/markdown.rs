//! Markdown as blocks of known elements. HTML in the text stays text, pictures become links, and only links to the web and to
//! mail addresses are kept.

use super::{Token, highlight};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};
use serde::Serialize;
use url::Url;

/// Maximum size of a text that is rendered, in bytes. A longer text is returned as one block of plain text.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of the parser's events that one text may need. A text of ordinary size needs a few thousand.
const MAX_EVENTS: usize = 40_000;
/// Maximum depth of elements. Deeper elements are left out, and their content is kept.
const MAX_DEPTH: usize = 24;

/// One block of a text, such as a paragraph or a list.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Block {
    /// Number of the line, starting at 0, in which the block begins.
    pub(crate) line: usize,
    pub(crate) node: Node,
}

/// A part of a rendered text.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Node {
    Text(String),
    Element(Element),
}

/// An element. `tag` is the name of an element of HTML, or `code_block`.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Element {
    pub(crate) tag: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Node>,
    #[serde(skip_serializing_if = "Option::is_none")]
    href: Option<String>,
    /// The host of a link whose text could be read as another address. A page shows it beside the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    align: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<Token>>,
}

impl Element {
    fn new(tag: &'static str) -> Self {
        Self { tag, ..Self::default() }
    }
}

/// Renders a text.
pub(crate) fn markdown(text: &str) -> Vec<Block> {
    markdown_within(text, &mut { MAX_EVENTS })
}

/// Renders a text with at most `budget` events of the parser, which are subtracted from `budget`. A text that needs more is not
/// formatted. A short text may need many: each row of a table has all cells of its head.
pub(crate) fn markdown_within(text: &str, budget: &mut usize) -> Vec<Block> {
    let blocks = if text.len() > MAX_BYTES { None } else { rendered(text, budget) };
    blocks.unwrap_or_else(|| {
        let tokens = Some(vec![Token::plain(text)]);
        let node = Node::Element(Element { tokens, ..Element::new("code_block") });
        vec![Block { line: 0, node }]
    })
}

/// Returns `None` if the text needs too many events.
fn rendered(text: &str, budget: &mut usize) -> Option<Vec<Block>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    let (mut line, mut counted) = (0, 0);
    let mut left = MAX_EVENTS.min(*budget);
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if builder.stack.is_empty() && range.start > counted {
            line += text[counted..range.start].matches('\n').count();
            counted = range.start;
        }
        let Some(fewer) = left.checked_sub(1) else {
            *budget = budget.saturating_sub(MAX_EVENTS);
            return None;
        };
        left = fewer;
        builder.event(event, line);
    }
    *budget = budget.saturating_sub(MAX_EVENTS.min(*budget) - left);
    Some(builder.blocks)
}

/// An open element.
struct Open {
    /// `None` if the element is left out, because it is too deep or not safe. Its content belongs to the element around it.
    element: Option<Element>,
    line: usize,
    /// A text that follows the element.
    after: Option<String>,
}

#[derive(Default)]
struct Builder {
    blocks: Vec<Block>,
    stack: Vec<Open>,
    /// The language and the text of the open block of code.
    code: Option<(String, String)>,
    /// The alignments of the columns of the open table, and the number of the next column.
    alignments: Vec<(Vec<Alignment>, usize)>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) {
        match event {
            Event::Start(tag) => self.start(tag, line),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, line),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.open(Some(Element::new("code")), line);
                self.text(&text, line);
                self.close();
            }
            Event::SoftBreak => self.text("\n", line),
            Event::HardBreak => self.leaf(Element::new("br"), line),
            Event::Rule => self.leaf(Element::new("hr"), line),
            Event::TaskListMarker(checked) => {
                let item = self.stack.iter_mut().rev().filter_map(|open| open.element.as_mut());
                if let Some(item) = item.into_iter().find(|element| element.tag == "li") {
                    item.checked = Some(checked);
                }
            }
            Event::FootnoteReference(name) => self.text(&name, line),
        }
    }

    fn start(&mut self, tag: Tag<'_>, line: usize) {
        let element = match tag {
            Tag::Paragraph | Tag::HtmlBlock => Element::new("p"),
            Tag::Heading { level, .. } => Element::new(heading(level)),
            Tag::BlockQuote(_) => Element::new("blockquote"),
            Tag::CodeBlock(kind) => {
                let info = if let CodeBlockKind::Fenced(info) = kind { info.to_string() } else { String::new() };
                let language = info.split([' ', ',', '{']).next().unwrap_or_default().chars().take(40).collect();
                self.code = Some((language, String::new()));
                Element::new("code_block")
            }
            Tag::List(start) => Element { start, ..Element::new(if start.is_some() { "ol" } else { "ul" }) },
            Tag::Item => Element::new("li"),
            Tag::Table(alignments) => {
                self.alignments.push((alignments, 0));
                Element::new("table")
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some((_, column)) = self.alignments.last_mut() {
                    *column = 0;
                }
                Element::new("tr")
            }
            Tag::TableCell => self.cell(),
            Tag::Emphasis => Element::new("em"),
            Tag::Strong => Element::new("strong"),
            Tag::Strikethrough => Element::new("del"),
            Tag::Link { link_type: LinkType::Email, dest_url, .. } => {
                return self.link(&format!("mailto:{dest_url}"), "", line);
            }
            Tag::Link { dest_url, .. } => return self.link(&dest_url, "", line),
            Tag::Image { dest_url, .. } => return self.link(&dest_url, "picture: ", line),
            _ => return self.open(None, line),
        };
        self.open(Some(element), line);
    }

    fn cell(&mut self) -> Element {
        let Some((alignments, column)) = self.alignments.last_mut() else { return Element::new("td") };
        let align = match alignments.get(*column) {
            Some(Alignment::Center) => Some("center"),
            Some(Alignment::Right) => Some("end"),
            _ => None,
        };
        *column += 1;
        let is_head = self
            .stack
            .iter()
            .flat_map(|open| &open.element)
            .all(|element| element.children.is_empty() || element.tag != "table");
        Element { align, ..Element::new(if is_head { "th" } else { "td" }) }
    }

    /// Opens a link. The address of a link that a page must not open is shown as text.
    fn link(&mut self, address: &str, prefix: &str, line: usize) {
        let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
        match url {
            Some(url) => self.open(Some(Element { href: Some(url.into()), ..Element::new("a") }), line),
            None => {
                self.open(None, line);
                if let Some(open) = self.stack.last_mut().filter(|_| !address.is_empty()) {
                    open.after = Some(format!(" ({address})"));
                }
            }
        }
        if !prefix.is_empty() {
            self.text(prefix, line);
        }
    }

    fn end(&mut self, tag: TagEnd) {
        if let (TagEnd::CodeBlock, Some((language, text))) = (tag, self.code.take()) {
            let tokens = highlight(&text, &language);
            if let Some(Open { element: Some(element), .. }) = self.stack.last_mut() {
                (element.language, element.tokens) = (Some(language), Some(tokens));
            }
        }
        if tag == TagEnd::Table {
            self.alignments.pop();
        }
        self.close();
    }

    fn open(&mut self, element: Option<Element>, line: usize) {
        let element = element.filter(|_| self.stack.len() < MAX_DEPTH);
        self.stack.push(Open { element, line, after: None });
    }

    fn close(&mut self) {
        let Some(Open { element, line, after }) = self.stack.pop() else { return };
        if let Some(mut element) = element {
            match element.tag {
                "table" => group_rows(&mut element),
                "a" => element.host = misleading_host(&element),
                _ => {}
            }
            self.append(Node::Element(element), line);
        }
        if let Some(after) = after {
            self.text(&after, line);
        }
    }

    fn leaf(&mut self, element: Element, line: usize) {
        self.append(Node::Element(element), line);
    }

    fn text(&mut self, text: &str, line: usize) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => self.append(Node::Text(text.to_owned()), line),
        }
    }

    /// Appends a node to the innermost element, or to the blocks.
    fn append(&mut self, node: Node, line: usize) {
        let parent = self.stack.iter_mut().rev().find_map(|open| open.element.as_mut());
        match (parent, node) {
            (Some(parent), Node::Text(text)) => match parent.children.last_mut() {
                Some(Node::Text(last)) => last.push_str(&text),
                _ => parent.children.push(Node::Text(text)),
            },
            (Some(parent), node) => parent.children.push(node),
            (None, Node::Text(text)) if text.trim().is_empty() => {}
            (None, node @ Node::Text(_)) => {
                let node = Node::Element(Element { children: vec![node], ..Element::new("p") });
                self.blocks.push(Block { line, node });
            }
            (None, node) => self.blocks.push(Block { line, node }),
        }
    }
}

/// Returns the host of a link if its text or its address could be taken for another address.
fn misleading_host(link: &Element) -> Option<String> {
    let url = Url::parse(link.href.as_deref()?).ok()?;
    let host = match url.scheme() {
        // The address of a mail has no host in the sense of a URL.
        "mailto" => url.path().to_owned(),
        _ => url.host_str()?.to_owned(),
    };
    let mut text = String::new();
    add_text(&link.children, &mut text);
    let has_user = !url.username().is_empty() || url.password().is_some();
    // A name with other letters than a to z can look exactly like another name.
    let has_other_letters = host.split('.').any(|label| label.starts_with("xn--"));
    (has_user || has_other_letters || names_another_host(&text, &host)).then_some(host)
}

fn add_text(nodes: &[Node], text: &mut String) {
    for node in nodes {
        match node {
            Node::Text(piece) => text.push_str(piece),
            Node::Element(element) => add_text(&element.children, text),
        }
    }
}

/// Returns whether a text contains something that looks like an address, and that is not this host. A text that is only
/// suspected of it, such as a file name, counts too, because the host beside a link does no harm.
fn names_another_host(text: &str, host: &str) -> bool {
    // Characters that look like a dot, a slash, a colon or an at sign.
    let plain: String = text.chars().filter(|letter| !is_invisible(*letter)).map(plain_letter).collect();
    let words = plain.split(|letter: char| letter.is_whitespace() || "<>()[]{}\"'`,;|".contains(letter));
    words.filter(|word| looks_like_address(word)).any(|word| host_of(word).as_deref() != Some(host))
}

fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn plain_letter(letter: char) -> char {
    match letter {
        '\u{2024}' | '\u{3002}' | '\u{ff0e}' | '\u{ff61}' | '\u{fe52}' | '\u{b7}' | '\u{2219}' | '\u{22c5}' => '.',
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{ff0f}' => '/',
        '\u{ff1a}' | '\u{fe55}' | '\u{a789}' | '\u{2236}' => ':',
        '\u{ff20}' | '\u{fe6b}' => '@',
        other => other,
    }
}

/// Returns whether a word contains a dot between two letters or digits, a protocol, or an at sign.
fn looks_like_address(word: &str) -> bool {
    let letters: Vec<char> = word.chars().collect();
    let is_name = |letter: &char| letter.is_alphanumeric();
    let has_dot = letters.windows(3).any(|near| near[1] == '.' && is_name(&near[0]) && is_name(&near[2]));
    has_dot || word.contains("://") || word.contains('@')
}

/// Returns the host to which people would expect a word to lead.
fn host_of(word: &str) -> Option<String> {
    let word = word.trim_end_matches(['.', ':', '!', '?', '/']);
    let with_protocol = if word.contains("://") { word.to_owned() } else { format!("https://{word}") };
    let url = Url::parse(&with_protocol).ok()?;
    match url.username() {
        "" => url.host_str().map(str::to_owned),
        // A mail address.
        user => Some(format!("{user}@{}", url.host_str()?)),
    }
}

/// Puts the first row of a table into its head, and the others into its body.
fn group_rows(table: &mut Element) {
    let mut rows = std::mem::take(&mut table.children).into_iter();
    let head = Element { children: rows.next().into_iter().collect(), ..Element::new("thead") };
    let body = Element { children: rows.collect(), ..Element::new("tbody") };
    table.children = vec![Node::Element(head), Node::Element(body)];
}

fn heading(level: HeadingLevel) -> &'static str {
    match level {
        HeadingLevel::H1 => "h1",
        HeadingLevel::H2 => "h2",
        HeadingLevel::H3 => "h3",
        HeadingLevel::H4 => "h4",
        HeadingLevel::H5 => "h5",
        HeadingLevel::H6 => "h6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    fn rendered(text: &str) -> Value {
        serde_json::to_value(markdown(text)).unwrap()
    }

    /// I3: blocks know the line in which they begin, so that a page renders only the end of a growing text again.
    #[test]
    fn i3_blocks_begin_at_lines() {
        let blocks = rendered("# Title\n\nOne *two*\nthree\n\n- [x] a\n- b\n\n```rust\nfn main() {}\n```\n");
        let lines: Vec<u64> = blocks.as_array().unwrap().iter().map(|block| block["line"].as_u64().unwrap()).collect();
        assert_eq!(lines, [0, 2, 5, 8]);
        assert_eq!(blocks[0]["node"], json!({"tag": "h1", "children": ["Title"]}));
        let emphasis = json!({"tag": "em", "children": ["two"]});
        assert_eq!(blocks[1]["node"], json!({"tag": "p", "children": ["One ", emphasis, "\nthree"]}));
        assert_eq!(blocks[2]["node"]["children"][0], json!({"tag": "li", "children": ["a"], "checked": true}));
        assert_eq!((&blocks[3]["node"]["tag"], &blocks[3]["node"]["language"]), (&json!("code_block"), &json!("rust")));
        assert_eq!(blocks[3]["node"]["tokens"][0], json!(["keyword", "fn "]));
    }

    /// Row 26: a short text that would become many elements is not formatted, and an answer has a budget for all its texts.
    #[test]
    fn row_26_a_short_text_does_not_become_many_elements() {
        let table = format!("{}\n{}\n{}", "|a".repeat(512), "|-".repeat(512), "a|\n".repeat(600));
        let started = Instant::now();
        let blocks = markdown(&table);
        assert!(started.elapsed() < Duration::from_secs(5));
        let shown = serde_json::to_value(&blocks).unwrap();
        assert_eq!((blocks.len(), &shown[0]["node"]["tag"]), (1, &json!("code_block")), "{shown}");
        assert_eq!(shown[0]["node"]["tokens"][0][1], json!(table));
        let mut budget = MAX_EVENTS + 2;
        let paragraph = "a *b*";
        assert_eq!(markdown_within(&table, &mut budget).len(), 1);
        assert_eq!(budget, 2, "a text that is too long has used up its part");
        let tag = |blocks: Vec<Block>| serde_json::to_value(&blocks).unwrap()[0]["node"]["tag"].clone();
        assert_eq!(tag(markdown_within(paragraph, &mut budget)), json!("code_block"));
        assert_eq!(tag(markdown(paragraph)), json!("p"));
    }

    /// I3: the first row of a table is its head, and columns keep their alignment.
    #[test]
    fn i3_tables_have_a_head_and_alignments() {
        let table = rendered("| a | b |\n|:-:|--:|\n| 1 | 2 |\n")[0]["node"].clone();
        let head = &table["children"][0]["children"][0]["children"];
        let body = &table["children"][1]["children"][0]["children"];
        assert_eq!(head[0], json!({"tag": "th", "children": ["a"], "align": "center"}));
        assert_eq!(body[1], json!({"tag": "td", "children": ["2"], "align": "end"}));
    }

    /// Row 24: HTML stays text, pictures are not loaded, and only links to the web and to mail addresses are links.
    #[test]
    fn row_24_markup_and_scripts_stay_text() {
        let text = "<script>alert(1)</script>\n\na <img src=x onerror=alert(1)> b\n\n[x](javascript:alert(1)) [y](https://a.example) \
                    [z](data:text/html,a) [w](/etc/passwd)\n\n![p](https://evil.example/a.png)\n";
        let blocks = rendered(text);
        let mut tags = std::collections::BTreeSet::new();
        let mut links = Vec::new();
        let mut open = vec![&blocks];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => {
                    tags.extend(fields.get("tag").and_then(Value::as_str));
                    links.extend(fields.get("href").and_then(Value::as_str));
                    open.extend(fields.values());
                }
                _ => {}
            }
        }
        links.sort_unstable();
        assert_eq!(tags.into_iter().collect::<Vec<_>>(), ["a", "p"]);
        assert_eq!(links, ["https://a.example/", "https://evil.example/a.png"]);
        let shown = blocks.to_string();
        assert!(shown.contains("<script>alert(1)</script>") && shown.contains("(javascript:alert(1))"), "{shown}");
    }

    /// Row 24: the host is shown beside a link whose text could be taken for another address, however it is written, and not
    /// beside other links.
    #[test]
    fn row_24_the_host_of_a_misleading_link_is_shown() {
        let host = |text: &str| {
            let blocks = rendered(text);
            let link =
                blocks[0]["node"]["children"].as_array().and_then(|nodes| nodes.iter().find(|node| node["tag"] == "a"));
            link.unwrap_or_else(|| panic!("{text}: {blocks}"))["host"].clone()
        };
        for text in [
            "[https://bank.example](https://evil.example/x)",
            "[bank.example](https://evil.example)",
            "[Go to **bank**.example now](https://evil.example)",
            "[https://bank.example/evil.example](https://evil.example)",
            "[https://evil.example@bank.example](https://evil.example)",
            "[bank\u{2024}example](https://evil.example)",
            "[bank\u{200b}.example](https://evil.example)",
            "[https:\u{ff0f}\u{ff0f}bank\u{3002}example](https://evil.example)",
            "[pay@bank.example](https://evil.example)",
            "[see evil.example or bank.example](https://evil.example)",
            "[safe](https://bank.example@evil.example/)",
            "[https://bank.example@evil.example](https://bank.example@evil.example)",
            "<https://bank.example@evil.example>",
            "![bank.example](https://evil.example/a.png)",
        ] {
            assert_eq!(host(text), json!("evil.example"), "{text}");
        }
        assert_eq!(host("[b\u{430}nk](https://b\u{430}nk.example)"), json!("xn--bnk-6cd.example"));
        assert_eq!(host("[ann@a.example](mailto:eve@b.example)"), json!("eve@b.example"));
        for text in [
            "[the documents](https://docs.example/a.html)",
            "<https://docs.example/a.html>",
            "[docs.example](https://docs.example/)",
            "[HTTPS://DOCS.example/other.](https://docs.example/a)",
            "[write to us](mailto:ann@a.example)",
            "<ann@a.example>",
        ] {
            assert_eq!(host(text), Value::Null, "{text}");
        }
    }

    /// Row 26: deep and long texts are rendered with bounded depth and in bounded time.
    #[test]
    fn row_26_deep_and_long_texts_are_bounded() {
        for text in
            [">".repeat(5_000), "- ".repeat(5_000), "*_".repeat(20_000), "[".repeat(50_000), "`".repeat(50_000) + "a"]
        {
            let started = Instant::now();
            let blocks = rendered(&text);
            let mut depth = (0, 0);
            for letter in blocks.to_string().chars() {
                match letter {
                    '{' => depth = (depth.0 + 1, depth.1.max(depth.0 + 1)),
                    '}' => depth.0 -= 1,
                    _ => {}
                }
            }
            assert!(depth.1 <= MAX_DEPTH + 4, "{} {}", depth.1, &text[..4]);
            assert!(started.elapsed() < Duration::from_secs(20), "{}", &text[..4]);
        }
        let long = "a".repeat(MAX_BYTES + 1);
        assert_eq!(rendered(&long)[0]["node"]["tag"], "code_block");
    }
}
