//! Splits a `SKILL.md` into front matter and instructions, and reads the name and the description.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Maximum length of a name, in characters. All characters of a valid name are ASCII.
const MAX_NAME: usize = 64;
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 1_024;

/// The front matter of a skill.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) name: String,
    /// The description in one line, without invisible characters.
    pub(crate) description: String,
    /// Problems in spite of which the skill can be used.
    pub(crate) warnings: Vec<String>,
}

/// Splits the text of a `SKILL.md`. Returns the front matter without the lines `---`, and the instructions. The error
/// says what is missing.
pub(crate) fn split(text: &str) -> Result<(&str, &str), &'static str> {
    let text = text.trim_start_matches('\u{feff}');
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != "---" {
        return Err("it does not begin with front matter: the first line must be `---`");
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    Err("the front matter has no end: a line `---` is missing")
}

/// Reads the front matter. The error says what is wrong.
pub(crate) fn parse(front_matter: &str) -> Result<FrontMatter, String> {
    let mut fields = Fields::default();
    fields.read(front_matter)?;
    let Some(name) = fields.name.filter(|name| !name.is_empty()) else {
        return Err("the front matter has no `name`".to_owned());
    };
    if !is_valid_name(&name) {
        return Err(format!(
            "the name `{}` is not valid: a name has 1 to {MAX_NAME} lower-case letters, digits and single hyphens \
             between them",
            one_line(&name, MAX_NAME)
        ));
    }
    let description = fields.description.unwrap_or_default();
    let mut warnings = Vec::new();
    if description.chars().count() > MAX_DESCRIPTION {
        warnings.push(format!("the description has more than {MAX_DESCRIPTION} characters and was cut"));
    }
    let description = one_line(&description, MAX_DESCRIPTION);
    if description.is_empty() {
        return Err("the front matter has no `description`".to_owned());
    }
    Ok(FrontMatter { name, description, warnings })
}

/// The values of the keys that are used. Other keys are allowed and ignored.
#[derive(Default)]
struct Fields {
    name: Option<String>,
    description: Option<String>,
}

impl Fields {
    /// Reads the keys at the top level. Only the events of the parser are used, and aliases are not resolved, so that
    /// the time is limited by the length of the text.
    fn read(&mut self, text: &str) -> Result<(), String> {
        // The number of collections around the current event. The keys are in the collection of depth 1.
        let mut depth = 0_usize;
        let mut key: Option<String> = None;
        for event in Parser::new_from_str(text) {
            let (event, _) = event.map_err(|error| {
                // The front matter begins in the second line of the file.
                let line = error.marker().line() + 1;
                format!("line {line} is not valid YAML: {} (put a value that contains `: ` in quotes)", error.info())
            })?;
            match event {
                Event::MappingStart(..) if depth == 0 => depth = 1,
                Event::SequenceStart(..) | Event::Scalar(..) | Event::Alias(_) if depth == 0 => {
                    return Err("the front matter is not a mapping of keys to values".to_owned());
                }
                Event::MappingStart(..) | Event::SequenceStart(..) => {
                    refuse_unless_text(depth, key.as_deref())?;
                    depth += 1;
                }
                Event::MappingEnd | Event::SequenceEnd => {
                    depth -= 1;
                    if depth == 1 {
                        key = after_other(key);
                    }
                }
                Event::Alias(_) if depth == 1 => {
                    refuse_unless_text(depth, key.as_deref())?;
                    key = after_other(key);
                }
                Event::Scalar(value, style, ..) if depth == 1 => match key.take() {
                    None => key = Some(value.into_owned()),
                    Some(key) => self.set(&key, &value, style)?,
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str, style: ScalarStyle) -> Result<(), String> {
        let field = match key {
            "name" => &mut self.name,
            "description" => &mut self.description,
            _ => return Ok(()),
        };
        if field.is_some() {
            return Err(format!("`{key}` occurs twice"));
        }
        let is_null = style == ScalarStyle::Plain && matches!(value, "" | "~" | "null" | "Null" | "NULL");
        *field = Some(if is_null { String::new() } else { value.trim().to_owned() });
        Ok(())
    }
}

/// Refuses a collection or an alias as the value of a key that needs a text.
fn refuse_unless_text(depth: usize, key: Option<&str>) -> Result<(), String> {
    match key {
        Some(key @ ("name" | "description")) if depth == 1 => Err(format!("`{key}` is not a text")),
        _ => Ok(()),
    }
}

/// Returns the key after a collection or an alias at the top level. If there was no key before, the collection or alias
/// is itself a key, which no used key is.
fn after_other(key: Option<String>) -> Option<String> {
    if key.is_some() { None } else { Some(String::new()) }
}

fn is_valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
}

/// Returns at most `limit` characters of the text in one line. Control characters and characters that are invisible or
/// change the direction of the text are removed, because a reader of the file would not see them.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let visible = |character: &char| {
        !matches!(*character,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
            && (character.is_whitespace() || !character.is_control())
    };
    let cleaned = text.chars().filter(visible).collect::<String>();
    let joined = cleaned.split_whitespace().collect::<Vec<_>>().join(" ");
    match joined.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", joined[..end].trim_end()),
        None => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_front_matter_and_instructions() {
        assert_eq!(split("---\nname: a\n---\n# A\n"), Ok(("name: a\n", "# A\n")));
        assert_eq!(split("\u{feff}--- \r\nname: a\r\n---\r\nbody"), Ok(("name: a\r\n", "body")));
        assert_eq!(split("---\n---"), Ok(("", "")));
        for (text, problem) in [("", "does not begin"), ("# A\n---\n", "does not begin"), ("---\nname: a\n", "no end")]
        {
            assert!(split(text).is_err_and(|error| error.contains(problem)), "{text:?}");
        }
    }

    #[test]
    fn reads_the_forms_of_yaml_texts() {
        let forms = [
            "name: pdf-forms\ndescription: Fills forms.",
            "'name': \"pdf-forms\"\ndescription: 'Fills forms.'",
            "# a comment\nlicense: MIT\nname: pdf-forms # the folder\ndescription: >\n  Fills\n  forms.\n",
            "description: |\n  Fills\n  forms.\nname: pdf-forms\nmetadata:\n  name: other\n  tags: [a, {b: c}]\n",
            "{name: pdf-forms, description: Fills forms., allowed-tools: [Read]}",
            "? [1, 2]\n: name\nx: &a [1]\ny: *a\n*a : z\nname: pdf-forms\ndescription: \"Fills\\u200b\\n forms.\\u202e\"",
        ];
        for form in forms {
            let parsed = parse(form).expect("the front matter is valid");
            assert_eq!((parsed.name.as_str(), parsed.description.as_str()), ("pdf-forms", "Fills forms."), "{form}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, problem) in [
            ("", "no `name`"),
            ("description: d", "no `name`"),
            ("name:\ndescription: d", "no `name`"),
            ("name: a", "no `description`"),
            ("name: a\ndescription: ~", "no `description`"),
            ("name: a\ndescription: \"\\u200b\"", "no `description`"),
            ("name: [a]\ndescription: d", "`name` is not a text"),
            ("name: a\ndescription: {b: c}", "`description` is not a text"),
            ("x: &x a\nname: *x\ndescription: d", "`name` is not a text"),
            ("name: a\nname: b\ndescription: d", "`name` occurs twice"),
            ("- name: a", "not a mapping"),
            ("just text", "not a mapping"),
            ("name: a\ndescription: Use when: asked", "line 3 is not valid YAML"),
            ("name: \"a", "is not valid YAML"),
            ("name: PDF\ndescription: d", "`PDF` is not valid"),
            ("name: -a\ndescription: d", "`-a` is not valid"),
            ("name: a--b\ndescription: d", "`a--b` is not valid"),
            ("name: ../a\ndescription: d", "`../a` is not valid"),
            (&format!("name: {}\ndescription: d", "a".repeat(65)), "is not valid"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }

    #[test]
    fn aliases_and_nesting_take_little_time() {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (inner, outer) in "abcdefgh".chars().zip("bcdefghi".chars()) {
            let aliases = format!("*{inner}, ").repeat(9);
            text.push_str(&format!("{outer}: &{outer} [{aliases}]\n"));
        }
        text.push_str("name: a\ndescription: d\n");
        assert!(parse(&text).is_ok());
        let nested = format!("name: a\ndescription: d\nx: {}", "[".repeat(10_000));
        assert!(parse(&nested).is_err_and(|error| error.contains("not valid YAML")));
    }

    #[test]
    fn cuts_long_descriptions() {
        let parsed = parse(&format!("name: a\ndescription: {}", "ö".repeat(2_000))).expect("it is usable");
        assert_eq!(parsed.description.chars().count(), MAX_DESCRIPTION + 1);
        assert_eq!(parsed.warnings.len(), 1);
    }
}
