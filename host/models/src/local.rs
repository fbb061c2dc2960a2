//! Finds model servers on this machine, so that the host can offer them to a user who has configured no model. The host
//! asks the user before it uses any of these servers.

use crate::configuration::KNOWN_PROVIDERS;
use crate::http;
use reqwest::header::HeaderMap;
use std::time::Duration;
use tokio::task::JoinSet;
use url::Url;

/// A server on this machine that responded with its list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// Name of the built-in provider that has the same address as the server. The server may be a different program
    /// than the provider's name suggests, because the host checked only that the server lists models.
    pub provider: &'static str,
    /// Base URL of the server, to which paths such as `models` are appended.
    pub base_url: String,
    /// Names of the server's models, in the server's order. The list may be empty.
    pub models: Vec<String>,
}

/// Requests the list of models from each built-in local provider concurrently. The returned servers have the order
/// of [`KNOWN_PROVIDERS`].
pub async fn find_servers(timeout: Duration) -> Vec<LocalServer> {
    let local = KNOWN_PROVIDERS.iter().filter(|known| known.key_variable.is_none()).enumerate();
    let mut requests = JoinSet::new();
    for (position, known) in local {
        requests.spawn(async move { (position, known, list_models(known.base_url, timeout).await) });
    }
    let mut found = Vec::new();
    while let Some(result) = requests.join_next().await {
        if let Ok((position, known, Some(models))) = result {
            found.push((position, LocalServer { provider: known.name, base_url: known.base_url.to_owned(), models }));
        }
    }
    found.sort_by_key(|(position, _)| *position);
    found.into_iter().map(|(_, server)| server).collect()
}

/// Requests the list of models of the server at `base_url`. `timeout` includes the time to connect. Returns `None` if
/// no valid list of models arrives from this address within `timeout`.
pub async fn list_models(base_url: &str, timeout: Duration) -> Option<Vec<String>> {
    let base_url = Url::parse(base_url).ok()?;
    let client = http::build_client(&base_url, timeout).ok()?;
    http::fetch_model_list(&client, http::join_path(&base_url, "models"), HeaderMap::new(), timeout).await
}
