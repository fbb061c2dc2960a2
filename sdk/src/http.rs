//! Sends HTTP requests through `wasi:http`. A plugin that uses this module needs the grant `http`. A plugin that does
//! not use this module does not import `wasi:http`. This module does not follow redirects. To follow a redirect, send a
//! request to the address in the header `location`.

use crate::tool::ToolError;

/// The reason why a request has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address does not start with `http://` or `https://`, or is invalid.
    #[error("`{0}` is not an http or https address")]
    Url(String),
    /// The agent's configuration does not grant this request, or does not grant access to the IP address of the
    /// request's host.
    #[error("the request {0} is not granted")]
    Denied(String),
    /// The server did not respond within the time limit, or the connection failed.
    #[error("there is no response: {0}")]
    Unavailable(String),
    /// The body of the response is larger than the limit that [`Request::at_most`] sets. The error contains this limit
    /// in bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
}

impl From<HttpError> for ToolError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Url(_) => ToolError::invalid("/url", error.to_string()),
            HttpError::Denied(_) => ToolError::denied(error.to_string()),
            HttpError::Unavailable(_) => ToolError::unavailable(error.to_string()),
            HttpError::TooLarge(_) => ToolError::failed(error.to_string()),
        }
    }
}

/// An HTTP request that a plugin can send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method in capital letters, such as `GET`.
    pub method: String,
    /// The address with scheme and host.
    pub url: String,
    /// Names and values of the headers. The host adds the headers that the protocol needs, and the secrets that the
    /// agent grants for this destination.
    pub headers: Vec<(String, String)>,
    /// The body of the request. The maximum size is 1 MiB.
    pub body: Vec<u8>,
    /// Maximum size of the response body in bytes. If the body is larger, the request fails. The default is 1 MiB, and
    /// the host accepts values up to 10 MiB.
    pub at_most: usize,
}

/// An HTTP response. A response with an error status, such as 404, is not an [`HttpError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code, such as 200.
    pub status: u16,
    /// The names and values of the headers. The names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes of the response body, unchanged.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a GET request without headers and without a body.
    pub fn get(url: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), url: url.into(), headers: Vec::new(), body: Vec::new(), at_most: 1024 * 1024 }
    }

    /// Adds a header to the request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the maximum size of the response body in bytes.
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.at_most = bytes;
        self
    }

    /// Sends the request and waits for the complete response.
    pub fn send(self) -> Result<Response, HttpError> {
        backend::send(self)
    }
}

impl Response {
    /// Returns the value of the first header with this name, or `None` if the header does not exist. `name` must be in
    /// lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{HttpError, Request, Response};
    use wasip2::http::outgoing_handler::handle;
    use wasip2::http::types::{
        ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
    };
    use wasip2::io::streams::StreamError;

    pub(super) fn send(request: Request) -> Result<Response, HttpError> {
        let description = format!("{} {}", request.method, request.url.split('?').next().unwrap_or_default());
        let convert_error = |error: ErrorCode| match error {
            ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => HttpError::Denied(description.clone()),
            ErrorCode::InternalError(Some(text)) => HttpError::Unavailable(text),
            ErrorCode::HttpResponseBodySize(Some(limit)) => HttpError::TooLarge(limit as usize),
            ErrorCode::TlsCertificateError => {
                HttpError::Unavailable("the host does not trust the server's certificate".to_owned())
            }
            other => HttpError::Unavailable(other.to_string()),
        };
        let outgoing = outgoing_request(&request)?;
        let body = outgoing.body().map_err(|()| HttpError::Unavailable("the request cannot have a body".to_owned()))?;
        let pending_response = handle(outgoing, None).map_err(convert_error)?;
        write(&body, &request.body)?;
        OutgoingBody::finish(body, None).map_err(convert_error)?;
        pending_response.subscribe().block();
        let response = pending_response
            .get()
            .and_then(Result::ok)
            .ok_or_else(|| HttpError::Unavailable("the response is missing".to_owned()))?;
        read(response.map_err(convert_error)?, request.at_most)
    }

    fn outgoing_request(request: &Request) -> Result<OutgoingRequest, HttpError> {
        let invalid_url = || HttpError::Url(request.url.clone());
        let (scheme, after_scheme) = request.url.split_once("://").ok_or_else(invalid_url)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(invalid_url()),
        };
        let after_scheme = after_scheme.split('#').next().unwrap_or_default();
        let path_start = after_scheme.find(['/', '?']).unwrap_or(after_scheme.len());
        let (authority, path) = after_scheme.split_at(path_start);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let fields = Fields::new();
        for (name, value) in &request.headers {
            let result = fields.append(name, value.as_bytes());
            result.map_err(|error| HttpError::Unavailable(format!("the header `{name}`: {error}")))?;
        }
        let outgoing = OutgoingRequest::new(fields);
        let method = match request.method.as_str() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            other => Method::Other(other.to_owned()),
        };
        outgoing.set_method(&method).map_err(|()| invalid_url())?;
        outgoing.set_scheme(Some(&scheme)).map_err(|()| invalid_url())?;
        outgoing.set_authority(Some(authority)).map_err(|()| invalid_url())?;
        outgoing.set_path_with_query(Some(&path)).map_err(|()| invalid_url())?;
        Ok(outgoing)
    }

    fn write(body: &OutgoingBody, bytes: &[u8]) -> Result<(), HttpError> {
        let failed = |reason: String| HttpError::Unavailable(format!("the request cannot be sent: {reason}"));
        let stream = body.write().map_err(|()| failed("the request has no body".to_owned()))?;
        for chunk in bytes.chunks(4096) {
            stream.blocking_write_and_flush(chunk).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    fn read(response: IncomingResponse, at_most: usize) -> Result<Response, HttpError> {
        let interrupted = |reason: String| HttpError::Unavailable(format!("the response was interrupted: {reason}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let headers =
            response.headers().entries().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value)));
        let (status, headers) = (response.status(), headers.collect());
        let body: IncomingBody = response.consume().map_err(|()| interrupted("the response has no body".to_owned()))?;
        let stream = body.stream().map_err(|()| interrupted("the response has no body".to_owned()))?;
        let mut bytes = Vec::new();
        loop {
            match stream.blocking_read(64 * 1024) {
                Ok(chunk) if bytes.len() + chunk.len() > at_most => return Err(HttpError::TooLarge(at_most)),
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(StreamError::Closed) => return Ok(Response { status, headers, body: bytes }),
                Err(StreamError::LastOperationFailed(error)) => return Err(interrupted(error.to_debug_string())),
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod backend {
    use super::{HttpError, Request, Response};
    use crate::testing::with_state;

    pub(super) fn send(request: Request) -> Result<Response, HttpError> {
        let found = with_state(|state| {
            state.requests.push(request.clone());
            state.responses.get(&request.url).cloned()
        });
        let response = found.ok_or_else(|| HttpError::Denied(format!("{} {}", request.method, request.url)))?;
        if response.body.len() > request.at_most { Err(HttpError::TooLarge(request.at_most)) } else { Ok(response) }
    }
}
