//! Finds the paths in a typed text that are marked with `@`.

/// Maximum number of paths that are read from one text.
pub(super) const MAX_MENTIONS: usize = 20;

/// Characters that may directly precede the `@` of a path. Any other character, such as a letter or a backslash, means
/// that the `@` belongs to a word, such as an email address.
const OPENING: [char; 3] = ['(', '[', '{'];

/// A path in a text, as the user typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    /// The path, without its quotation marks and without the backslashes before spaces.
    pub(super) path: String,
    /// Whether the path is in quotation marks, so that its end is certain.
    pub(super) is_quoted: bool,
}

/// Returns the paths that a text names: `@path`, `@"path with spaces"` or `@path\ with\ spaces`.
pub(super) fn mentions(text: &str) -> Vec<Mention> {
    let mut found: Vec<Mention> = Vec::new();
    let mut at_edge = true;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        if character == '@' && at_edge && found.len() < MAX_MENTIONS {
            let (mention, length) = read(rest);
            found.extend(mention.filter(|mention| !found.contains(mention)));
            rest = &rest[length..];
        }
        at_edge = character.is_whitespace() || OPENING.contains(&character);
    }
    found
}

/// Reads the path after an `@`, and returns its length in the text.
fn read(rest: &str) -> (Option<Mention>, usize) {
    if let Some(quoted) = rest.strip_prefix('"') {
        let line = quoted.lines().next().unwrap_or_default();
        return match line.find('"').filter(|end| *end > 0) {
            Some(end) => (Some(Mention { path: line[..end].to_owned(), is_quoted: true }), end + 2),
            None => (None, 0),
        };
    }
    let (mut path, mut length, mut characters) = (String::new(), 0, rest.chars().peekable());
    while let Some(character) = characters.next_if(|character| !character.is_whitespace()) {
        length += character.len_utf8();
        match characters.next_if(|next| character == '\\' && *next == ' ') {
            Some(space) => {
                length += space.len_utf8();
                path.push(space);
            }
            None => path.push(character),
        }
    }
    // `@@` begins a section of a diff.
    let is_path = !path.is_empty() && !path.starts_with('@');
    (is_path.then_some(Mention { path, is_quoted: false }), length)
}

/// Returns the position of the `@` of the path that is being typed at the end of a line, and the path so far. Returns
/// `None` if no path is being typed.
pub(crate) fn open_mention(line: &str) -> Option<(usize, String)> {
    let mut begin = None;
    let mut at_edge = true;
    for (position, character) in line.char_indices() {
        if character == '@' && at_edge {
            begin = Some(position);
        }
        at_edge = character.is_whitespace() || OPENING.contains(&character);
    }
    let begin = begin?;
    let typed = &line[begin + 1..];
    if typed.starts_with('@') {
        return None;
    }
    if let Some(quoted) = typed.strip_prefix('"') {
        return (!quoted.contains('"')).then(|| (begin, quoted.to_owned()));
    }
    let (mention, length) = read(typed);
    let path = mention.map(|mention| mention.path).unwrap_or_default();
    (length == typed.len()).then_some((begin, path))
}

/// Writes a path as it is typed after an `@`: in quotation marks if it contains white space. The path of a folder, which
/// ends with `/`, gets no closing quotation mark, so that the user can continue to type.
pub(crate) fn written(path: &str) -> String {
    match (path.contains(char::is_whitespace), path.ends_with('/')) {
        (false, _) => format!("@{path}"),
        (true, true) => format!("@\"{path}"),
        (true, false) => format!("@\"{path}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        mentions(text).into_iter().map(|mention| mention.path).collect()
    }

    #[test]
    fn i1_mentions_are_paths_after_an_at_sign_at_the_edge_of_a_word() {
        assert_eq!(paths("Compare @a.txt with (@src/b.rs) and @~/c"), ["a.txt", "src/b.rs)", "~/c"]);
        assert_eq!(paths("@\"my file.txt\" @my\\ other.txt\n@last"), ["my file.txt", "my other.txt", "last"]);
        assert_eq!(paths("@one @one"), ["one"]);
        for plain in ["ann@example.com", "a \\@b", "@", "@ x", "@@ -1,2 +1,3 @@", "x=@y", "@\"open", "", "@\"\" x"] {
            assert!(paths(plain).is_empty(), "{plain}: {:?}", paths(plain));
        }
        let many: String = (0..100).map(|number| format!("@{number} ")).collect();
        assert_eq!(paths(&many).len(), MAX_MENTIONS);
    }

    #[test]
    fn open_mention_is_the_path_that_is_being_typed() {
        let typed = |line: &str| open_mention(line).map(|(begin, path)| format!("{begin} {path}"));
        assert_eq!(typed("see @src/ma").as_deref(), Some("4 src/ma"));
        assert_eq!(typed("@").as_deref(), Some("0 "));
        assert_eq!(typed("see @\"my fi").as_deref(), Some("4 my fi"));
        assert_eq!(typed("@my\\ fi").as_deref(), Some("0 my fi"));
        for other in ["see @src now", "ann@ex", "@\"my file\"", "words", "@@"] {
            assert_eq!(typed(other), None, "{other}");
        }
    }

    #[test]
    fn written_paths_are_read_again() {
        for path in ["src/main.rs", "my file.txt"] {
            assert_eq!(paths(&written(path)), [path]);
        }
        assert_eq!(open_mention(&written("my folder/")), Some((0, "my folder/".to_owned())));
    }
}
