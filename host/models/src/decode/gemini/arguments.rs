//! Assembles the arguments of a call that arrive in pieces. Each piece contains a JSON
//! path, which says where the piece's value belongs.

use super::super::StreamError;
use serde_json::{Map, Value, json};

/// Maximum number of steps in a JSON path.
const MAX_DEPTH: usize = 64;

/// One step of a JSON path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

/// Adds a piece to the arguments: `{"jsonPath": "$.a.b[0]", "stringValue": "…"}`, or a piece with `numberValue`,
/// `boolValue` or `nullValue`. A string is appended to the string that is already there.
pub(super) fn add_piece(arguments: &mut Value, piece: &Value) -> Result<(), StreamError> {
    let path = piece["jsonPath"].as_str().unwrap_or_default();
    let invalid = |problem: &str| StreamError::invalid(format!("the path of an argument {problem}"), path);
    let steps = parse_path(path).ok_or_else(|| invalid("is not valid"))?;
    if steps.len() > MAX_DEPTH {
        return Err(invalid("is too long"));
    }
    let place = steps.iter().try_fold(arguments, place).ok_or_else(|| invalid("contradicts earlier pieces"))?;
    if let Some(text) = piece["stringValue"].as_str() {
        match place {
            Value::String(earlier) => earlier.push_str(text),
            place => *place = json!(text),
        }
        return Ok(());
    }
    let number = piece.get("numberValue").filter(|value| value.is_number());
    let value = number.or_else(|| piece.get("boolValue").filter(|value| value.is_boolean()));
    *place = value.cloned().unwrap_or_default();
    Ok(())
}

/// Returns the place that `step` names inside `value`, and creates it if necessary. A list grows by one item at a time,
/// so that a short path cannot allocate much memory. Returns `None` if `value` has a type that `step` cannot enter, or
/// if the position of the item is greater than the length of the list.
fn place<'v>(value: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match step {
        Step::Field(name) => {
            if value.is_null() {
                *value = Value::Object(Map::new());
            }
            Some(value.as_object_mut()?.entry(name).or_insert(Value::Null))
        }
        Step::Item(position) => {
            if value.is_null() {
                *value = Value::Array(Vec::new());
            }
            let items = value.as_array_mut().filter(|items| *position <= items.len())?;
            if items.len() == *position {
                items.push(Value::Null);
            }
            items.get_mut(*position)
        }
    }
}

/// Parses a path such as `$.location`, `$.stops[0].name` or `$['first name']`.
fn parse_path(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(field) = rest.strip_prefix('.') {
            let end = field.find(['.', '[']).unwrap_or(field.len());
            steps.push(Step::Field(field[..end].to_owned()).non_empty()?);
            rest = &field[end..];
            continue;
        }
        let bracket = rest.strip_prefix('[')?;
        match bracket.chars().next()? {
            quote @ ('\'' | '"') => {
                let (name, after) = quoted(&bracket[1..], quote)?;
                steps.push(Step::Field(name));
                rest = after.strip_prefix(']')?;
            }
            _ => {
                let (position, after) = bracket.split_once(']')?;
                steps.push(Step::Item(position.trim().parse().ok()?));
                rest = after;
            }
        }
    }
    Some(steps)
}

/// Reads a quoted name up to its closing quote. Returns the name and the text after the quote.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            end if end == quote => return Some((name, &text[position + end.len_utf8()..])),
            other => name.push(other),
        }
    }
    None
}

impl Step {
    fn non_empty(self) -> Option<Self> {
        if matches!(&self, Self::Field(name) if name.is_empty()) { None } else { Some(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(pieces: &[Value]) -> Result<Value, StreamError> {
        let mut arguments = json!({});
        pieces.iter().try_for_each(|piece| add_piece(&mut arguments, piece))?;
        Ok(arguments)
    }

    /// M1: pieces of arguments are put at the places that their paths name.
    #[test]
    fn m1_pieces_of_arguments_are_assembled() {
        let pieces = [
            json!({"jsonPath": "$.city", "stringValue": "San ", "willContinue": true}),
            json!({"jsonPath": "$.city", "stringValue": "Francisco", "willContinue": true}),
            json!({"jsonPath": "$.city", "stringValue": ""}),
            json!({"jsonPath": "$.days", "numberValue": 3}),
            json!({"jsonPath": "$['a.b \\' c'].ok", "boolValue": true}),
            json!({"jsonPath": "$.stops[0].name", "stringValue": "A"}),
            json!({"jsonPath": "$.stops[1].name", "stringValue": "B"}),
            json!({"jsonPath": "$.nothing", "nullValue": "NULL_VALUE"}),
        ];
        let expected = json!({
            "city": "San Francisco", "days": 3, "a.b ' c": {"ok": true},
            "stops": [{"name": "A"}, {"name": "B"}], "nothing": null,
        });
        assert_eq!(assemble(&pieces), Ok(expected));
    }

    /// Row 26: no path makes the host panic or allocate much memory.
    #[test]
    fn row_26_invalid_paths_are_errors() {
        let deep = format!("${}", ".a".repeat(MAX_DEPTH + 1));
        let paths =
            ["", "a", "$.", "$..a", "$[", "$[x]", "$['a", "$['a'", "$[-1]", "$.a[1]", "$.a[2000000]", "$[0]", &deep];
        for path in paths {
            assert!(assemble(&[json!({"jsonPath": path, "stringValue": "x"})]).is_err(), "{path}");
        }
        assert!(assemble(&[json!({"jsonPath": "$.a", "numberValue": 1}), json!({"jsonPath": "$.a.b"})]).is_err());
    }
}
