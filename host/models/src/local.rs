//! Model servers that run on this machine, to be offered to somebody who configured none. Never taken silently.

use crate::chat;
use crate::configuration::KNOWN_PROVIDERS;
use reqwest::header::HeaderMap;
use std::time::Duration;
use tokio::task::JoinSet;
use url::Url;

/// A server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// The known provider whose usual address it has. Another program may be there: only its list of models was seen.
    pub provider: &'static str,
    /// Its address.
    pub base_url: String,
    /// Names of its models, in its order; may be empty.
    pub models: Vec<String>,
}

/// Asks the usual addresses of this machine's known servers, all at once; in the order of [`KNOWN_PROVIDERS`].
pub async fn servers(timeout: Duration) -> Vec<LocalServer> {
    let local = KNOWN_PROVIDERS.iter().filter(|known| known.key_variable.is_none()).enumerate();
    let mut asked = JoinSet::new();
    for (place, known) in local {
        asked.spawn(async move { (place, known, ask(known.base_url, timeout).await) });
    }
    let mut found = Vec::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok((place, known, Some(models))) = answer {
            found.push((place, LocalServer { provider: known.name, base_url: known.base_url.to_owned(), models }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, server)| server).collect()
}

/// The models of the server at that base URL, connecting included within `timeout`. None where nothing there lists any.
pub async fn ask(base_url: &str, timeout: Duration) -> Option<Vec<String>> {
    let base_url = Url::parse(base_url).ok()?;
    let client = chat::client(&base_url, timeout).ok()?;
    chat::ask_for_models(&client, chat::below(&base_url, "models"), HeaderMap::new(), timeout).await
}
