//! A registry, as the OCI distribution specification has it: manifests, blobs, tags, referrers.

use crate::again::{AskedAgain, Listener, Repeat, Tries, asked_for, told};
use crate::auth::{Asker, answer, challenge_of};
use crate::credentials::Credentials;
use crate::error::{ShareError, shown};
use crate::http::{Http, PlainHttp, Request, Route, body, explained, may_lead, route};
use crate::oci::{Descriptor, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest};
use crate::origin::{OriginCredential, OriginLogin, TokenServers};
use crate::reach::{Reach, of_server};
use crate::reference::{Reference, Repository, is_tag};
use agent_core::message::Digest;
use agent_plugins::digest_of;
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LINK, LOCATION};
use reqwest::{Method, Response, StatusCode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use url::{Origin, Url};

/// Largest manifest or index; what registries themselves take.
const MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
/// Largest page of tags.
const TAGS_BYTES: u64 = 4 * 1024 * 1024;
/// All pages of a list of what refers to an artifact.
pub(crate) const LIST_BYTES: u64 = 16 * 1024 * 1024;
/// Tags that are read of one repository.
const MOST_TAGS: usize = 25_000;
/// Pages that they are read in.
const MOST_PAGES: usize = 100;

/// Asks registries. One for the process is enough: it remembers their tokens.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    credentials: Credentials,
    token_servers: TokenServers,
    /// By the registry's origin and the scope.
    authorizations: Mutex<HashMap<(Origin, String), OriginCredential>>,
}

/// Whether a list was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Whole,
    /// There are more than are read.
    Cut,
}

/// Artifacts that refer to another one.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Descriptor>,
    /// There are more, which were not read.
    pub(crate) stopped: bool,
}

/// What is done with a repository.
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

/// A manifest or an index as it came, with the digest of its bytes.
pub(crate) struct Stored {
    pub(crate) digest: Digest,
    pub(crate) bytes: Bytes,
    pub(crate) media_type: String,
}

impl Registry {
    /// With credentials for those that ask for some.
    pub fn new(credentials: Credentials, plain: PlainHttp) -> Result<Self, ShareError> {
        let (http, token_servers) = (Http::new(plain)?, TokenServers::default());
        Ok(Self { http, credentials, token_servers, authorizations: Mutex::default() })
    }

    /// The same, where logins of registries may also go to the token servers at these URLs when a registry names them.
    #[must_use]
    pub fn with_token_servers(mut self, urls: &[Url]) -> Self {
        self.token_servers = TokenServers::of(urls);
        self
    }

    /// The same, telling somebody whenever a request is sent again.
    #[must_use]
    pub fn telling(mut self, asked_again: Arc<AskedAgain>) -> Self {
        self.http.listener = Listener(Some(asked_again));
        self
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// What stands behind a tag or a digest. None: nothing. Who is about to push asks as one who may: some registries show a
    /// repository that is not there to nobody else.
    pub(crate) async fn stored(&self, at: (&Repository, Access), name: &str) -> Result<Option<Stored>, ShareError> {
        self.stored_within(at, name, MANIFEST_BYTES).await
    }

    /// The same, of at most so many bytes.
    pub(crate) async fn stored_within(
        &self,
        (repository, access): (&Repository, Access),
        name: &str,
        most: u64,
    ) -> Result<Option<Stored>, ShareError> {
        let place = place(repository, name);
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = Request::get(url).accepting(&format!("{MANIFEST_TYPE}, {INDEX_TYPE}, application/json;q=0.5"));
        let answer = self.whole((repository, access), request, (&place, most)).await?;
        let Some((headers, bytes)) = answer else { return Ok(None) };
        let told = header(&headers, "docker-content-digest").and_then(|digest| Digest::parse(&digest).ok());
        let media_type = header(&headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let digest = digest_of(&bytes);
        // Only the digest in the name binds; what the registry tells beside it must not differ either.
        for wanted in Digest::parse(name).ok().iter().chain(&told) {
            if *wanted != digest {
                return Err(ShareError::tampered(place, wanted, &digest));
            }
        }
        Ok(Some(Stored { digest, bytes, media_type }))
    }

    /// A small answer as a whole, asked for again where it was cut; none where there is nothing.
    async fn whole(
        &self,
        (repository, access): (&Repository, Access),
        request: Request,
        (place, most): (&str, u64),
    ) -> Result<Option<(HeaderMap, Bytes)>, ShareError> {
        let mut tries = Tries::new(&self.http.listener, place);
        loop {
            let response = self.send(repository, access, request.clone(), place).await?;
            if response.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let response = succeeded(response, place).await?;
            let headers = response.headers().clone();
            match body(response, most, place).await {
                Err(ShareError::Cut { reason, .. }) if tries.wait(reason.clone(), None).await => {}
                bytes => return bytes.map(|bytes| Some((headers, bytes))),
            }
        }
    }

    /// The artifact behind a reference.
    pub(crate) async fn manifest(&self, reference: &Reference) -> Result<(Digest, u64, Manifest), ShareError> {
        let repository = reference.repository();
        let name = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        };
        let Some(stored) = self.stored((repository, Access::Pull), name).await? else {
            return Err(self.not_found(reference).await);
        };
        let not = |what: String| ShareError::NotAPlugin { place: reference.to_string(), what };
        let json: serde_json::Value = serde_json::from_slice(&stored.bytes)
            .map_err(|_| not("what the registry has there is no JSON".to_owned()))?;
        let kind = json["mediaType"].as_str().unwrap_or(&stored.media_type);
        if kind == INDEX_TYPE || kind.contains("manifest.list") || json["manifests"].is_array() {
            return Err(not("it is an index of several artifacts, such as an image for several platforms".to_owned()));
        }
        let manifest = serde_json::from_value(json)
            .map_err(|error| not(format!("its manifest cannot be read: {}", shown(&error.to_string()))))?;
        Ok((stored.digest, stored.bytes.len() as u64, manifest))
    }

    /// What there is instead.
    async fn not_found(&self, reference: &Reference) -> ShareError {
        let mut tags = self.tags(reference.repository()).await.unwrap_or_default();
        // Lists of signatures are for programs.
        tags.retain(|tag| !tag.starts_with("sha256-"));
        let advice = match tags.as_slice() {
            [] => ": the registry has no such repository, or does not show it to you".to_owned(),
            tags => {
                let some: Vec<_> = tags.iter().rev().take(8).map(String::as_str).collect();
                format!(
                    "; the tags of {} are: {}{}",
                    reference.repository(),
                    some.join(", "),
                    if tags.len() > 8 { " …" } else { "" }
                )
            }
        };
        ShareError::NotFound { place: reference.to_string(), advice }
    }

    /// Puts a manifest or an index under a tag or its digest.
    pub(crate) async fn put(
        &self,
        repository: &Repository,
        name: &str,
        (bytes, media_type): (&[u8], &str),
    ) -> Result<Digest, ShareError> {
        let place = place(repository, name);
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = Request::new(Method::PUT, url).with_body(bytes.to_vec(), media_type);
        let response = succeeded(self.send(repository, Access::Push, request, &place).await?, &place).await?;
        let digest = digest_of(bytes);
        let told = header(response.headers(), "docker-content-digest").and_then(|digest| Digest::parse(&digest).ok());
        match told {
            Some(told) if told != digest => Err(ShareError::tampered(place, &digest, &told)),
            _ => Ok(digest),
        }
    }

    /// Puts bytes there, unless they are there already. An upload that was cut, or failed so that nobody knows how far it came, begins
    /// anew with that question: neither is the same session used twice, nor are bytes sent that have arrived.
    pub(crate) async fn put_blob(&self, repository: &Repository, bytes: &Bytes) -> Result<(), ShareError> {
        let digest = digest_of(bytes);
        let place = place(repository, digest.as_str());
        let mut tries = Tries::new(&self.http.listener, &place);
        loop {
            match self.upload(repository, (bytes, &digest), &place).await {
                Ok(Some(failed)) if Repeat::IfUnknown.after(failed.status()) => {
                    if !tries.wait(told(&failed), asked_for(failed.headers())).await {
                        return succeeded(failed, &place).await.map(drop);
                    }
                }
                Ok(Some(failed)) => return succeeded(failed, &place).await.map(drop),
                Ok(None) => return Ok(()),
                Err(ShareError::Cut { reason, .. }) if tries.wait(reason.clone(), None).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The answer that says that it is not there.
    async fn upload(
        &self,
        repository: &Repository,
        (bytes, digest): (&Bytes, &Digest),
        place: &str,
    ) -> Result<Option<Response>, ShareError> {
        let there = Request::new(Method::HEAD, self.url(repository, &format!("blobs/{digest}"))?);
        if self.send(repository, Access::Push, there, place).await?.status() == StatusCode::OK {
            return Ok(None);
        }
        let begin = Request::new(Method::POST, self.url(repository, "blobs/uploads/")?)
            .with_body("", "application/octet-stream");
        let begun = self.send(repository, Access::Push, begin, place).await?;
        if !begun.status().is_success() {
            return Ok(Some(begun));
        }
        let location = header(begun.headers(), LOCATION.as_str());
        let reach = of_server(begun.url()).await;
        let mut location = upload_at((begun.url(), reach), location.as_deref())
            .map_err(|said| ShareError::Server { place: place.to_owned(), said })?;
        location.query_pairs_mut().append_pair("digest", digest.as_str());
        let new = Request::new(Method::PUT, location);
        let upload = Request { repeat: Repeat::IfRefused, led_by: Some(reach), ..new }
            .with_body(bytes.clone(), "application/octet-stream");
        let uploaded = self.send(repository, Access::Push, upload, place).await?;
        Ok(Some(uploaded).filter(|uploaded| !uploaded.status().is_success()))
    }

    /// A blob from a byte on, as it comes.
    pub(crate) async fn open_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        from: u64,
    ) -> Result<Response, ShareError> {
        let place = place(repository, digest.as_str());
        let request = Request { from, ..Request::get(self.url(repository, &format!("blobs/{digest}"))?) };
        let response = self.send(repository, Access::Pull, request, &place).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(lost(place));
        }
        Ok(response)
    }

    /// A small blob, verified.
    pub(crate) async fn blob(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        most: u64,
    ) -> Result<Bytes, ShareError> {
        let place = place(repository, descriptor.digest.as_str());
        if descriptor.size > most {
            return Err(ShareError::TooLarge { place, size: descriptor.size, most });
        }
        let request = Request::get(self.url(repository, &format!("blobs/{}", descriptor.digest))?);
        let answer = self.whole((repository, Access::Pull), request, (&place, descriptor.size)).await?;
        let (_, bytes) = answer.ok_or_else(|| lost(place.clone()))?;
        let found = digest_of(&bytes);
        if found == descriptor.digest {
            Ok(bytes)
        } else {
            Err(ShareError::tampered(place, &descriptor.digest, &found))
        }
    }

    /// The tags of a repository; none where there is no such repository.
    pub(crate) async fn tags(&self, repository: &Repository) -> Result<Vec<String>, ShareError> {
        self.tag_list(repository).await.map(|(tags, _)| tags)
    }

    /// The same, and whether these are all.
    pub(crate) async fn tag_list(&self, repository: &Repository) -> Result<(Vec<String>, Completeness), ShareError> {
        let place = repository.to_string();
        let mut next = Some(self.url(repository, "tags/list?n=1000")?);
        let mut tags: Vec<String> = Vec::new();
        for _ in 0..MOST_PAGES {
            if tags.len() >= MOST_TAGS {
                break;
            }
            let Some(url) = next.take() else { break };
            let request = Request::get(url.clone());
            let answer = self.whole((repository, Access::Pull), request, (&place, TAGS_BYTES)).await?;
            let Some((headers, bytes)) = answer else { break };
            let link = header(&headers, LINK.as_str());
            let page: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let before = tags.len();
            let told = page["tags"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
            // Tags become parts of addresses, and are shown.
            tags.extend(told.filter(|tag| is_tag(tag)).map(str::to_owned));
            let follows = link.and_then(|link| next_page(&url, &link));
            // A page without anything new would lead on for ever.
            next = follows.filter(|next| tags.len() > before && next.origin() == url.origin());
        }
        let completeness = if next.is_some() { Completeness::Cut } else { Completeness::Whole };
        Ok((tags, completeness))
    }

    /// The artifacts of a type that refer to an artifact, page by page. None: the registry keeps no such list.
    pub(crate) async fn referrers(
        &self,
        (repository, subject): (&Repository, &Digest),
        artifact_type: &str,
    ) -> Result<Option<Listing>, ShareError> {
        let place = place(repository, subject.as_str());
        let mut url = self.url(repository, &format!("referrers/{subject}"))?;
        url.query_pairs_mut().append_pair("artifactType", artifact_type);
        let (mut next, mut room, mut listing) = (Some(url), LIST_BYTES, None);
        for _ in 0..MOST_PAGES {
            let Some(url) = next.take() else { return Ok(listing) };
            let request = Request::get(url.clone()).accepting(INDEX_TYPE);
            let (headers, bytes) = match self.whole((repository, Access::Pull), request, (&place, room)).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(listing),
                Err(ShareError::TooLarge { .. }) => break,
                // A registry without such a list says so in different ways.
                Err(ShareError::Server { .. }) if listing.is_none() => return Ok(None),
                Err(error) => return Err(error),
            };
            let Ok(page) = serde_json::from_slice::<Index>(&bytes) else { return Ok(listing) };
            room = room.saturating_sub(bytes.len() as u64);
            let entries: &mut Vec<_> = &mut listing.get_or_insert_with(Listing::default).entries;
            let before = entries.len();
            entries.extend(page.manifests);
            let link = header(&headers, LINK.as_str()).and_then(|link| next_page(&url, &link));
            // A page without anything new would lead on for ever.
            next = link.filter(|next| entries.len() > before && next.origin() == url.origin());
        }
        Ok(Some(Listing { stopped: true, ..listing.unwrap_or_default() }))
    }

    fn url(&self, repository: &Repository, path: &str) -> Result<Url, ShareError> {
        let (scheme, host) = (self.http.scheme(repository.host()), repository.host());
        let text = format!("{scheme}://{host}/v2/{}/{path}", repository.path());
        Url::parse(&text).map_err(|_| ShareError::Reference { text, reason: "it makes no address" })
    }

    /// Sends, and once more with credentials where the registry asks for them.
    async fn send(
        &self,
        repository: &Repository,
        access: Access,
        request: Request,
        place: &str,
    ) -> Result<Response, ShareError> {
        let scope = access.scope(repository);
        // What the server has sent us elsewhere to is no place for what this registry gave us.
        let origin = self.url(repository, "")?.origin();
        let own = origin == request.url.origin();
        let key = (origin, scope);
        let known = self.known().get(&key).cloned().filter(|_| own);
        let first = self.http.send(Request { credential: known, ..request.clone() }, place).await?;
        if !own || first.status() != StatusCode::UNAUTHORIZED {
            return self.allowed(first, repository, place).await;
        }
        let Some(challenge) = challenge_of(&first) else { return self.allowed(first, repository, place).await };
        let login = self.credentials.login(repository.host(), request.url.scheme()).await?;
        let login = login.map(|login| OriginLogin::new(login, &request.url));
        let asker =
            Asker { http: &self.http, url: &request.url, scope: &key.1, place, token_servers: &self.token_servers };
        let Some(credential) = answer(&asker, &challenge, login.as_ref()).await? else {
            let said = explained(first).await;
            let advice = match login {
                Some(_) => format!("the credentials for {0} are not accepted: `docker login {0}`", repository.host()),
                None => self.no_login(repository),
            };
            return Err(ShareError::Unauthorised { place: place.to_owned(), said, advice });
        };
        self.known().insert(key.clone(), credential.clone());
        let second = self.http.send(Request { credential: Some(credential), ..request }, place).await?;
        if second.status() == StatusCode::UNAUTHORIZED {
            self.known().remove(&key);
        }
        self.allowed(second, repository, place).await
    }

    async fn allowed(&self, response: Response, repository: &Repository, place: &str) -> Result<Response, ShareError> {
        if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        let registry = self.url(repository, "")?;
        if route(&response) == Route::OtherOrigin || response.url().origin() != registry.origin() {
            let other = response.url().origin().ascii_serialization();
            let said = format!("the registry leads to {other}: {}", explained(response).await);
            let advice =
                format!("the credentials for {} are for it alone and are not sent elsewhere", repository.host());
            return Err(ShareError::Unauthorised { place: place.to_owned(), said, advice });
        }
        let advice = match self.credentials.login(repository.host(), registry.scheme()).await? {
            Some(_) => format!(
                "the credentials for {0} do not allow it: `docker login {0}` logs in as somebody else",
                repository.host()
            ),
            None => self.no_login(repository),
        };
        Err(ShareError::Unauthorised { place: place.to_owned(), said: explained(response).await, advice })
    }

    fn no_login(&self, repository: &Repository) -> String {
        let file = self.credentials.file.as_ref().map(|file| format!(" in {}", file.display())).unwrap_or_default();
        format!(
            "there are no credentials for {0}{file}: `docker login {0}` (or `skopeo login`, `oras login`) writes them",
            repository.host()
        )
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<(Origin, String), OriginCredential>> {
        self.authorizations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is what was asked for, or an error with the server's words.
pub(crate) async fn succeeded(response: Response, place: &str) -> Result<Response, ShareError> {
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::NOT_FOUND => {
            let said = explained(response).await;
            Err(ShareError::NotFound { place: place.to_owned(), advice: format!(" ({said})") })
        }
        _ => Err(ShareError::Server { place: place.to_owned(), said: explained(response).await }),
    }
}

/// Where an upload goes that was begun at `begun`, on a server of this reach.
fn upload_at((begun, reach): (&Url, Reach), location: Option<&str>) -> Result<Url, String> {
    let location = location.and_then(|location| begun.join(location).ok());
    let location = location.ok_or_else(|| "it takes an upload and does not say where".to_owned())?;
    may_lead((begun, reach), &location).map_err(|why| {
        format!("it wants the upload at `{}`, {why}; nothing is sent there", shown(location.as_str()))
    })?;
    Ok(location)
}

fn lost(place: String) -> ShareError {
    ShareError::NotFound { place, advice: ": the registry has the manifest, but has lost what it names".to_owned() }
}

/// A place in a repository, for people.
fn place(repository: &Repository, name: &str) -> String {
    let sign = if name.starts_with("sha256:") { '@' } else { ':' };
    format!("{repository}{sign}{name}")
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// `<URL>; rel="next"`
fn next_page(url: &Url, link: &str) -> Option<Url> {
    let (target, relation) = link.split_once('>')?;
    let target = target.trim().strip_prefix('<')?;
    relation.contains("next").then(|| url.join(target).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 18: a registry gets an upload at its own place or at another of the network, and sends nobody inside.
    #[test]
    fn uploads_are_not_sent_inside() {
        let begun = Url::parse("https://registry.example/v2/a/blobs/uploads/").expect("an address");
        let at = |location| upload_at((&begun, Reach::Public), location).map(String::from);
        assert_eq!(at(Some("/v2/a/1?x=y")).as_deref(), Ok("https://registry.example/v2/a/1?x=y"));
        assert_eq!(at(Some("https://store.example/1")).as_deref(), Ok("https://store.example/1"));
        for inside in [
            "http://127.0.0.1:2375/build",
            "https://localhost/x",
            "https://10.0.0.1/",
            "http://store.example/1",
            "file:///x",
        ] {
            assert!(at(Some(inside)).is_err_and(|said| said.contains("nothing is sent there")), "{inside}");
        }
        assert!(at(None).is_err() && at(Some("http://[")).is_err());
    }
}
