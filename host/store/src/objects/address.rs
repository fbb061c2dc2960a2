//! The address of an object store and how to sign in to it. Messages contain only the parts that are not secret.

use crate::StoreError;
use rusty_s3::{Bucket, Credentials, UrlStyle};
use std::fmt;
use url::{Host, Url};

/// Maximum number of characters of a prefix.
const LONGEST_PREFIX: usize = 200;

const FORM: &str = "write s3://BUCKET or s3://BUCKET/PREFIX, with letters, digits, `-`, `_` and `.`; the access key is in \
                    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

/// The address of a folder in an S3-compatible object store, such as `s3://BUCKET/PREFIX`, and how to sign in. `Display` and
/// `Debug` write only the bucket and the prefix.
///
/// ```
/// use agent_store::ObjectStoreAddress;
///
/// let variable = |name: &str| match name {
///     "AWS_ACCESS_KEY_ID" => Some("key".to_owned()),
///     "AWS_SECRET_ACCESS_KEY" => Some("secret".to_owned()),
///     "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:9000".to_owned()),
///     _ => None,
/// };
/// let address = ObjectStoreAddress::parse("s3://media/agents", variable)?;
/// assert_eq!(format!("{address} {address:?}"), "s3://media/agents ObjectStoreAddress(\"s3://media/agents\")");
/// # Ok::<(), agent_store::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectStoreAddress {
    pub(super) bucket: Bucket,
    pub(super) credentials: Credentials,
    /// Beginning of all keys, which is empty or ends with `/`.
    pub(super) prefix: String,
    /// The address without secrets.
    pub(super) shown: String,
    /// The scheme, host and port of the server.
    pub(super) endpoint: Url,
}

impl ObjectStoreAddress {
    /// Reads an address `s3://BUCKET/PREFIX`, and the variables that the programs of AWS use: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, and `AWS_REGION` or
    /// `AWS_DEFAULT_REGION`. An empty variable counts as unset. A server on another machine needs `https://`, unless the address
    /// ends with `?tls=disable`. No error contains a part of the address or of a variable.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let variable =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let (bucket, prefix, is_tls_disabled) = parts(text).ok_or_else(|| invalid(FORM))?;
        let first = |names: [&str; 2]| names.into_iter().find_map(&variable);
        let region = first(["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let endpoint = first(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let is_aws = endpoint.is_none();
        let (endpoint, region) = match (endpoint, region) {
            (Some(endpoint), region) => (endpoint, region.unwrap_or_else(|| "us-east-1".to_owned())),
            (None, Some(region)) => (format!("https://s3.{region}.amazonaws.com"), region),
            (None, None) => {
                return Err(invalid("set AWS_REGION, or AWS_ENDPOINT_URL for a server that is not in AWS"));
            }
        };
        if !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(invalid("AWS_REGION must be the name of a region, such as eu-central-1"));
        }
        let endpoint = server(&endpoint)
            .ok_or_else(|| invalid("AWS_ENDPOINT_URL must be https://HOST:PORT, without a user or password"))?;
        if endpoint.scheme() == "http" && !is_tls_disabled && !is_local(&endpoint) {
            return Err(invalid(
                "AWS_ENDPOINT_URL begins with http://, so everybody in the network could read the media: use https://, or end \
                 the address with ?tls=disable if the network is private",
            ));
        }
        let (Some(key), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) else {
            return Err(invalid("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to an access key for the bucket"));
        };
        let credentials = match variable("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        // The certificate of AWS covers only one label in front of its host name.
        let style = if is_aws && !bucket.contains('.') { UrlStyle::VirtualHost } else { UrlStyle::Path };
        let shown = format!("s3://{bucket}{}{prefix}", if prefix.is_empty() { "" } else { "/" });
        let bucket = Bucket::new(endpoint.clone(), style, bucket.to_owned(), region).map_err(|_| invalid(FORM))?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { bucket, credentials, prefix, shown, endpoint })
    }

    /// Checks that the object store can be reached, that the bucket exists, and that objects can be written, read and deleted.
    pub async fn check(&self) -> Result<(), StoreError> {
        super::ObjectClient::new(self)?.check().await.map_err(|problem| problem.into_error(&self.shown))
    }
}

fn invalid(problem: &str) -> StoreError {
    StoreError::InvalidObjectStore { problem: problem.to_owned() }
}

/// Splits `s3://BUCKET/PREFIX?tls=disable`.
fn parts(text: &str) -> Option<(&str, &str, bool)> {
    let rest = text.strip_prefix("s3://")?;
    let (rest, is_tls_disabled) = match rest.split_once('?') {
        None => (rest, false),
        Some((rest, "tls=disable")) => (rest, true),
        Some(_) => return None,
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_bucket = (3..=63).contains(&bucket.len()) && bucket.chars().all(is_plain) && !bucket.contains("..");
    let is_segment = |segment: &str| !segment.is_empty() && !segment.starts_with('.') && segment.chars().all(is_plain);
    let is_prefix = prefix.is_empty() || (prefix.len() <= LONGEST_PREFIX && prefix.split('/').all(is_segment));
    (is_bucket && is_prefix && !bucket.starts_with('.')).then_some((bucket, prefix, is_tls_disabled))
}

fn server(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    (is_plain && url.has_host()).then_some(url)
}

/// Whether connections to the server stay on this machine.
pub(super) fn is_local(server: &Url) -> bool {
    match server.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl fmt::Display for ObjectStoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for ObjectStoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ObjectStoreAddress").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a variable of a usual environment, in which `changed` replaces values.
    fn with<'v>(changed: &'v [(&'v str, &'v str)]) -> impl Fn(&str) -> Option<String> + 'v {
        let usual =
            [("AWS_ACCESS_KEY_ID", "s3cret-key"), ("AWS_SECRET_ACCESS_KEY", "s3cret-secret"), ("AWS_REGION", "eu-1")];
        move |name| {
            let find =
                |list: &[(&str, &str)]| list.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            find(changed).or_else(|| find(&usual))
        }
    }

    /// F1: the address is shown without secrets, and a server without TLS must be on this machine.
    #[test]
    fn f1_object_stores_are_shown_without_secrets() {
        let address = ObjectStoreAddress::parse("s3://media/a/b/", with(&[("AWS_SESSION_TOKEN", "s3cret")])).unwrap();
        assert_eq!((address.to_string().as_str(), address.prefix.as_str()), ("s3://media/a/b", "a/b/"));
        assert_eq!(address.bucket.base_url().as_str(), "https://media.s3.eu-1.amazonaws.com/");
        assert!(!format!("{address:?}").contains("s3cret"));
        let local = [("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"), ("AWS_REGION", "")];
        let address = ObjectStoreAddress::parse("s3://media", with(&local)).unwrap();
        assert_eq!((address.to_string().as_str(), address.prefix.as_str()), ("s3://media", ""));
        assert_eq!(address.bucket.base_url().as_str(), "http://127.0.0.1:9000/media/");
        let other = [("AWS_ENDPOINT_URL", "http://minio.example:9000")];
        let refused = ObjectStoreAddress::parse("s3://media", with(&other)).unwrap_err().to_string();
        assert!(refused.contains("?tls=disable") && !refused.contains("minio"), "{refused}");
        assert!(ObjectStoreAddress::parse("s3://media?tls=disable", with(&other)).is_ok());
        for missing in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
            let refused = ObjectStoreAddress::parse("s3://media", with(&[(missing, " ")])).unwrap_err().to_string();
            assert!(refused.contains(missing) && !refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn f1_wrong_object_stores_are_refused_without_naming_them() {
        let wrong = [
            "",
            "s3cret",
            "s3://",
            "s3://s3",
            "s3://ann:s3cret@bucket",
            "s3://bucket//s3cret",
            "s3://bucket/../s3cret",
            "s3://bucket/s3cret?x",
            "s3://buck et/s3cret",
            "https://bucket/s3cret",
            "s3://buc..ket",
            "s3://bucket/s3cret\n",
        ];
        for text in wrong {
            let refused = ObjectStoreAddress::parse(text, with(&[])).expect_err(text).to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        for endpoint in ["s3cret", "ftp://s3cret", "https://ann:s3cret@h", "https://h?s3cret", "https://"] {
            let endpoint = [("AWS_ENDPOINT_URL", endpoint)];
            let refused =
                ObjectStoreAddress::parse("s3://media", with(&endpoint)).expect_err(endpoint[0].1).to_string();
            assert!(refused.contains("AWS_ENDPOINT_URL") && !refused.contains("s3cret"), "{refused}");
        }
    }
}
