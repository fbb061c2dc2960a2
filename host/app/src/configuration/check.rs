//! Compares a document with the list of keys: unknown keys, keys in the wrong table, and wrong values.

use super::agents;
use super::document::{Entry, Found, Table};
use super::form::{Form, is_secret};
use super::keys::{Key, MCP, MCP_NEEDS, MCP_TAKEN, SECTIONS, Section, Value};
use super::nearest::nearest;
use super::secrets;
use agent_models::known_provider;
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_STACK_KIB;
use agent_runtime::builtins::name;

/// Built in, so that a table could say nothing of them.
pub(crate) const BUILT_IN: [&str; 2] = ["offline", "scripted"];

/// Tools that every agent has.
pub(super) const BUILT_IN_TOOLS: [&str; 4] =
    [name::LIST_DIRECTORY, name::READ_FILE, name::READ_RESULT, name::MEMORY_SEARCH];

/// What a key may be where it stands.
enum Meaning {
    Value(&'static Key),
    Table(Vec<&'static str>),
    Unknown,
}

/// Reports everything that is wrong in the whole file, as far as the list of keys can tell.
pub(super) fn check(root: &Table<'_>) {
    check_table(root, &[]);
    check_eviction(root);
    check_stacks(root);
    check_media_policies(root);
    let ends_with_tool = root.get("finish").and_then(|found| found.text()).is_some_and(|word| word == "tool");
    if let Some(found) = root.get("planner").filter(|_| ends_with_tool) {
        found.problem("ends a turn with a text, and `finish` is \"tool\"", "leave one of them out");
    }
}

/// A policy of a provider that is not there would mask nothing.
fn check_media_policies(root: &Table<'_>) {
    let Some(policies) = root.table("media_policies") else { return };
    let own: Vec<String> = root.table("providers").iter().flat_map(Table::entries).map(|entry| entry.name).collect();
    let known = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).chain(BUILT_IN);
    let known: Vec<&str> = known.chain(own.iter().map(String::as_str)).collect();
    for entry in policies.entries().filter(|entry| !known.contains(&entry.name.as_str())) {
        let message = format!("`{}`: there is no provider `{}`", policies.key_of(&entry.name), entry.name);
        let meant = nearest(&entry.name, known.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        policies.problem(entry.span.clone(), message, format!("{meant}there are: {}", known.join(", ")));
    }
}

/// Keys of which one says what the other takes back.
fn check_eviction(root: &Table<'_>) {
    let defaults = agent_core::run::LoopConfig::default();
    let number = |key, default| root.get(key).map_or(Some(default), |found| found.number());
    if let (Some(at), Some(to)) = (number("evict_at", defaults.evict_at), number("evict_to", defaults.evict_to))
        && to >= at
        && let Some((found, key, other)) = root
            .get("evict_to")
            .map(|found| (found, "below", format!("`evict_at`, which is {at}")))
            .or_else(|| root.get("evict_at").map(|found| (found, "above", format!("`evict_to`, which is {to}"))))
    {
        found.problem(&format!("is not {key} {other}"), &format!("allowed: a number {key} that"));
    }
    let extracts = root.get("summary").and_then(|found| found.text()).is_some_and(|word| word == "extract");
    if let Some(found) = root.get("summary_model").filter(|_| extracts) {
        found.problem("is never asked, since `summary` is \"extract\"", "leave one of them out");
    }
}

/// The guest's own stack is a part of the one on which the host's functions run, too.
fn check_stacks(root: &Table<'_>) {
    let Some(limits) = root.table("host").and_then(|host| host.table("limits")) else { return };
    let defaults = HostLimits::default();
    let number = |key, default: usize| limits.get(key).map_or(Some(default as u64 / 1024), |found| found.large());
    let own = number("wasm_stack_kib", defaults.wasm_stack);
    let all = number("async_stack_kib", defaults.async_stack);
    if let (Some(own), Some(all)) = (own, all)
        && own.saturating_add(HOST_STACK_KIB) > all
        && let Some(found) = limits.get("wasm_stack_kib").or_else(|| limits.get("async_stack_kib"))
    {
        let allowed =
            format!("`async_stack_kib` is {all}; it must be {HOST_STACK_KIB} more than `wasm_stack_kib`, at least");
        found.problem("leaves the host's functions too little stack", &allowed);
    }
}

fn check_table(table: &Table<'_>, path: &[&'static str]) {
    for entry in table.entries() {
        match meaning(path, &entry.name) {
            Meaning::Value(key) => check_value(&entry.found, key.value),
            Meaning::Table(below) => check_inner(table, &entry, &below),
            Meaning::Unknown => report_unknown(table, &entry, path),
        }
    }
    if path == ["providers", "NAME", "models", "MODEL"] {
        check_prices(table);
    }
}

fn meaning(path: &[&'static str], name: &str) -> Meaning {
    if let Some(key) = keys_at(path).find(|key| key.name == name) {
        return Meaning::Value(key);
    }
    match tables_at(path).into_iter().find(|table| *table == name || is_own(table)) {
        Some(table) => Meaning::Table([path, &[table]].concat()),
        None => Meaning::Unknown,
    }
}

/// Keys that stand in a table.
fn keys_at(path: &[&'static str]) -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().filter(move |section| section.path == path).flat_map(|section| section.keys)
}

/// Tables that stand in a table.
fn tables_at(path: &[&'static str]) -> Vec<&'static str> {
    let below = SECTIONS.iter().filter_map(|section| section.path.strip_prefix(path)?.first().copied());
    let mut tables: Vec<_> = below.collect();
    tables.dedup();
    tables
}

/// Whether a step of a path is a name that the author chooses.
pub(super) fn is_own(step: &str) -> bool {
    step.chars().all(|character| character.is_ascii_uppercase())
}

fn check_inner(around: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let Some(table) = entry.found.table() else {
        return report_no_table(&entry.found, path);
    };
    match path {
        ["providers", "NAME"] => check_provider(around, entry, &table),
        ["agents", "NAME"] => agents::check(around, entry, &table),
        ["plugins", "NAME", "secrets", "SECRET"] => secrets::check(around, entry, &table),
        [MCP, "NAME"] => check_server(around, entry, &table),
        _ => {}
    }
    if path == ["services", "NAME"]
        && let Some(problem) = Form::Tool.problem(&entry.name)
    {
        let message = format!("`{}`: its name {problem}", around.key_of(&entry.name));
        around.problem(entry.span.clone(), message, format!("allowed as a tool's name: {}", Form::Tool.words()));
    }
    if path == ["services", "NAME"] && BUILT_IN_TOOLS.contains(&entry.name.as_str()) {
        let message = format!(
            "`{}`: two tools are named `{}`, and the other is built in",
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
    if let Some(problem) = Form::Name.problem(name) {
        let allowed = format!("allowed as a provider's name: {}", Form::Name.words());
        around.problem(entry.span.clone(), format!("`{key}`: its name {problem}"), allowed);
    } else if BUILT_IN.contains(&name) {
        let message = format!("`{key}`: `{name}` is built in and has no address");
        around.problem(entry.span.clone(), message, "give your provider another name".to_owned());
    } else if known_provider(name).is_none() && table.get("base_url").is_none() {
        let message = format!("`{key}` has no `base_url`, and `{name}` is no known provider");
        let known: Vec<_> = agent_models::KNOWN_PROVIDERS.iter().map(|provider| provider.name).collect();
        let meant = nearest(name, known.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        let allowed = format!("{meant}add `base_url = \"https://…\"`; known are: {}", known.join(", "));
        around.problem(entry.span.clone(), message, allowed);
    }
}

/// A server is a process or an address, and each has keys of its own.
fn check_server(around: &Table<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let key = around.key_of(&entry.name);
    if let Some(problem) = Form::Server.problem(&entry.name) {
        let allowed = format!("allowed as an MCP server's name: {}", Form::Server.words());
        around.problem(entry.span.clone(), format!("`{key}`: its name {problem}"), allowed);
    } else if MCP_TAKEN.contains(&entry.name.as_str()) {
        let message = format!("`{key}`: calls in a reply's text name another source of tools so");
        around.problem(entry.span.clone(), message, "give the server another name".to_owned());
    }
    match (table.get("command"), table.get("url")) {
        (None, None) => {
            let message = format!("`{key}` has no `command` and no `url`");
            let allowed = "add `command = \"PROGRAM\"` for a child process, or `url = \"https://…\"`".to_owned();
            around.problem(entry.span.clone(), message, allowed);
        }
        (Some(_), Some(url)) => url.problem("stands beside `command`", "keep one of them, or make two servers of it"),
        _ => {
            for (needing, needed) in MCP_NEEDS {
                if let (Some(found), None) = (table.get(needing), table.get(needed)) {
                    found.problem(
                        &format!("stands without `{needed}`"),
                        &format!("it is only for servers with `{needed}`"),
                    );
                }
            }
        }
    }
}

fn check_prices(table: &Table<'_>) {
    for (one, other) in [("prompt_price", "completion_price"), ("completion_price", "prompt_price")] {
        if let (Some(found), None) = (table.get(one), table.get(other)) {
            found.problem(&format!("stands without `{other}`"), "give both, or none");
        }
    }
}

fn report_no_table(found: &Found<'_>, path: &[&'static str]) {
    let inner = SECTIONS.iter().filter(|section| section.path.starts_with(path)).map(|section| section.path);
    let headers: Vec<_> = inner.map(|path| format!("`[{}]`", path.join("."))).collect();
    let what = format!("is {}", found.kind());
    let allowed = match (path, found.kind()) {
        (["plugins"], "a text") => "the folder with the plugins is `plugin_directory = \"…\"`".to_owned(),
        (_, "a list") => format!("allowed: a table, {}; a header has single brackets", headers.join(", ")),
        _ => format!("allowed: a table, {}", headers.join(", ")),
    };
    found.problem(&what, &allowed);
}

fn report_unknown(table: &Table<'_>, entry: &Entry<'_>, path: &[&'static str]) {
    let key = table.key_of(&entry.name);
    if path == ["providers", "NAME"] && is_secret(&entry.name) {
        entry.found.hide();
        let message = format!("`{key}`: a secret does not stand in a file");
        let advice = "set a variable to it, and name that: `key_env = \"OPENAI_API_KEY\"`".to_owned();
        return table.problem(entry.span.clone(), message, advice);
    }
    let known: Vec<_> = keys_at(path).map(|key| key.name).chain(tables_at(path)).collect();
    let listed = format!("allowed here: {}", known.join(", "));
    let allowed = match nearest(&entry.name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? {listed}"),
        None => {
            elsewhere(&entry.name, table.steps(), path).map(|advice| format!("{advice}; {listed}")).unwrap_or(listed)
        }
    };
    table.problem(entry.span.clone(), format!("unknown key `{key}`"), allowed);
}

/// Where else a key of that name stands.
fn elsewhere(name: &str, own: &[String], path: &[&'static str]) -> Option<String> {
    let holds =
        |section: &&Section| section.path.last() == Some(&name) || section.keys.iter().any(|key| key.name == name);
    let mut places: Vec<_> = SECTIONS.iter().filter(holds).map(|section| section.path).collect();
    if places.iter().any(|place| !path.is_empty() && place.starts_with(path)) {
        places.retain(|place| place.starts_with(path));
    }
    if let Some([]) = places.first() {
        return Some(format!("`{name}` stands at the top of the file, above the first `[table]`"));
    }
    // The names that the author has chosen already are kept.
    let header = |place: &&[&'static str]| {
        let steps = place.iter().enumerate().map(|(index, step)| match own.get(index) {
            Some(own) if path.get(index) == Some(step) => own.as_str(),
            _ => step,
        });
        format!("`[{}]`", steps.collect::<Vec<_>>().join("."))
    };
    let headers: Vec<_> = places.iter().map(header).collect();
    (!headers.is_empty()).then(|| format!("`{name}` stands in {}", headers.join(" or ")))
}

fn check_value(found: &Found<'_>, value: Value) {
    match value {
        Value::Text(form) => check_text(found, form),
        Value::Number(least, most) => {
            let allowed = format!("a whole number from {least} to {most}");
            let fits = found.number().is_some_and(|number| (least..=most).contains(&number));
            match found.is_fraction() {
                true => found.problem("is no whole number", &format!("allowed: {allowed}")),
                false => check_number(found, fits, &allowed),
            }
        }
        Value::Limit(least, most) => {
            let allowed = format!("a whole number from {least} to {most}");
            let fits = found.large().is_some_and(|number| (least..=most).contains(&number));
            match found.is_fraction() {
                true => found.problem("is no whole number", &format!("allowed: {allowed}")),
                false => check_number(found, fits, &allowed),
            }
        }
        Value::Signed(least, most) => {
            let fits = found.signed().is_some_and(|number| (least..=most).contains(&number));
            check_number(found, fits, &format!("a whole number from {least} to {most}"));
        }
        Value::Amount(most) => {
            let fits = found.amount().is_some_and(|amount| (0.0..=f64::from(most)).contains(&amount));
            check_number(found, fits, &format!("a number from 0 to {most}"));
        }
        Value::Flag if found.flag().is_none() => wrong_type(found, "true or false"),
        Value::Flag => {}
        Value::Switch(_) if found.flag().is_some() => {}
        Value::Switch(most) => {
            let fits = found.large().is_some_and(|number| (1..=most).contains(&number));
            check_number(found, fits, &format!("true, false or a whole number from 1 to {most}"));
        }
        Value::Choice(words) => check_choice(found, words),
        Value::Texts(form) => match found.items() {
            Some(items) => items.iter().for_each(|item| check_text(item, form)),
            None => wrong_type(found, "a list of texts, such as [\"one\", \"two\"]"),
        },
        Value::Pairs(keys, values) => check_pairs(found, keys, values),
        // Its own reader looks at it.
        Value::Schema | Value::Schemas => {}
    }
}

fn check_text(found: &Found<'_>, form: Form) {
    match found.text() {
        None => wrong_type(found, form.words()),
        Some(text) => {
            if let Some(problem) = form.problem(&text) {
                if matches!(form, Form::Url | Form::ServerUrl | Form::Requests) {
                    found.hide();
                }
                found.problem(problem, &format!("allowed: {}", form.words()));
            }
        }
    }
}

fn check_number(found: &Found<'_>, fits: bool, allowed: &str) {
    match found.kind() {
        "a number" if fits => {}
        "a number" => found.problem("is out of range", &format!("allowed: {allowed}")),
        _ => wrong_type(found, allowed),
    }
}

fn check_choice(found: &Found<'_>, words: &[&str]) {
    let allowed: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let allowed = allowed.join(" or ");
    match found.text() {
        None => wrong_type(found, &allowed),
        Some(text) if words.contains(&text.as_str()) => {}
        Some(text) => {
            let meant = nearest(&text, words.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?")).unwrap_or_default();
            found.problem("has an unknown value", &format!("allowed: {allowed}{meant}"));
        }
    }
}

fn check_pairs(found: &Found<'_>, keys: Form, values: Form) {
    let Some(table) = found.table() else {
        return wrong_type(found, "a table of texts, such as { key = \"value\" }");
    };
    for entry in table.entries() {
        if let Some(problem) = keys.problem(&entry.name) {
            let message = format!("`{}`: the key {problem}", table.key_of(&entry.name));
            table.problem(entry.span.clone(), message, format!("allowed: {}", keys.words()));
        }
        check_text(&entry.found, values);
        if keys == Form::PlainHeader && is_secret(&entry.name) {
            entry.found.hide();
        }
    }
}

fn wrong_type(found: &Found<'_>, allowed: &str) {
    found.problem(&format!("is {}", found.kind()), &format!("allowed: {allowed}"));
}

/// Whether a key may stand at the top of the file.
pub(super) fn is_top_key(name: &str) -> bool {
    !matches!(meaning(&[], name), Meaning::Unknown)
}
