//! Requests to an S3-compatible object store: each is signed, limited in time and size, and sent once. The callers decide about
//! repeats.

use super::address::{ObjectStoreAddress, is_local};
use super::problem::ObjectProblem;
use crate::StoreError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use rusty_s3::{Bucket, Credentials, Method, S3Action as _};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;
use uuid::Uuid;

/// Maximum time to establish a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum time of a request, in addition to the time for its bytes.
const REQUEST_TIME: Duration = Duration::from_secs(20);
/// The slowest connection with which requests succeed, in bytes per second.
const SLOWEST: u64 = 256 << 10;
/// Time for which a signed request is valid. The clocks of both machines may differ by less.
const VALIDITY: Duration = Duration::from_secs(900);
/// Maximum number of bytes that are read of an error.
const MAX_ERROR_BYTES: u64 = 16 << 10;
/// Maximum number of bytes of a page of a list.
const MAX_LIST_BYTES: u64 = 4 << 20;
/// Maximum number of objects in a page of a list.
const LIST_PAGE: usize = 1000;

/// A client for the objects below one prefix.
pub(crate) struct ObjectClient {
    http: Client,
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    shown: String,
    endpoint: String,
}

impl ObjectClient {
    pub(crate) fn new(address: &ObjectStoreAddress) -> Result<Self, StoreError> {
        // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("agent-host/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIME);
        if is_local(&address.endpoint) {
            builder = builder.no_proxy();
        }
        if address.endpoint.scheme() == "http" {
            // The system's certificates are not needed, and loading them could fail.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| StoreError::ObjectStore {
            store: address.shown.clone(),
            problem: format!("TLS cannot be used: {}", error.without_url()),
        })?;
        let endpoint = address.endpoint.origin().ascii_serialization();
        let ObjectStoreAddress { bucket, credentials, prefix, shown, .. } = address.clone();
        Ok(Self { http, bucket, credentials, prefix, shown, endpoint })
    }

    /// Returns a client for the objects in a folder below the prefix of this client.
    pub(crate) fn in_folder(mut self, folder: &str) -> Self {
        self.prefix = format!("{}{folder}/", self.prefix);
        self
    }

    /// Returns the address of the object store without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Writes an object. The server compares the bytes with their digest.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes, sha256: &[u8; 32]) -> Result<(), ObjectProblem> {
        let key = self.key(name)?;
        let (size, checksum) = (bytes.len() as u64, STANDARD.encode(sha256));
        let mut action = self.bucket.put_object(Some(&self.credentials), &key);
        action.headers_mut().insert("x-amz-checksum-sha256", checksum.as_str());
        let request =
            self.http.put(action.sign(VALIDITY)).header("x-amz-checksum-sha256", checksum.as_str()).body(bytes);
        within(size, self.send(request)).await.map(drop)
    }

    /// Reads the bytes from `start` to `end` of an object with `size` bytes. Fails if the object has another size.
    pub(crate) async fn read(&self, name: &str, (start, end): (u64, u64), size: u64) -> Result<Vec<u8>, ObjectProblem> {
        if start >= end {
            return Ok(Vec::new());
        }
        let key = self.key(name)?;
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(VALIDITY);
        let request = self.http.get(url).header("range", format!("bytes={start}-{}", end - 1));
        within(end - start, async {
            let response = self.send(request).await?;
            let is_range = response.status() == StatusCode::PARTIAL_CONTENT;
            let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
            let expected = format!("bytes {start}-{}/{size}", end - 1);
            // A server may answer with the whole object.
            let is_whole = !is_range && start == 0 && end == size;
            if !is_whole && range != Some(expected.as_str()) {
                return Err(ObjectProblem::Changed);
            }
            let bytes = self.beginning(response, end - start + 1).await?;
            if bytes.len() as u64 == end - start { Ok(bytes) } else { Err(ObjectProblem::Changed) }
        })
        .await
    }

    /// Deletes an object. An object that does not exist counts as deleted.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), ObjectProblem> {
        let key = self.key(name)?;
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(VALIDITY);
        match within(0, self.send(self.http.delete(url))).await {
            Ok(_) | Err(ObjectProblem::Missing) => Ok(()),
            Err(problem) => Err(problem),
        }
    }

    /// Returns the names of up to 1,000 objects after a name, in the order of their names. Fails if the server does not return them
    /// in this order, because a search would then not end.
    pub(crate) async fn list(&self, after: &str) -> Result<Vec<String>, ObjectProblem> {
        let (start, page) = (format!("{}{after}", self.prefix), LIST_PAGE.to_string());
        let mut query = vec![
            ("encoding-type", "url"),
            ("list-type", "2"),
            ("max-keys", page.as_str()),
            ("prefix", self.prefix.as_str()),
        ];
        if !after.is_empty() {
            query.push(("start-after", start.as_str()));
        }
        let url = rusty_s3::signing::sign(
            &Timestamp::now(),
            Method::Get,
            self.bucket.base_url().clone(),
            self.credentials.key(),
            self.credentials.secret(),
            self.credentials.token(),
            self.bucket.region(),
            VALIDITY.as_secs(),
            query.iter().copied(),
            std::iter::empty(),
        );
        let body = within(MAX_LIST_BYTES, async {
            let response = self.send(self.http.get(url)).await?;
            let bytes = self.beginning(response, MAX_LIST_BYTES + 1).await?;
            if bytes.len() as u64 > MAX_LIST_BYTES {
                return Err(ObjectProblem::Refused("its list is too long".to_owned()));
            }
            Ok(bytes)
        })
        .await?;
        let body = String::from_utf8(body).map_err(|_| ObjectProblem::Refused("its list is not text".to_owned()))?;
        let names = listed(&body).map(|key| key.strip_prefix(&self.prefix).map(str::to_owned));
        let names = names.collect::<Option<Vec<_>>>().filter(|names| ascend(after, names));
        names.ok_or_else(|| ObjectProblem::Refused("its list contains other names than were asked for".to_owned()))
    }

    /// Writes, reads and deletes a small object.
    pub(crate) async fn check(&self) -> Result<(), ObjectProblem> {
        let name = format!("check-{}", Uuid::new_v4().simple());
        let content = Bytes::from_static(b"agent-host checks whether it can use this object store");
        self.put(&name, content.clone(), &Sha256::digest(&content).into()).await?;
        let size = content.len() as u64;
        let found = self.read(&name, (0, size), size).await;
        self.delete(&name).await?;
        if found? != content {
            return Err(ObjectProblem::Changed);
        }
        self.list("").await.map(drop)
    }

    /// Returns the key of an object. Fails if the name could lead to another folder: names come from the database.
    fn key(&self, name: &str) -> Result<String, ObjectProblem> {
        let is_part =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if name.split('/').all(is_part) {
            return Ok(format!("{}{name}", self.prefix));
        }
        Err(ObjectProblem::Refused("the database contains a name that no object has".to_owned()))
    }

    /// Sends a request. Every answer but a success is a problem.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ObjectProblem> {
        let failed = |error| ObjectProblem::of_transport(error, &self.endpoint);
        let response = request.send().await.map_err(failed)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = self.beginning(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        Err(ObjectProblem::of_answer(status, &String::from_utf8_lossy(&body)))
    }

    /// Reads up to `limit` bytes of a body.
    async fn beginning(&self, response: Response, limit: u64) -> Result<Vec<u8>, ObjectProblem> {
        let mut stream = response.bytes_stream();
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| ObjectProblem::of_transport(error, &self.endpoint))?;
            let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= room {
                break;
            }
        }
        Ok(bytes)
    }
}

/// Ends a request that takes too long for the number of its bytes.
async fn within<T>(bytes: u64, request: impl Future<Output = Result<T, ObjectProblem>>) -> Result<T, ObjectProblem> {
    let time = REQUEST_TIME + Duration::from_secs(bytes / SLOWEST);
    tokio::time::timeout(time, request).await.unwrap_or_else(|_| {
        let problem = format!("it did not answer within {} seconds: check the server and the network", time.as_secs());
        Err(ObjectProblem::Temporary(problem))
    })
}

/// Returns the keys in a list. If the server encodes them as it was asked to, they contain no characters that XML escapes.
fn listed(body: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let is_encoded = body.contains("<EncodingType>url</EncodingType>");
    let keys = body.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0));
    keys.map(move |key| match is_encoded {
        true => Cow::Owned(percent_decode_str(&key.replace('+', " ")).decode_utf8_lossy().into_owned()),
        false => Cow::Borrowed(key),
    })
}

/// Whether each of these names comes after the one before it.
fn ascend<'n>(mut after: &'n str, names: &'n [String]) -> bool {
    names.iter().all(|name| {
        let is_later = name.as_str() > after;
        after = name;
        is_later
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_list() {
        let body = "<ListBucketResult><Contents><Key>a/1</Key><Size>3</Size></Contents><Contents><Key>b</Key></Contents>\
                    <Key>open";
        assert_eq!(listed(body).collect::<Vec<_>>(), ["a/1", "b"]);
        assert_eq!(listed("no list").count(), 0);
        let encoded = "<EncodingType>url</EncodingType><Key>a/zz%3Cx+%2B%26</Key>";
        assert_eq!(listed(encoded).collect::<Vec<_>>(), ["a/zz<x +&"]);
    }

    /// F1: a list that does not go forward ends a search.
    #[test]
    fn f1_names_of_a_list_ascend() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(ascend("", &names(&["a", "b"])) && ascend("a", &names(&["b"])) && ascend("a", &[]));
        assert!(!ascend("b", &names(&["a"])) && !ascend("a", &names(&["a"])) && !ascend("", &names(&["a", "a"])));
    }

    /// F1: a changed database leads to no object outside of the folder.
    #[test]
    fn f1_names_lead_to_no_other_folder() {
        let values = |name: &str| Some(if name.contains("URL") { "http://127.0.0.1:1" } else { "value" }.to_owned());
        let address = ObjectStoreAddress::parse("s3://media/agents", values).unwrap();
        let client = ObjectClient::new(&address).unwrap().in_folder("database");
        assert_eq!(client.key("ab/cd-01").unwrap(), "agents/database/ab/cd-01");
        for name in
            ["", "..", "../other/ab", "ab/../../other", "/ab", "ab/", "ab//cd", "ab/%2e%2e/cd", "ab/c?d", "ab/c.d"]
        {
            assert!(client.key(name).is_err(), "{name}");
        }
    }
}
