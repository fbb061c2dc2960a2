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

/// Built-in providers. They cannot be configured in a table.
pub const BUILT_IN: [&str; 2] = ["offline", "scripted"];

/// Names of the tools that the host itself offers.
pub(super) const BUILT_IN_TOOLS: [&str; 4] =
    [name::LIST_DIRECTORY, name::READ_FILE, name::READ_RESULT, name::MEMORY_SEARCH];

/// What the list of keys says about a name in a table.
enum Meaning {
    Value(&'static Key),
    Table(Vec<&'static str>),
    Unknown,
}

/// Reports every problem in the file that the list of keys can detect.
pub(super) fn check(root: &Table<'_>) {
    check_table(root, &[]);
    check_eviction(root);
    check_stacks(root);
    check_media_policies(root);
    let ends_with_tool = root.get("finish").and_then(|value| value.text()).is_some_and(|word| word == "tool");
    if let Some(value) = root.get("planner").filter(|_| ends_with_tool) {
        value.problem(
            "cannot be combined with `finish = \"tool\"`, because a plan ends with a text answer",
            "remove one of them",
        );
    }
}

/// Rejects media policies for unknown providers, because they would never be applied.
fn check_media_policies(root: &Table<'_>) {
    let Some(policies) = root.table("media_policies") else { return };
    let configured: Vec<String> =
        root.table("providers").iter().flat_map(Table::entries).map(|entry| entry.name).collect();
    let known = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).chain(BUILT_IN);
    let known: Vec<&str> = known.chain(configured.iter().map(String::as_str)).collect();
    for entry in policies.entries().filter(|entry| !known.contains(&entry.name.as_str())) {
        let message = format!("`{}`: there is no provider `{}`", policies.key_of(&entry.name), entry.name);
        let meant = nearest(&entry.name, known.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        policies.problem(entry.span.clone(), message, format!("{meant}known providers: {}", known.join(", ")));
    }
}

/// Rejects values of the eviction keys that contradict each other.
fn check_eviction(root: &Table<'_>) {
    let defaults = agent_core::run::LoopConfig::default();
    let number = |key, default| root.get(key).map_or(Some(default), |value| value.number());
    if let (Some(at), Some(to)) = (number("evict_at", defaults.evict_at), number("evict_to", defaults.evict_to))
        && to >= at
        && let Some((value, key, other)) = root
            .get("evict_to")
            .map(|value| (value, "below", format!("`evict_at`, which is {at}")))
            .or_else(|| root.get("evict_at").map(|value| (value, "above", format!("`evict_to`, which is {to}"))))
    {
        value.problem(&format!("is not {key} {other}"), &format!("allowed: a number {key} that"));
    }
    let extracts = root.get("summary").and_then(|value| value.text()).is_some_and(|word| word == "extract");
    if let Some(value) = root.get("summary_model").filter(|_| extracts) {
        value.problem("has no effect, because `summary` is \"extract\"", "remove one of them");
    }
}

/// Rejects a guest stack that leaves too little room for the host functions, which run on the same stack.
fn check_stacks(root: &Table<'_>) {
    let Some(limits) = root.table("host").and_then(|host| host.table("limits")) else { return };
    let defaults = HostLimits::default();
    let number = |key, default: usize| limits.get(key).map_or(Some(default as u64 / 1024), |value| value.large());
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
    for entry in table.entries() {
        match find_key(path, &entry.name) {
            Meaning::Value(key) => check_value(&entry.value, key.value),
            Meaning::Table(below) => check_inner(table, &entry, &below),
            Meaning::Unknown => report_unknown(table, &entry, path),
        }
    }
    if path == ["providers", "NAME", "models", "MODEL"] {
        check_prices(table);
    }
}

fn find_key(path: &[&'static str], name: &str) -> Meaning {
    if let Some(key) = keys_at(path).find(|key| key.name == name) {
        return Meaning::Value(key);
    }
    match tables_at(path).into_iter().find(|table| *table == name || is_placeholder(table)) {
        Some(table) => Meaning::Table([path, &[table]].concat()),
        None => Meaning::Unknown,
    }
}

/// Known keys of the table at a path.
fn keys_at(path: &[&'static str]) -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().filter(move |section| section.path == path).flat_map(|section| section.keys)
}

/// Known tables in the table at a path.
fn tables_at(path: &[&'static str]) -> Vec<&'static str> {
    let below = SECTIONS.iter().filter_map(|section| section.path.strip_prefix(path)?.first().copied());
    let mut tables: Vec<_> = below.collect();
    tables.dedup();
    tables
}

/// Whether a step of a path is a placeholder, such as `NAME`, for a name that the author of the file chooses.
pub(super) fn is_placeholder(step: &str) -> bool {
    step.chars().all(|character| character.is_ascii_uppercase())
}

fn check_inner(around: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let Some(table) = entry.value.table() else {
        return report_not_a_table(&entry.value, path);
    };
    match path {
        ["providers", "NAME"] => check_provider(around, entry, &table),
        ["agents", "NAME"] => agents::check(around, entry, &table),
        ["plugins", "NAME", "secrets", "SECRET"] => secrets::check(around, entry, &table),
        [MCP, "NAME"] => check_server(around, entry, &table),
        _ => {}
    }
    if path == ["services", "NAME"]
        && let Some(problem) = TextFormat::Tool.problem(&entry.name)
    {
        let message = format!("`{}` {problem}", around.key_of(&entry.name));
        around.problem(
            entry.span.clone(),
            message,
            format!("allowed as a tool's name: {}", TextFormat::Tool.description()),
        );
    }
    if path == ["services", "NAME"] && BUILT_IN_TOOLS.contains(&entry.name.as_str()) {
        let message = format!(
            "`{}`: there is already a built-in tool with the name `{}`",
            around.key_of(&entry.name),
            entry.name
        );
        around.problem(entry.span.clone(), message, "give the service another name".to_owned());
    }
    check_table(&table, path);
}

fn check_provider(around: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let name = entry.name.as_str();
    let key = around.key_of(name);
    if let Some(problem) = TextFormat::Name.problem(name) {
        let allowed = format!("allowed as a provider's name: {}", TextFormat::Name.description());
        around.problem(entry.span.clone(), format!("`{key}` {problem}"), allowed);
    } else if BUILT_IN.contains(&name) {
        let message = format!("`{key}`: `{name}` is a built-in provider and cannot be configured");
        around.problem(entry.span.clone(), message, "give your provider another name".to_owned());
    } else if known_provider(name).is_none() && table.get("base_url").is_none() {
        let message = format!("`{key}` has no `base_url`, and `{name}` is not a known provider");
        let known: Vec<_> = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).collect();
        let meant = nearest(name, known.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        let allowed = format!("{meant}add `base_url = \"https://…\"`; known providers: {}", known.join(", "));
        around.problem(entry.span.clone(), message, allowed);
    }
}

/// Checks an MCP server. It is either a process or an address, and each kind has its own keys.
fn check_server(around: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let key = around.key_of(&entry.name);
    if let Some(problem) = TextFormat::Server.problem(&entry.name) {
        let allowed = format!("allowed as an MCP server's name: {}", TextFormat::Server.description());
        around.problem(entry.span.clone(), format!("`{key}` {problem}"), allowed);
    } else if MCP_TAKEN.contains(&entry.name.as_str()) {
        let message = format!("`{key}`: this name is reserved for another source of tools");
        around.problem(entry.span.clone(), message, "give the server another name".to_owned());
    }
    match (table.get("command"), table.get("url")) {
        (None, None) => {
            let message = format!("`{key}` has no `command` and no `url`");
            let allowed = "add `command = \"PROGRAM\"` for a child process, or `url = \"https://…\"`".to_owned();
            around.problem(entry.span.clone(), message, allowed);
        }
        (Some(_), Some(url)) => {
            url.problem("cannot be combined with `command`", "keep one of them, or configure two servers")
        }
        _ => {
            for (needing, needed) in MCP_NEEDS {
                if let (Some(value), None) = (table.get(needing), table.get(needed)) {
                    value.problem(
                        &format!("needs `{needed}`"),
                        &format!("it is only allowed for servers with `{needed}`"),
                    );
                }
            }
        }
    }
}

fn check_prices(table: &Table<'_>) {
    for (one, other) in [("prompt_price", "completion_price"), ("completion_price", "prompt_price")] {
        if let (Some(value), None) = (table.get(one), table.get(other)) {
            value.problem(&format!("needs `{other}`"), "set both prices, or neither");
        }
    }
}

fn report_not_a_table(value: &TomlValue<'_>, path: &[&'static str]) {
    let inner = SECTIONS.iter().filter(|section| section.path.starts_with(path)).map(|section| section.path);
    let headers: Vec<_> = inner.map(|path| format!("`[{}]`", path.join("."))).collect();
    let what = format!("is {}", value.kind());
    let allowed = match (path, value.kind()) {
        (["plugins"], "a string") => "to name the folder with the plugins, write `plugin_directory = \"…\"`".to_owned(),
        (_, "a list") => format!("allowed: a table, {}; write its header with single brackets", headers.join(", ")),
        _ => format!("allowed: a table, {}", headers.join(", ")),
    };
    value.problem(&what, &allowed);
}

fn report_unknown(table: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let key = table.key_of(&entry.name);
    if path == ["providers", "NAME"] && is_secret(&entry.name) {
        entry.value.hide();
        let message = format!("`{key}`: a secret must not be written into the file");
        let advice =
            "put the secret into an environment variable and name the variable: `key_env = \"OPENAI_API_KEY\"`"
                .to_owned();
        return table.problem(entry.span.clone(), message, advice);
    }
    let known: Vec<_> = keys_at(path).map(|key| key.name).chain(tables_at(path)).collect();
    let listed = format!("allowed here: {}", known.join(", "));
    let allowed = match nearest(&entry.name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? {listed}"),
        None => tables_with_key(&entry.name, table.steps(), path)
            .map(|advice| format!("{advice}; {listed}"))
            .unwrap_or(listed),
    };
    table.problem(entry.span.clone(), format!("unknown key `{key}`"), allowed);
}

/// A hint that names the tables in which a key with that name is allowed.
fn tables_with_key(name: &str, own: &[String], path: &[&'static str]) -> Option<String> {
    let holds =
        |section: &&Section| section.path.last() == Some(&name) || section.keys.iter().any(|key| key.name == name);
    let mut places: Vec<_> = SECTIONS.iter().filter(holds).map(|section| section.path).collect();
    if places.iter().any(|place| !path.is_empty() && place.starts_with(path)) {
        places.retain(|place| place.starts_with(path));
    }
    if let Some([]) = places.first() {
        return Some(format!("`{name}` belongs at the top of the file, above the first `[table]`"));
    }
    // Use the names that the author has already chosen, instead of placeholders.
    let header = |place: &&[&'static str]| {
        let steps = place.iter().enumerate().map(|(index, step)| match own.get(index) {
            Some(own) if path.get(index) == Some(step) => own.as_str(),
            _ => step,
        });
        format!("`[{}]`", steps.collect::<Vec<_>>().join("."))
    };
    let headers: Vec<_> = places.iter().map(header).collect();
    (!headers.is_empty()).then(|| format!("`{name}` belongs in {}", headers.join(" or ")))
}

fn check_value(value: &TomlValue<'_>, expected: Value) {
    match expected {
        Value::Text(format) => check_text(value, format),
        Value::Number(least, most) => {
            let allowed = format!("a whole number from {least} to {most}");
            let fits = value.number().is_some_and(|number| (least..=most).contains(&number));
            match value.is_fraction() {
                true => value.problem("is not a whole number", &format!("allowed: {allowed}")),
                false => check_number(value, fits, &allowed),
            }
        }
        Value::Limit(least, most) => {
            let allowed = format!("a whole number from {least} to {most}");
            let fits = value.large().is_some_and(|number| (least..=most).contains(&number));
            match value.is_fraction() {
                true => value.problem("is not a whole number", &format!("allowed: {allowed}")),
                false => check_number(value, fits, &allowed),
            }
        }
        Value::Signed(least, most) => {
            let fits = value.signed().is_some_and(|number| (least..=most).contains(&number));
            check_number(value, fits, &format!("a whole number from {least} to {most}"));
        }
        Value::Amount(most) => {
            let fits = value.amount().is_some_and(|amount| (0.0..=f64::from(most)).contains(&amount));
            check_number(value, fits, &format!("a number from 0 to {most}"));
        }
        Value::Flag if value.flag().is_none() => wrong_type(value, "true or false"),
        Value::Flag => {}
        Value::Switch(_) if value.flag().is_some() => {}
        Value::Switch(most) => {
            let fits = value.large().is_some_and(|number| (1..=most).contains(&number));
            check_number(value, fits, &format!("true, false or a whole number from 1 to {most}"));
        }
        Value::Choice(words) => check_choice(value, words),
        Value::Texts(format) => match value.items() {
            Some(items) => items.iter().for_each(|item| check_text(item, format)),
            None => wrong_type(value, "a list of strings, such as [\"one\", \"two\"]"),
        },
        Value::Pairs(keys, values) => check_pairs(value, keys, values),
        // Checked when the schema is read.
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

fn check_number(value: &TomlValue<'_>, fits: bool, allowed: &str) {
    match value.kind() {
        "a number" if fits => {}
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
            let meant = nearest(&text, words.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?")).unwrap_or_default();
            value.problem("has an unknown value", &format!("allowed: {allowed}{meant}"));
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
    !matches!(find_key(&[], name), Meaning::Unknown)
}
