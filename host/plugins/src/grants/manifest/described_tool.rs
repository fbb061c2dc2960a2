//! The tables `[[tools]]` of a manifest, which describe the tools that the host makes from exported functions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Spanned;

/// The description of a tool that the host makes from an exported function (P3). Keys that are absent keep what the host
/// derives from the function's type. A manifest can add traits that make the host more careful, but it cannot remove
/// traits, and it cannot claim that a tool is read-only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescribedTool {
    /// The exported function: its interface and its name, such as `docs:words/store@0.1.0 find`. For a function that
    /// belongs to no interface, only its name.
    pub export: String,
    /// Name of the tool: 1 to 128 letters, digits, `_`, `-` or `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Title that is shown to users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for the model, at most 2 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments. The host still converts each argument to the type of the function's parameter, so
    /// a schema can only exclude arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// A call may delete or overwrite something.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub destructive: bool,
    /// A call never runs at the same time as another call of its batch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sequential: bool,
    /// The tool accesses systems outside the host's control, such as the web.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open_world: bool,
    /// A call needs the approval of a user before it runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
}

/// A table `[[tools]]` as it is written in TOML. The schema is a string that contains JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolToml {
    export: String,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Spanned<String>>,
    #[serde(default)]
    destructive: bool,
    #[serde(default)]
    sequential: bool,
    #[serde(default)]
    open_world: bool,
    #[serde(default)]
    needs_approval: bool,
}

impl ToolToml {
    /// Parses the schema. The error contains the byte offset of the schema and the problem.
    pub(super) fn read(self) -> Result<DescribedTool, (usize, String)> {
        let parse = |text: &Spanned<String>| {
            let problem =
                |error| (text.span().start, format!("`input_schema` of `{}` is not JSON: {error}", self.export));
            serde_json::from_str::<Value>(text.get_ref()).map_err(problem)
        };
        let input_schema = self.input_schema.as_ref().map(parse).transpose()?;
        Ok(DescribedTool {
            export: self.export,
            name: self.name,
            title: self.title,
            description: self.description,
            input_schema,
            destructive: self.destructive,
            sequential: self.sequential,
            open_world: self.open_world,
            needs_approval: self.needs_approval,
        })
    }
}
