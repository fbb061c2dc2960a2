//! One tool: `my-plugin.count`.

use agent_host_sdk::prelude::*;

/// Arguments of `my-plugin.count`. What is said of the fields is what the model reads: the schema is made of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text to look in.
    text: String,
    /// The word to count, upper and lower case alike.
    word: String,
}

/// Its result, which has a schema, too.
#[derive(Serialize, JsonSchema)]
struct Counted {
    /// How often the word occurs.
    times: u32,
}

/// The plugin.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new().tool(
            Tool::new("my-plugin.count", "Counts how often a word occurs in a text. Use it instead of counting yourself.")
                .read_only()
                .output::<Counted>()
                .run(|arguments: Count, _: &Call| count(&arguments)),
        )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn count(arguments: &Count) -> Result<Done, ToolError> {
    let word = arguments.word.to_lowercase();
    // What the schema cannot say, the model is told with the place.
    if word.is_empty() || !word.chars().all(char::is_alphanumeric) {
        return Err(ToolError::invalid("/word", "must be one word of letters and digits"));
    }
    let text = arguments.text.to_lowercase();
    let words = text.split(|character: char| !character.is_alphanumeric());
    let times = words.filter(|other| *other == word).count();
    Done::json(&Counted { times: u32::try_from(times).unwrap_or(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(arguments: Value) -> Result<Value, ToolError> {
        let outcome = Plugin::tools().call("my-plugin.count", arguments)?;
        Ok(outcome.value().expect("a structured result"))
    }

    #[test]
    fn words_are_counted_in_any_case() {
        let arguments = json!({ "text": "One two, and ONE more.", "word": "one" });
        assert_eq!(called(arguments), Ok(json!({ "times": 2 })));
    }

    #[test]
    fn what_is_no_word_is_refused_with_its_place() {
        let error = called(json!({ "text": "", "word": "two words" }));
        assert_eq!(error, Err(ToolError::invalid("/word", "must be one word of letters and digits")));
    }
}
