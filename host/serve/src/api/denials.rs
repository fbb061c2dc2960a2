//! What plugins were denied, as the API shows it.

use agent_core::plugin::Denial;
use serde_json::{Value, json};

/// Beginning of the advice of the host to add lines to the configuration.
const ADVICE: &str = "add to agent.toml:\n";
/// Beginning of the last line of the advice, if an option of the command line has the same effect.
const OPTION: &str = "or pass ";

/// Returns a denial with the `table` and the `line` of the configuration that would allow it. Both are `null` if no line of the
/// configuration would allow it.
pub(super) fn denial_json(denial: &Denial) -> Value {
    let (table, line) = configuration_of(&denial.grant).unzip();
    json!({"plugin": denial.plugin, "thing": denial.thing, "grant": denial.grant, "table": table, "line": line})
}

/// Finds the table and the lines in the advice of the host, which stored denials contain as a text.
fn configuration_of(advice: &str) -> Option<(&str, String)> {
    let (table, rest) = advice.strip_prefix(ADVICE)?.split_once('\n')?;
    let is_table = table.starts_with('[') && table.ends_with(']');
    let lines: Vec<&str> = rest.lines().take_while(|line| !line.starts_with(OPTION)).collect();
    (is_table && !lines.is_empty()).then(|| (table, lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P6, I3: the lines of the configuration are fields, so that no client reads them from a text.
    #[test]
    fn p6_denials_name_the_table_and_the_line() {
        let shown = |grant: &str| {
            let denial = Denial { plugin: "a@1".into(), thing: "reading files".into(), grant: grant.into() };
            let shown = denial_json(&denial);
            assert_eq!((&shown["plugin"], &shown["grant"]), (&json!("a@1"), &json!(grant)));
            (shown["table"].clone(), shown["line"].clone())
        };
        let advice = "add to agent.toml:\n[plugins.a.grants]\nread = [\".\"]\nor pass --grant a:read=.";
        assert_eq!(shown(advice), (json!("[plugins.a.grants]"), json!("read = [\".\"]")));
        let service = "add to agent.toml:\n[services.NAME]\ntype = \"a.b\"\ndomain = \"…\"";
        assert_eq!(shown(service), (json!("[services.NAME]"), json!("type = \"a.b\"\ndomain = \"…\"")));
        for other in
            ["call the tool again", "add to agent.toml:\n", "add to agent.toml:\nno table\nx = 1", "", "[a]\nb = 1"]
        {
            assert_eq!(shown(other), (Value::Null, Value::Null), "{other}");
        }
    }
}
