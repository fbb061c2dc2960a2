//! Checks a document against the list of keys: reports unknown keys, keys in the wrong table, and invalid values.

use super::agents;
use super::document::{Entry, Table, TomlValue};
use super::keys::{Key, MCP, MCP_NEEDS, MCP_TAKEN, SECTIONS, Section, Value};
use super::nearest::nearest;
use super::secrets;
use super::text_format::{TextFormat, is_secret};
use agent_models::known_provider;
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_STACK_KIB;
use agent_runtime::builtins::name;
use std::collections::BTreeSet;

/// Built-in providers, which cannot have a table `[providers.NAME]`.
pub const BUILT_IN: [&str; 3] = ["offline", "scripted", "replay"];

/// Names of the host's built-in tools.
pub(super) const BUILT_IN_TOOLS: [&str; 4] =
    [name::LIST_DIRECTORY, name::READ_FILE, name::READ_RESULT, name::MEMORY_SEARCH];

/// Whether a name in a table is a key, a table or unknown, according to the list of keys.
enum NameKind {
    Value(&'static Key),
    Table(Vec<&'static str>),
    Unknown,
}

/// Reports every problem that can be found by comparing the file with the list of keys.
pub(super) fn check(root: &Table<'_>) {
    check_table(root, &[]);
    check_eviction(root);
    check_stacks(root);
    check_media_policies(root);
    let ends_with_tool = root.get("finish").and_then(|value| value.text()).is_some_and(|word| word == "tool");
    if let Some(value) = root.get("planner").filter(|_| ends_with_tool) {
        value.problem(
            "cannot be combined with `finish = \"tool\"`, because a plan ends with a text answer",
            "remove `planner`, or set `finish = \"text\"`",
        );
    }
}

/// Rejects media policies for unknown providers, because such media policies would never be applied.
fn check_media_policies(root: &Table<'_>) {
    let Some(policies) = root.table("media_policies") else { return };
    let configured: Vec<String> =
        root.table("providers").iter().flat_map(Table::entries).map(|entry| entry.name).collect();
    let known = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).chain(BUILT_IN);
    let known: Vec<&str> = known.chain(configured.iter().map(String::as_str)).collect();
    let names: BTreeSet<&str> = known.iter().copied().collect();
    for entry in policies.entries().filter(|entry| !names.contains(entry.name.as_str())) {
        policies.problem_described(entry.span.clone(), || {
            let message = format!("`{}`: there is no provider `{}`", policies.key_of(&entry.name), entry.name);
            // A suggestion is compared with each name, and the list of names is in each message.
            let few = &known[..known.len().min(MAX_LISTED)];
            let suggestion = nearest(&entry.name, few.iter().copied());
            let suggestion = suggestion.map(|suggestion| format!("did you mean `{suggestion}`? ")).unwrap_or_default();
            (message, format!("{suggestion}known providers: {}", few.join(", ")))
        });
    }
}

/// Rejects values of `evict_at`, `evict_to` and the other eviction keys that contradict each other.
fn check_eviction(root: &Table<'_>) {
    let defaults = agent_core::run::LoopConfig::default();
    let number = |key, default| root.get(key).map_or(Some(default), |value| value.number());
    if let (Some(at), Some(to)) = (number("evict_at", defaults.evict_at), number("evict_to", defaults.evict_to))
        && to >= at
        && let Some((value, relation, limit)) = root
            .get("evict_to")
            .map(|value| (value, "below", format!("{at}, the value of `evict_at`")))
            .or_else(|| root.get("evict_at").map(|value| (value, "above", format!("{to}, the value of `evict_to`"))))
    {
        value.problem(&format!("is not {relation} {limit}"), &format!("allowed: a number {relation} {limit}"));
    }
    let extracts = root.get("summary").and_then(|value| value.text()).is_some_and(|word| word == "extract");
    if let Some(value) = root.get("summary_model").filter(|_| extracts) {
        value.problem("has no effect, because `summary` is \"extract\"", "remove `summary_model` or `summary`");
    }
}

/// Rejects a guest stack that is too large. Host functions run on the same stack as the guest, and need a part of
/// this stack.
fn check_stacks(root: &Table<'_>) {
    let Some(limits) = root.table("host").and_then(|host| host.table("limits")) else { return };
    let defaults = HostLimits::default();
    let number = |key, default: usize| limits.get(key).map_or(Some(default as u64 / 1024), |value| value.number_u64());
    let guest = number("wasm_stack_kib", defaults.wasm_stack);
    let total = number("async_stack_kib", defaults.async_stack);
    if let (Some(guest), Some(total)) = (guest, total)
        && guest.saturating_add(HOST_STACK_KIB) > total
        && let Some(value) = limits.get("wasm_stack_kib").or_else(|| limits.get("async_stack_kib"))
    {
        let allowed =
            format!("`async_stack_kib` is {total}; it must be at least {HOST_STACK_KIB} more than `wasm_stack_kib`");
        value.problem("leaves too little stack for the host functions", &allowed);
    }
}

fn check_table(table: &Table<'_>, path: &[&'static str]) {
    // Only the first problems are described, so they are searched for in the order of the file.
    let mut entries: Vec<_> = table.entries().collect();
    entries.sort_by_key(|entry| entry.span.start);
    for entry in entries {
        match find_key(path, &entry.name) {
            NameKind::Value(key) => check_value(&entry.value, key.value),
            NameKind::Table(below) => check_inner(table, &entry, &below),
            NameKind::Unknown => report_unknown(table, &entry, path),
        }
    }
    if path == ["providers", "NAME", "models", "MODEL"] {
        check_prices(table);
    }
}

fn find_key(path: &[&'static str], name: &str) -> NameKind {
    if let Some(key) = keys_at(path).find(|key| key.name == name) {
        return NameKind::Value(key);
    }
    match tables_at(path).into_iter().find(|table| *table == name || is_placeholder(table)) {
        Some(table) => NameKind::Table([path, &[table]].concat()),
        None => NameKind::Unknown,
    }
}

/// Returns the keys that are allowed in the table at `path`.
fn keys_at(path: &[&'static str]) -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().filter(move |section| section.path == path).flat_map(|section| section.keys)
}

/// Returns the names of the tables that are allowed in the table at `path`.
fn tables_at(path: &[&'static str]) -> Vec<&'static str> {
    let below = SECTIONS.iter().filter_map(|section| section.path.strip_prefix(path)?.first().copied());
    let mut tables: Vec<_> = below.collect();
    tables.dedup();
    tables
}

/// Whether `step`, a component of a table's path, is a placeholder such as `NAME` for a name that the user chooses.
pub(super) fn is_placeholder(step: &str) -> bool {
    step.chars().all(|character| character.is_ascii_uppercase())
}

fn check_inner(parent: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let Some(table) = entry.value.table() else {
        return report_not_a_table(&entry.value, path);
    };
    match path {
        ["providers", "NAME"] => check_provider(parent, entry, &table),
        ["agents", "NAME"] => agents::check(parent, entry, &table),
        ["plugins", "NAME", "secrets", "SECRET"] => secrets::check(parent, entry, &table),
        [MCP, "NAME"] => check_server(parent, entry, &table),
        _ => {}
    }
    if path == ["services", "NAME"]
        && let Some(problem) = TextFormat::Tool.problem(&entry.name)
    {
        let message = format!("`{}` {problem}", parent.key_of(&entry.name));
        parent.problem(
            entry.span.clone(),
            message,
            format!("allowed as a tool's name: {}", TextFormat::Tool.description()),
        );
    }
    if path == ["services", "NAME"] && BUILT_IN_TOOLS.contains(&entry.name.as_str()) {
        let message = format!(
            "`{}`: there is already a built-in tool with the name `{}`",
            parent.key_of(&entry.name),
            entry.name
        );
        parent.problem(entry.span.clone(), message, "give the service another name".to_owned());
    }
    check_table(&table, path);
}

fn check_provider(parent: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let name = entry.name.as_str();
    let key = parent.key_of(name);
    if let Some(problem) = TextFormat::Name.problem(name) {
        let allowed = format!("allowed as a provider's name: {}", TextFormat::Name.description());
        parent.problem(entry.span.clone(), format!("`{key}` {problem}"), allowed);
    } else if BUILT_IN.contains(&name) {
        let message = format!("`{key}`: `{name}` is a built-in provider and cannot be configured");
        parent.problem(entry.span.clone(), message, "give your provider another name".to_owned());
    } else if known_provider(name).is_none() && table.get("base_url").is_none() {
        let message = format!("`{key}` has no `base_url`, and `{name}` is not a known provider");
        let known: Vec<_> = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).collect();
        let suggestion = nearest(name, known.iter().copied());
        let suggestion = suggestion.map(|suggestion| format!("did you mean `{suggestion}`? ")).unwrap_or_default();
        let allowed = format!("{suggestion}add `base_url = \"https://…\"`; known providers: {}", known.join(", "));
        parent.problem(entry.span.clone(), message, allowed);
    }
}

/// Checks the table of an MCP server. A table with `command` (a process) may contain other keys than a table with `url`
/// (an address).
fn check_server(parent: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let key = parent.key_of(&entry.name);
    if let Some(problem) = TextFormat::Server.problem(&entry.name) {
        let allowed = format!("allowed as an MCP server's name: {}", TextFormat::Server.description());
        parent.problem(entry.span.clone(), format!("`{key}` {problem}"), allowed);
    } else if MCP_TAKEN.contains(&entry.name.as_str()) {
        let message = format!("`{key}`: this name is reserved for another source of tools");
        parent.problem(entry.span.clone(), message, "give the server another name".to_owned());
    }
    match (table.get("command"), table.get("url")) {
        (None, None) => {
            let message = format!("`{key}` has no `command` and no `url`");
            let allowed = "add `command = \"PROGRAM\"` for a child process, or `url = \"https://…\"`".to_owned();
            parent.problem(entry.span.clone(), message, allowed);
        }
        (Some(_), Some(url)) => {
            url.problem("cannot be combined with `command`", "keep only one of these keys, or configure two servers")
        }
        _ => {
            for (needing, needed) in MCP_NEEDS {
                if let (Some(value), None) = (table.get(needing), table.get(needed)) {
                    value.problem(
                        &format!("needs `{needed}`"),
                        &format!("this key is only allowed for servers with `{needed}`"),
                    );
                }
            }
        }
    }
}

fn check_prices(table: &Table<'_>) {
    for (price, other_price) in [("prompt_price", "completion_price"), ("completion_price", "prompt_price")] {
        if let (Some(value), None) = (table.get(price), table.get(other_price)) {
            value.problem(&format!("needs `{other_price}`"), "set both prices, or neither");
        }
    }
    for price in ["cache_read_price", "cache_write_price"] {
        if let (Some(value), None) = (table.get(price), table.get("prompt_price")) {
            value.problem("needs `prompt_price`", "set the other prices as well");
        }
    }
}

fn report_not_a_table(value: &TomlValue<'_>, path: &[&'static str]) {
    let inner = SECTIONS.iter().filter(|section| section.path.starts_with(path)).map(|section| section.path);
    let headers: Vec<_> = inner.map(|path| format!("`[{}]`", path.join("."))).collect();
    let problem = format!("is {}", value.kind());
    let allowed = match (path, value.kind()) {
        (["plugins"], "a string") => "to name the folder with the plugins, write `plugin_directory = \"…\"`".to_owned(),
        (_, "a list") => format!("allowed: a table, {}; write its header with single brackets", headers.join(", ")),
        _ => format!("allowed: a table, {}", headers.join(", ")),
    };
    value.problem(&problem, &allowed);
}

/// Maximum number of names that a message lists.
const MAX_LISTED: usize = 100;

fn report_unknown(table: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let key = table.key_of(&entry.name);
    if path == ["providers", "NAME"] && is_secret(&entry.name) {
        entry.value.hide();
        let message = format!("`{key}`: a secret must not be written into the file");
        let advice =
            "put the secret into an environment variable, and set `key_env` to its name: `key_env = \"OPENAI_API_KEY\"`"
                .to_owned();
        return table.problem(entry.span.clone(), message, advice);
    }
    table.problem_described(entry.span.clone(), || {
        let known: Vec<_> = keys_at(path).map(|key| key.name).chain(tables_at(path)).collect();
        let listed = format!("allowed here: {}", known.join(", "));
        let allowed = match nearest(&entry.name, known.iter().copied()) {
            Some(suggestion) => format!("did you mean `{suggestion}`? {listed}"),
            None => tables_with_key(&entry.name, table.steps(), path)
                .map(|advice| format!("{advice}; {listed}"))
                .unwrap_or(listed),
        };
        (format!("unknown key `{key}`"), allowed)
    });
}

/// Returns a hint that lists the tables in which the key `name` is allowed. Returns None if no table allows the key.
fn tables_with_key(name: &str, written_path: &[String], path: &[&'static str]) -> Option<String> {
    let allows_key =
        |section: &&Section| section.path.last() == Some(&name) || section.keys.iter().any(|key| key.name == name);
    let mut tables: Vec<_> = SECTIONS.iter().filter(allows_key).map(|section| section.path).collect();
    if tables.iter().any(|table_path| !path.is_empty() && table_path.starts_with(path)) {
        tables.retain(|table_path| table_path.starts_with(path));
    }
    if let Some([]) = tables.first() {
        return Some(format!("`{name}` belongs at the top of the file, above the first `[table]`"));
    }
    // The hint contains the names that the file uses in its table headers, and not placeholders such as `NAME`.
    let header = |table_path: &&[&'static str]| {
        let steps = table_path.iter().enumerate().map(|(index, step)| match written_path.get(index) {
            Some(written) if path.get(index) == Some(step) => written.as_str(),
            _ => step,
        });
        format!("`[{}]`", steps.collect::<Vec<_>>().join("."))
    };
    let headers: Vec<_> = tables.iter().map(header).collect();
    (!headers.is_empty()).then(|| format!("`{name}` belongs in {}", headers.join(" or ")))
}

fn check_value(value: &TomlValue<'_>, expected: Value) {
    match expected {
        Value::Text(format) => check_text(value, format),
        Value::Number(minimum, maximum) => {
            let allowed = format!("a whole number from {minimum} to {maximum}");
            let in_range = value.number().is_some_and(|number| (minimum..=maximum).contains(&number));
            match value.is_fraction() {
                true => value.problem("is not a whole number", &format!("allowed: {allowed}")),
                false => check_number(value, in_range, &allowed),
            }
        }
        Value::Limit(minimum, maximum) => {
            let allowed = format!("a whole number from {minimum} to {maximum}");
            let in_range = value.number_u64().is_some_and(|number| (minimum..=maximum).contains(&number));
            match value.is_fraction() {
                true => value.problem("is not a whole number", &format!("allowed: {allowed}")),
                false => check_number(value, in_range, &allowed),
            }
        }
        Value::Signed(minimum, maximum) => {
            let in_range = value.number_i32().is_some_and(|number| (minimum..=maximum).contains(&number));
            check_number(value, in_range, &format!("a whole number from {minimum} to {maximum}"));
        }
        Value::Amount(maximum) => {
            let in_range = value.number_f64().is_some_and(|amount| (0.0..=f64::from(maximum)).contains(&amount));
            check_number(value, in_range, &format!("a number from 0 to {maximum}"));
        }
        Value::Flag if value.flag().is_none() => wrong_type(value, "true or false"),
        Value::Flag => {}
        Value::Switch(_) if value.flag().is_some() => {}
        Value::Switch(maximum) => {
            let in_range = value.number_u64().is_some_and(|number| (1..=maximum).contains(&number));
            check_number(value, in_range, &format!("true, false or a whole number from 1 to {maximum}"));
        }
        Value::Choice(words) => check_choice(value, words),
        Value::Texts(format) => match value.items() {
            Some(items) => items.iter().for_each(|item| check_text(item, format)),
            None => wrong_type(value, "a list of strings, such as [\"one\", \"two\"]"),
        },
        Value::Pairs(keys, values) => check_pairs(value, keys, values),
        // Schemas are not checked here, because reading a schema also checks the schema.
        Value::Schema | Value::Schemas => {}
    }
}

fn check_text(value: &TomlValue<'_>, format: TextFormat) {
    match value.text() {
        None => wrong_type(value, format.description()),
        Some(text) => {
            if let Some(problem) = format.problem(&text) {
                if matches!(format, TextFormat::Url | TextFormat::ServerUrl | TextFormat::Requests) {
                    value.hide();
                }
                value.problem(problem, &format!("allowed: {}", format.description()));
            }
        }
    }
}

fn check_number(value: &TomlValue<'_>, in_range: bool, allowed: &str) {
    match value.kind() {
        "a number" if in_range => {}
        "a number" => value.problem("is out of range", &format!("allowed: {allowed}")),
        _ => wrong_type(value, allowed),
    }
}

fn check_choice(value: &TomlValue<'_>, words: &[&str]) {
    let allowed: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let allowed = allowed.join(" or ");
    match value.text() {
        None => wrong_type(value, &allowed),
        Some(text) if words.contains(&text.as_str()) => {}
        Some(text) => {
            let suggestion = nearest(&text, words.iter().copied());
            let suggestion = suggestion.map(|word| format!("; did you mean \"{word}\"?")).unwrap_or_default();
            value.problem("has an unknown value", &format!("allowed: {allowed}{suggestion}"));
        }
    }
}

fn check_pairs(value: &TomlValue<'_>, keys: TextFormat, values: TextFormat) {
    let Some(table) = value.table() else {
        return wrong_type(value, "a table of strings, such as { key = \"value\" }");
    };
    for entry in table.entries() {
        if let Some(problem) = keys.problem(&entry.name) {
            let message = format!("`{}`: the key {problem}", table.key_of(&entry.name));
            table.problem(entry.span.clone(), message, format!("allowed: {}", keys.description()));
        }
        check_text(&entry.value, values);
        if keys == TextFormat::PlainHeader && is_secret(&entry.name) {
            entry.value.hide();
        }
    }
}

fn wrong_type(value: &TomlValue<'_>, allowed: &str) {
    value.problem(&format!("is {}", value.kind()), &format!("allowed: {allowed}"));
}

/// Whether a key is allowed at the top of the file.
pub(super) fn is_top_key(name: &str) -> bool {
    !matches!(find_key(&[], name), NameKind::Unknown)
}
