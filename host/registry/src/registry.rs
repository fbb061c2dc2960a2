//! A client for registries of the OCI distribution specification: manifests, blobs, tags and referrers.

use crate::auth::{AuthContext, authenticate, read_challenge};
use crate::credentials::Credentials;
use crate::error::{RegistryError, display_text};
use crate::http::{Http, PlainHttp, Request, Route, check_redirect_target, error_text, read_body, route};
use crate::network_scope::{NetworkScope, scope_of_server};
use crate::oci::{Descriptor, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest};
use crate::origin::{OriginCredential, OriginLogin, TokenServers};
use crate::reference::{Reference, Repository, is_tag};
use crate::retry::{Attempts, Listener, RetryListener, RetryPolicy, retry_after, status_reason};
use agent_core::message::Digest;
use agent_plugins::digest_of;
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LINK, LOCATION};
use reqwest::{Method, Response, StatusCode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use url::{Origin, Url};

/// Maximum size of a manifest or an index, in bytes. Registries also reject manifests that are larger than this.
const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum size of one page of a list of tags, in bytes.
const MAX_TAGS_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum size of all pages of a list of referrers together, in bytes.
pub(crate) const MAX_LIST_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of tags that are read from a repository.
const MAX_TAGS: usize = 25_000;
/// Maximum number of pages that are read if a registry splits a list into pages.
const MAX_PAGES: usize = 100;

/// A client for registries. A process needs only one client, which caches the tokens of all registries.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    credentials: Credentials,
    token_servers: TokenServers,
    /// Cached credentials, keyed by the registry's origin and the scope for which they were obtained.
    authorizations: Mutex<HashMap<(Origin, String), OriginCredential>>,
}

/// Whether a list was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Complete,
    /// The list has more items than were read.
    Truncated,
}

/// A list of artifacts that refer to a given artifact.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Descriptor>,
    /// Whether the list has more entries than were read.
    pub(crate) is_truncated: bool,
}

/// The permission that an operation on a repository needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Pull,
    Push,
}

impl Access {
    fn scope(self, repository: &Repository) -> String {
        let actions = match self {
            Access::Pull => "pull",
            Access::Push => "pull,push",
        };
        format!("repository:{}:{actions}", repository.path())
    }
}

/// A manifest or an index from a registry, with the digest of its bytes.
pub(crate) struct StoredManifest {
    pub(crate) digest: Digest,
    pub(crate) bytes: Bytes,
    pub(crate) media_type: String,
}

/// Error code of the OCI distribution specification for content that does not have the expected digest.
const DIGEST_INVALID: &str = "DIGEST_INVALID";

impl Registry {
    /// Creates a client that uses these credentials for registries that require a login.
    pub fn new(credentials: Credentials, plain: PlainHttp) -> Result<Self, RegistryError> {
        let (http, token_servers) = (Http::new(plain)?, TokenServers::default());
        Ok(Self { http, credentials, token_servers, authorizations: Mutex::default() })
    }

    /// Allows registries to send their login to the token servers at these URLs, even if the origin of a token server
    /// differs from the registry's origin.
    #[must_use]
    pub fn with_token_servers(mut self, urls: &[Url]) -> Self {
        self.token_servers = TokenServers::of(urls);
        self
    }

    /// Sets a listener that is called before each retry of a request.
    #[must_use]
    pub fn with_retry_listener(mut self, listener: Arc<RetryListener>) -> Self {
        self.http.listener = Listener(Some(listener));
        self
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// Reads the manifest or index with the tag or digest `name`. Returns `None` if the repository has no such content.
    /// If the manifest is read to prepare a push, use [`Access::Push`], because some registries show a new
    /// repository only to clients that may push.
    pub(crate) async fn find_manifest(
        &self,
        at: (&Repository, Access),
        name: &str,
    ) -> Result<Option<StoredManifest>, RegistryError> {
        self.find_manifest_within(at, name, MAX_MANIFEST_BYTES).await
    }

    /// Like [`Registry::find_manifest`], but with the maximum size `max_bytes` instead of [`MAX_MANIFEST_BYTES`].
    pub(crate) async fn find_manifest_within(
        &self,
        (repository, access): (&Repository, Access),
        name: &str,
        max_bytes: u64,
    ) -> Result<Option<StoredManifest>, RegistryError> {
        let place = reference_text(repository, name);
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = Request::get(url).accepting(&format!("{MANIFEST_TYPE}, {INDEX_TYPE}, application/json;q=0.5"));
        let response = self.get_small((repository, access), request, (&place, max_bytes)).await?;
        let Some((headers, bytes)) = response else { return Ok(None) };
        let reported = header(&headers, "docker-content-digest").and_then(|digest| Digest::parse(&digest).ok());
        let media_type = header(&headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let digest = digest_of(&bytes);
        // If `name` is a digest, the content must match it. If the registry reports a digest, the content must match
        // the reported digest.
        for expected in Digest::parse(name).ok().iter().chain(&reported) {
            if *expected != digest {
                return Err(RegistryError::tampered(place, expected, &digest));
            }
        }
        Ok(Some(StoredManifest { digest, bytes, media_type }))
    }

    /// Sends a request and reads its small response completely. If the response is interrupted, sends the request
    /// again. Returns `None` if the content does not exist.
    async fn get_small(
        &self,
        (repository, access): (&Repository, Access),
        request: Request,
        (place, max_bytes): (&str, u64),
    ) -> Result<Option<(HeaderMap, Bytes)>, RegistryError> {
        let mut attempts = Attempts::new(&self.http.listener, place);
        loop {
            let response = self.send(repository, access, request.clone(), place).await?;
            if response.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let response = ensure_success(response, place).await?;
            let headers = response.headers().clone();
            match read_body(response, max_bytes, place).await {
                Err(RegistryError::Interrupted { reason, .. }) if attempts.wait(reason.clone(), None).await => {}
                bytes => return bytes.map(|bytes| Some((headers, bytes))),
            }
        }
    }

    /// Reads the manifest of an artifact. Returns its digest, its size in bytes, and its content.
    pub(crate) async fn manifest(&self, reference: &Reference) -> Result<(Digest, u64, Manifest), RegistryError> {
        let repository = reference.repository();
        let name = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        };
        let Some(stored) = self.find_manifest((repository, Access::Pull), name).await? else {
            return Err(self.not_found(reference).await);
        };
        let not_a_plugin = |content: String| RegistryError::NotAPlugin { place: reference.to_string(), content };
        let json: serde_json::Value = serde_json::from_slice(&stored.bytes)
            .map_err(|_| not_a_plugin("the registry's manifest is not JSON".to_owned()))?;
        let kind = json["mediaType"].as_str().unwrap_or(&stored.media_type);
        if kind == INDEX_TYPE || kind.contains("manifest.list") || json["manifests"].is_array() {
            return Err(not_a_plugin(
                "it is an index of several artifacts, such as an image for several platforms".to_owned(),
            ));
        }
        let manifest = serde_json::from_value(json).map_err(|error| {
            not_a_plugin(format!("its manifest cannot be read: {}", display_text(&error.to_string())))
        })?;
        Ok((stored.digest, stored.bytes.len() as u64, manifest))
    }

    /// Returns the error for a missing reference, which lists the existing tags.
    async fn not_found(&self, reference: &Reference) -> RegistryError {
        let mut tags = self.tags(reference.repository()).await.unwrap_or_default();
        // Leave out tags that only contain signatures, because they do not help the user.
        tags.retain(|tag| !tag.starts_with("sha256-"));
        let advice = match tags.as_slice() {
            [] => ": the registry has no such repository, or does not show it to you".to_owned(),
            tags => {
                let shown: Vec<_> = tags.iter().rev().take(8).map(String::as_str).collect();
                format!(
                    "; the tags of {} are: {}{}",
                    reference.repository(),
                    shown.join(", "),
                    if tags.len() > 8 { " …" } else { "" }
                )
            }
        };
        RegistryError::NotFound { place: reference.to_string(), advice }
    }

    /// Stores a manifest or an index in a repository under `name`, which is a tag or the digest of the bytes.
    pub(crate) async fn put_manifest(
        &self,
        repository: &Repository,
        name: &str,
        (bytes, media_type): (&[u8], &str),
    ) -> Result<Digest, RegistryError> {
        let place = reference_text(repository, name);
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let mut attempts = Attempts::new(&self.http.listener, &place);
        let response = loop {
            let request = Request::new(Method::PUT, url.clone()).with_body(bytes.to_vec(), media_type);
            let response = self.send(repository, Access::Push, request, &place).await?;
            let may_be_race = response.status() == StatusCode::BAD_REQUEST;
            match ensure_success(response, &place).await {
                // The Docker registry sends this error while another client uploads a blob that the manifest refers to,
                // because the registry tries to read its own reference to the blob before it has written the reference.
                Err(RegistryError::Server { message, .. })
                    if may_be_race
                        && message.contains(DIGEST_INVALID)
                        && attempts.wait(message.clone(), None).await => {}
                result => break result?,
            }
        };
        let digest = digest_of(bytes);
        let reported =
            header(response.headers(), "docker-content-digest").and_then(|digest| Digest::parse(&digest).ok());
        match reported {
            Some(reported) if reported != digest => Err(RegistryError::tampered(place, &digest, &reported)),
            _ => Ok(digest),
        }
    }

    /// Uploads bytes unless the registry already has them. If the result of an upload is unknown, the upload is retried
    /// from the beginning: the retry first checks whether the bytes have arrived, and starts a new upload session only
    /// if the bytes have not arrived.
    pub(crate) async fn put_blob(&self, repository: &Repository, bytes: &Bytes) -> Result<(), RegistryError> {
        let digest = digest_of(bytes);
        let place = reference_text(repository, digest.as_str());
        let mut attempts = Attempts::new(&self.http.listener, &place);
        loop {
            match self.upload(repository, (bytes, &digest), &place).await {
                Ok(Some(failed)) if RetryPolicy::IfUnknown.allows(failed.status()) => {
                    if !attempts.wait(status_reason(&failed), retry_after(failed.headers())).await {
                        return ensure_success(failed, &place).await.map(drop);
                    }
                }
                Ok(Some(failed)) => return ensure_success(failed, &place).await.map(drop),
                Ok(None) => return Ok(()),
                Err(RegistryError::Interrupted { reason, .. }) if attempts.wait(reason.clone(), None).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tries once to upload the bytes. Returns `None` if the upload succeeded, and the registry's response if the
    /// registry refused the upload.
    async fn upload(
        &self,
        repository: &Repository,
        (bytes, digest): (&Bytes, &Digest),
        place: &str,
    ) -> Result<Option<Response>, RegistryError> {
        let exists = Request::new(Method::HEAD, self.url(repository, &format!("blobs/{digest}"))?);
        if self.send(repository, Access::Push, exists, place).await?.status() == StatusCode::OK {
            return Ok(None);
        }
        let start = Request::new(Method::POST, self.url(repository, "blobs/uploads/")?)
            .with_body("", "application/octet-stream");
        let started = self.send(repository, Access::Push, start, place).await?;
        if !started.status().is_success() {
            return Ok(Some(started));
        }
        let location = header(started.headers(), LOCATION.as_str());
        let network_scope = scope_of_server(started.url()).await;
        let mut location = upload_url((started.url(), network_scope), location.as_deref())
            .map_err(|message| RegistryError::Server { place: place.to_owned(), message })?;
        location.query_pairs_mut().append_pair("digest", digest.as_str());
        let request = Request::new(Method::PUT, location);
        let upload = Request { retry_policy: RetryPolicy::IfNotProcessed, named_by: Some(network_scope), ..request }
            .with_body(bytes.clone(), "application/octet-stream");
        let uploaded = self.send(repository, Access::Push, upload, place).await?;
        Ok(Some(uploaded).filter(|uploaded| !uploaded.status().is_success()))
    }

    /// Requests a blob, starting at an offset in bytes.
    pub(crate) async fn open_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        offset: u64,
    ) -> Result<Response, RegistryError> {
        let place = reference_text(repository, digest.as_str());
        let request = Request { offset, ..Request::get(self.url(repository, &format!("blobs/{digest}"))?) };
        let response = self.send(repository, Access::Pull, request, &place).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(missing_content(place));
        }
        Ok(response)
    }

    /// Reads and verifies a blob of at most `max_bytes`.
    pub(crate) async fn read_blob(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        max_bytes: u64,
    ) -> Result<Bytes, RegistryError> {
        let place = reference_text(repository, descriptor.digest.as_str());
        if descriptor.size > max_bytes {
            return Err(RegistryError::TooLarge { place, size: descriptor.size, limit: max_bytes });
        }
        let request = Request::get(self.url(repository, &format!("blobs/{}", descriptor.digest))?);
        let response = self.get_small((repository, Access::Pull), request, (&place, descriptor.size)).await?;
        let (_, bytes) = response.ok_or_else(|| missing_content(place.clone()))?;
        let found = digest_of(&bytes);
        if found == descriptor.digest {
            Ok(bytes)
        } else {
            Err(RegistryError::tampered(place, &descriptor.digest, &found))
        }
    }

    /// Lists the tags of a repository. The list is empty if the repository does not exist.
    pub(crate) async fn tags(&self, repository: &Repository) -> Result<Vec<String>, RegistryError> {
        self.tags_with_completeness(repository).await.map(|(tags, _)| tags)
    }

    /// Like [`Registry::tags`], but also returns whether the list is complete.
    pub(crate) async fn tags_with_completeness(
        &self,
        repository: &Repository,
    ) -> Result<(Vec<String>, Completeness), RegistryError> {
        let place = repository.to_string();
        let mut next = Some(self.url(repository, "tags/list?n=1000")?);
        let mut tags: Vec<String> = Vec::new();
        for _ in 0..MAX_PAGES {
            if tags.len() >= MAX_TAGS {
                break;
            }
            let Some(url) = next.take() else { break };
            let request = Request::get(url.clone());
            let response = self.get_small((repository, Access::Pull), request, (&place, MAX_TAGS_BYTES)).await?;
            let Some((headers, bytes)) = response else { break };
            let link = header(&headers, LINK.as_str());
            let page: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let before = tags.len();
            let reported = page["tags"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
            // Ignore invalid tags, because tags are inserted into URLs and messages.
            tags.extend(reported.filter(|tag| is_tag(tag)).map(str::to_owned));
            let next_url = link.and_then(|link| next_page(&url, &link));
            // Stop at a page without new tags, because such pages could continue forever.
            next = next_url.filter(|next| tags.len() > before && next.origin() == url.origin());
        }
        let completeness = if next.is_some() { Completeness::Truncated } else { Completeness::Complete };
        Ok((tags, completeness))
    }

    /// Lists the artifacts of a type that refer to an artifact. Returns `None` if the registry does not support this
    /// list.
    pub(crate) async fn referrers(
        &self,
        (repository, subject): (&Repository, &Digest),
        artifact_type: &str,
    ) -> Result<Option<Listing>, RegistryError> {
        let place = reference_text(repository, subject.as_str());
        let mut url = self.url(repository, &format!("referrers/{subject}"))?;
        url.query_pairs_mut().append_pair("artifactType", artifact_type);
        let (mut next, mut remaining_bytes, mut listing) = (Some(url), MAX_LIST_BYTES, None);
        for _ in 0..MAX_PAGES {
            let Some(url) = next.take() else { return Ok(listing) };
            let request = Request::get(url.clone()).accepting(INDEX_TYPE);
            let (headers, bytes) =
                match self.get_small((repository, Access::Pull), request, (&place, remaining_bytes)).await {
                    Ok(Some(page)) => page,
                    Ok(None) => return Ok(listing),
                    Err(RegistryError::TooLarge { .. }) => break,
                    // Treat any error of the server as a missing feature: registries that do not support lists of
                    // referrers respond with different errors.
                    Err(RegistryError::Server { .. }) if listing.is_none() => return Ok(None),
                    Err(error) => return Err(error),
                };
            let Ok(page) = serde_json::from_slice::<Index>(&bytes) else { return Ok(listing) };
            remaining_bytes = remaining_bytes.saturating_sub(bytes.len() as u64);
            let entries: &mut Vec<_> = &mut listing.get_or_insert_with(Listing::default).entries;
            let before = entries.len();
            entries.extend(page.manifests);
            let link = header(&headers, LINK.as_str()).and_then(|link| next_page(&url, &link));
            // Stop at a page without new entries, because a registry could send pages without new entries forever.
            next = link.filter(|next| entries.len() > before && next.origin() == url.origin());
        }
        Ok(Some(Listing { is_truncated: true, ..listing.unwrap_or_default() }))
    }

    fn url(&self, repository: &Repository, path: &str) -> Result<Url, RegistryError> {
        let (scheme, host) = (self.http.scheme(repository.host()), repository.host());
        let text = format!("{scheme}://{host}/v2/{}/{path}", repository.path());
        Url::parse(&text).map_err(|_| RegistryError::Reference { text, reason: "it does not form a valid URL" })
    }

    /// Sends a request. If the registry requires a login, sends the request again with credentials.
    async fn send(
        &self,
        repository: &Repository,
        access: Access,
        request: Request,
        place: &str,
    ) -> Result<Response, RegistryError> {
        let scope = access.scope(repository);
        // If the registry redirected the request to another server, that server must not receive credentials for
        // the registry.
        let origin = self.url(repository, "")?.origin();
        let is_same_origin = origin == request.url.origin();
        let key = (origin, scope);
        let cached_credentials = self.cached_credentials().get(&key).cloned().filter(|_| is_same_origin);
        let first = self.http.send(Request { credential: cached_credentials, ..request.clone() }, place).await?;
        if !is_same_origin || first.status() != StatusCode::UNAUTHORIZED {
            return self.check_permission(first, repository, place).await;
        }
        let Some(challenge) = read_challenge(&first) else {
            return self.check_permission(first, repository, place).await;
        };
        let login = self.credentials.login(repository.host(), request.url.scheme()).await?;
        let login = login.map(|login| OriginLogin::new(login, &request.url));
        let context = AuthContext {
            http: &self.http,
            url: &request.url,
            scope: &key.1,
            place,
            token_servers: &self.token_servers,
        };
        let Some(credential) = authenticate(&context, &challenge, login.as_ref()).await? else {
            let message = error_text(first).await;
            let advice = match login {
                Some(_) => {
                    format!(
                        "the credentials for {0} were not accepted: log in again with `docker login {0}`",
                        repository.host()
                    )
                }
                None => self.login_advice(repository),
            };
            return Err(RegistryError::Unauthorised { place: place.to_owned(), message, advice });
        };
        self.cached_credentials().insert(key.clone(), credential.clone());
        let second = self.http.send(Request { credential: Some(credential), ..request }, place).await?;
        if second.status() == StatusCode::UNAUTHORIZED {
            self.cached_credentials().remove(&key);
        }
        self.check_permission(second, repository, place).await
    }

    async fn check_permission(
        &self,
        response: Response,
        repository: &Repository,
        place: &str,
    ) -> Result<Response, RegistryError> {
        if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        let registry = self.url(repository, "")?;
        if route(&response) == Route::OtherOrigin || response.url().origin() != registry.origin() {
            let other = response.url().origin().ascii_serialization();
            let message = format!("the registry redirects to {other}: {}", error_text(response).await);
            let advice = format!("the credentials for {} are not sent to other servers", repository.host());
            return Err(RegistryError::Unauthorised { place: place.to_owned(), message, advice });
        }
        let advice = match self.credentials.login(repository.host(), registry.scheme()).await? {
            Some(_) => format!(
                "the credentials for {0} do not allow this: use `docker login {0}` to log in as another user",
                repository.host()
            ),
            None => self.login_advice(repository),
        };
        Err(RegistryError::Unauthorised { place: place.to_owned(), message: error_text(response).await, advice })
    }

    fn login_advice(&self, repository: &Repository) -> String {
        let file = self.credentials.file.as_ref().map(|file| format!(" in {}", file.display())).unwrap_or_default();
        format!(
            "there are no credentials for {0}{file}: log in with `docker login {0}` (or `skopeo login`, `oras login`)",
            repository.host()
        )
    }

    fn cached_credentials(&self) -> std::sync::MutexGuard<'_, HashMap<(Origin, String), OriginCredential>> {
        self.authorizations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the response if its status is a success, and an error with the server's message if it is not.
pub(crate) async fn ensure_success(response: Response, place: &str) -> Result<Response, RegistryError> {
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::NOT_FOUND => {
            let message = error_text(response).await;
            Err(RegistryError::NotFound { place: place.to_owned(), advice: format!(" ({message})") })
        }
        _ => Err(RegistryError::Server { place: place.to_owned(), message: error_text(response).await }),
    }
}

/// Returns the URL to which the bytes of an upload are sent. `started` is the URL of the request that started the
/// upload, and `network_scope` is the network scope of its server.
fn upload_url((started, network_scope): (&Url, NetworkScope), location: Option<&str>) -> Result<Url, String> {
    let location = location.and_then(|location| started.join(location).ok());
    let location = location
        .ok_or_else(|| "the server accepted an upload but did not return the address to send it to".to_owned())?;
    check_redirect_target((started, network_scope), &location).map_err(|why| {
        format!(
            "the server asks to send the upload to `{}`, {why}; nothing was sent there",
            display_text(location.as_str())
        )
    })?;
    Ok(location)
}

fn missing_content(place: String) -> RegistryError {
    let advice = ": the registry has the manifest, but not the content that it refers to".to_owned();
    RegistryError::NotFound { place, advice }
}

/// Formats a tag or digest in a repository as a reference, for messages.
fn reference_text(repository: &Repository, name: &str) -> String {
    let separator = if name.starts_with("sha256:") { '@' } else { ':' };
    format!("{repository}{separator}{name}")
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Parses a `Link` header of the form `<URL>; rel="next"`.
fn next_page(url: &Url, link: &str) -> Option<Url> {
    let (target, relation) = link.split_once('>')?;
    let target = target.trim().strip_prefix('<')?;
    relation.contains("next").then(|| url.join(target).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 18: an upload may be sent to another public server, but not to a private address.
    #[test]
    fn uploads_are_not_sent_to_private_addresses() {
        let started = Url::parse("https://registry.example/v2/a/blobs/uploads/").expect("the address is valid");
        let at = |location| upload_url((&started, NetworkScope::Public), location).map(String::from);
        assert_eq!(at(Some("/v2/a/1?x=y")).as_deref(), Ok("https://registry.example/v2/a/1?x=y"));
        assert_eq!(at(Some("https://store.example/1")).as_deref(), Ok("https://store.example/1"));
        for private in [
            "http://127.0.0.1:2375/build",
            "https://localhost/x",
            "https://10.0.0.1/",
            "http://store.example/1",
            "file:///x",
        ] {
            assert!(at(Some(private)).is_err_and(|message| message.contains("nothing was sent there")), "{private}");
        }
        assert!(at(None).is_err() && at(Some("http://[")).is_err());
    }
}
