//! A tool with typed arguments: the SDK generates the schema for the model from a type.

use agent_host_sdk::prelude::*;

/// Arguments of `shorten.text`. The comments of the fields become the descriptions that the model reads.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shorten {
    /// The text to shorten.
    text: String,
    /// The largest number of characters of the result.
    #[serde(default = "default_length")]
    #[schemars(range(min = 1, max = 1000))]
    length: usize,
    /// Where the text may be cut: after a complete word, or after any character.
    #[serde(default)]
    ending: Ending,
}

fn default_length() -> usize {
    80
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Ending {
    #[default]
    Word,
    Character,
}

/// The type that implements the tool.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new().tool(
            Tool::new("shorten.text", "Shortens a text to a number of characters. Use it for titles and previews.")
                .read_only()
                .run(|arguments: Shorten, _: &Call| Ok(shortened(&arguments))),
        )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn shortened(Shorten { text, length, ending }: &Shorten) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= *length {
        return text.clone();
    }
    // The last character of the result is the ellipsis.
    let end = length - 1;
    let mut kept = &characters[..end];
    if *ending == Ending::Word
        && characters[end] != ' '
        && let Some(space) = kept.iter().rposition(|character| *character == ' ')
    {
        kept = &kept[..space];
    }
    format!("{}…", kept.iter().collect::<String>().trim_end_matches(' '))
}
