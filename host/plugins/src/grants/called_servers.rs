//! Finds the servers that the arguments of a call name, so that the user is asked about these servers only (P6).

use super::http_pattern::HttpPattern;
use serde_json::Value;

/// Maximum number of patterns for the servers of one call.
const MAX_PATTERNS: usize = 24;

/// Returns request patterns for the servers in all URLs in the arguments of a call, without duplicates. For each server, there is a
/// pattern with and a pattern without `private`.
pub fn servers_in(arguments: &Value) -> Vec<HttpPattern> {
    let mut servers = Vec::new();
    collect(arguments, &mut servers);
    servers
}

fn collect(arguments: &Value, servers: &mut Vec<HttpPattern>) {
    match arguments {
        Value::String(text) if text.starts_with("http://") || text.starts_with("https://") => {
            let end = text.match_indices(['/', '?', '#']).map(|(index, _)| index).find(|index| *index > 7);
            let origin = end.map_or(text.as_str(), |end| &text[..end]);
            for pattern in host_patterns(origin) {
                if servers.len() < MAX_PATTERNS && !servers.contains(&pattern) {
                    servers.push(pattern);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, servers)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, servers)),
        _ => {}
    }
}

/// Returns request patterns for a server that the user types, such as `a.example`, `a.example:8080` or
/// `https://a.example`. The patterns include `private` patterns, for plugins that request servers in private networks.
/// If the text is not the address of exactly one server, returns an empty list.
pub fn host_patterns(typed: &str) -> Vec<HttpPattern> {
    if typed.contains(['*', ' ', '@']) {
        return Vec::new();
    }
    let origins = match typed.contains("://") {
        true => vec![typed.to_owned()],
        false => vec![format!("https://{typed}"), format!("http://{typed}")],
    };
    let patterns = origins.iter().flat_map(|origin| [origin.clone(), format!("private {origin}")]);
    patterns.filter_map(|pattern| pattern.parse().ok()).collect()
}
