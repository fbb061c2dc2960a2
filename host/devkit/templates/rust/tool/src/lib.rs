//! A plugin with one tool, `my-plugin.count`.

use agent_host_sdk::prelude::*;

/// Arguments of `my-plugin.count`. The JSON Schema for the model is generated from this type. The comments of the
/// fields become the descriptions in the schema.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text to look in.
    text: String,
    /// The word to count; upper and lower case are the same.
    word: String,
}

/// Result of `my-plugin.count`. Its JSON Schema is also generated.
#[derive(Serialize, JsonSchema)]
struct Counted {
    /// How often the word occurs.
    times: u32,
}

/// The type that implements the tool.
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
    // The schema cannot express that the argument must be a single word, so this function checks the argument. The
    // error contains the name of the argument.
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

    fn call(arguments: Value) -> Result<Value, ToolError> {
        let outcome = Plugin::tools().call("my-plugin.count", arguments)?;
        Ok(outcome.value().expect("a structured result"))
    }

    #[test]
    fn counts_words_in_any_case() {
        let arguments = json!({ "text": "One two, and ONE more.", "word": "one" });
        assert_eq!(call(arguments), Ok(json!({ "times": 2 })));
    }

    #[test]
    fn rejects_an_argument_that_is_not_one_word() {
        let error = call(json!({ "text": "", "word": "two words" }));
        assert_eq!(error, Err(ToolError::invalid("/word", "must be one word of letters and digits")));
    }
}
