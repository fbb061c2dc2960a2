"""Sends HTTP requests. The plugin requests the addresses in `[asks] http`, and the agent grants them.

The host adds the secrets that the agent grants for an address, so a plugin never sees them. Redirects are not followed: send
a request to the address in the header `location`.
"""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from . import host
from .errors import HostError, ToolError

#: Default of `at_most`: the maximum size of the body of a response, in bytes.
AT_MOST = 1024 * 1024
#: Number of bytes that the host takes in one write.
WRITE_BYTES = 4096
READ_BYTES = 64 * 1024
#: Number of characters of the body that the message of a `StatusError` contains.
SHOWN_BODY = 500
NANOSECONDS = 1_000_000_000


class HttpError(HostError):
    """A request has no usable response. `kind` is `url`, `denied`, `unavailable`, `too-large` or `status`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind

    def to_tool_error(self) -> ToolError:
        message = str(self)
        errors = {"denied": ToolError.denied, "unavailable": ToolError.unavailable}
        return errors.get(self.kind, ToolError.failed)(message)


class StatusError(HttpError):
    """The status of a response is not a success. `response` is the complete response."""

    def __init__(self, response: Response):
        # The beginning of the body often contains the reason.
        body = response.text().strip()[:SHOWN_BODY]
        message = f"{response.request} was answered with the status {response.status}"
        super().__init__("status", f"{message}: {body}" if body else message)
        self.response = response
        self.status = response.status

    def to_tool_error(self) -> ToolError:
        if self.status in (404, 410):
            return ToolError.not_found(str(self))
        if self.status in (401, 403):
            return ToolError.denied(str(self))
        if self.status == 429 or self.status >= 500:
            return ToolError.unavailable(str(self), self.retry_after())
        return ToolError.failed(str(self))

    def retry_after(self) -> float | None:
        """Returns the number of seconds in the header `retry-after`, if there is one."""
        value = self.response.header("retry-after") or ""
        return float(value) if value.isdigit() else None


@dataclass
class Request:
    """A request. `url` contains the query."""

    method: str
    url: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    #: Time limit in seconds for the connection, for the first byte of the response, and between two parts of its body.
    timeout: float | None = None
    at_most: int = AT_MOST


@dataclass
class Response:
    """A response. The names of the headers are in lower case."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    #: The method and the address of the request, without the query, for messages.
    request: str = field(default="", compare=False)

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        """Returns the value of the first header with this name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def text(self) -> str:
        """Returns the body as text, in the encoding of the header `content-type`. Invalid bytes are replaced."""
        charset = (self.header("content-type") or "").lower().partition("charset=")[2].split(";")[0].strip(' "')
        try:
            return self.body.decode(charset or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def expect_ok(self) -> Response:
        """Returns this response if its status is 200 to 299, and raises `StatusError` otherwise.

        Only responses to requests with `check=False` can have another status.
        """
        if not self.is_success:
            raise StatusError(self)
        return self

    def json(self) -> Any:
        """Returns the body, parsed as JSON."""
        try:
            return json_module.loads(self.body)
        except ValueError as error:
            raise HttpError("failed", f"the response is not JSON: {error}") from None


def get(url: str, **options: Any) -> Response:
    """Sends a GET request. The options are those of `request`."""
    return request("GET", url, **options)


def post(url: str, **options: Any) -> Response:
    """Sends a POST request. The options are those of `request`."""
    return request("POST", url, **options)


def put(url: str, **options: Any) -> Response:
    """Sends a PUT request. The options are those of `request`."""
    return request("PUT", url, **options)


def patch(url: str, **options: Any) -> Response:
    """Sends a PATCH request. The options are those of `request`."""
    return request("PATCH", url, **options)


def delete(url: str, **options: Any) -> Response:
    """Sends a DELETE request. The options are those of `request`."""
    return request("DELETE", url, **options)


def request(
    method: str,
    url: str,
    *,
    query: dict[str, Any] | None = None,
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    json: Any = None,
    body: bytes | str | None = None,
    timeout: float | None = None,
    at_most: int = AT_MOST,
    check: bool = True,
) -> Response:
    """Sends a request and waits for the complete response.

    Args:
        query: Names and values that are added to the query of the address. Values of `None` are left out.
        headers: Names and values of headers.
        json: A value that is sent as the JSON body of the request.
        body: The body of the request, of at most 1 MiB. A text is sent as UTF-8.
        timeout: Time limit in seconds for the connection, for the first byte, and between two parts of the body.
        at_most: Maximum size of the body of the response in bytes. The host accepts at most 10 MiB.
        check: Whether a status other than 200 to 299 raises `StatusError`.
    """
    sent = build(method, url, query=query, headers=headers, json=json, body=body, timeout=timeout, at_most=at_most)
    response = host.test_host.answer_request(sent) if host.test_host is not None else _Exchange(sent).run()
    if len(response.body) > at_most:
        raise too_large(at_most)
    response.request = f"{sent.method} {sent.url.split('?')[0]}"
    return response.expect_ok() if check else response


def build(method: str, url: str, *, query=None, headers=None, json=None, body=None, timeout=None, at_most=AT_MOST) -> Request:
    """Creates a request without sending it."""
    if json is not None and body is not None:
        raise ValueError("a request has either the argument `json` or the argument `body`")
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    names = {name.lower() for name, _ in pairs}
    if json is not None:
        body = json_module.dumps(json)
        if "content-type" not in names:
            pairs.append(("content-type", "application/json"))
    if query:
        values = urlencode({key: value for key, value in query.items() if value is not None}, doseq=True, quote_via=quote)
        url = f"{url}{'&' if '?' in url else '?'}{values}"
    data = body.encode() if isinstance(body, str) else bytes(body or b"")
    return Request(method.upper(), url, pairs, data, timeout, at_most)


def too_large(limit: int) -> HttpError:
    return HttpError("too-large", f"the response has more than {limit} bytes")


class _Exchange:
    """Sends one request over `wasi:http`, and closes every handle in the order that the interface demands."""

    def __init__(self, request: Request):
        self.request = request
        self.types = host.binding("http_types")
        self.handler = host.binding("http_handler")
        self.streams = host.binding("streams")

    def run(self) -> Response:
        outgoing = self.outgoing()
        body = outgoing.body()
        try:
            pending = self.call(self.handler.handle, outgoing, self.options())
        except HttpError:
            body.__exit__(None, None, None)
            raise
        with pending:
            self.write(body)
            with pending.subscribe() as event:
                event.block()
            # The outer result states whether the response was taken already.
            answer = pending.get().value
        if type(answer).__name__ == "Err":
            raise self.error(answer.value)
        with answer.value as incoming:
            return self.read(incoming)

    def outgoing(self) -> Any:
        types, request = self.types, self.request
        parts = urlsplit(request.url)
        schemes = {"http": "Scheme_Http", "https": "Scheme_Https"}
        if parts.scheme not in schemes or not parts.netloc:
            raise HttpError("url", f"`{request.url}` is not an http or https address")
        fields = types.Fields()
        for name, value in request.headers:
            self.append_header(fields, name, value)
        outgoing = types.OutgoingRequest(fields)
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
        try:
            outgoing.set_method(self.method())
            outgoing.set_scheme(getattr(types, schemes[parts.scheme])())
            outgoing.set_authority(parts.netloc)
            outgoing.set_path_with_query(path)
        except Exception as error:
            host.error_of(error)
            outgoing.__exit__(None, None, None)
            raise HttpError("url", f"`{request.method} {request.url}` is not a valid request") from None
        return outgoing

    def method(self) -> Any:
        known = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
        if self.request.method in known:
            return getattr(self.types, f"Method_{self.request.method.capitalize()}")()
        return self.types.Method_Other(self.request.method)

    def append_header(self, fields: Any, name: str, value: str) -> None:
        try:
            fields.append(name, value.encode())
        except Exception as error:
            reason = type(host.error_of(error)).__name__.removeprefix("HeaderError_")
            fields.__exit__(None, None, None)
            reasons = {"Forbidden": "the host sets this header", "InvalidSyntax": "its name or value is invalid"}
            raise HttpError("failed", f"the header `{name}` cannot be sent: {reasons.get(reason, reason)}") from None

    def options(self) -> Any:
        if self.request.timeout is None:
            return None
        options, time = self.types.RequestOptions(), max(1, int(self.request.timeout * NANOSECONDS))
        options.set_connect_timeout(time)
        options.set_first_byte_timeout(time)
        options.set_between_bytes_timeout(time)
        return options

    def write(self, body: Any) -> None:
        # A host may answer before it has read the complete request. The response then states the reason.
        try:
            with body.write() as stream:
                for start in range(0, len(self.request.body), WRITE_BYTES):
                    stream.blocking_write_and_flush(self.request.body[start : start + WRITE_BYTES])
        except Exception as error:
            host.error_of(error)
            body.__exit__(None, None, None)
            return
        self.call(self.types.OutgoingBody.finish, body, None)

    def read(self, incoming: Any) -> Response:
        with incoming.headers() as fields:
            headers = [(name.lower(), value.decode("utf-8", "replace")) for name, value in fields.entries()]
        status, data = incoming.status(), bytearray()
        with incoming.consume() as body, body.stream() as stream:
            while True:
                try:
                    data += stream.blocking_read(READ_BYTES)
                except Exception as error:
                    value = host.error_of(error)
                    if type(value).__name__ == "StreamError_Closed":
                        return Response(status, headers, bytes(data))
                    with value.value as reason:
                        text = reason.to_debug_string()
                    raise HttpError("unavailable", f"the response was interrupted: {text}") from None
                if len(data) > self.request.at_most:
                    raise too_large(self.request.at_most)

    def call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise self.error(host.error_of(error)) from None

    def error(self, code: Any) -> HttpError:
        """Converts an `error-code`."""
        name, value = type(code).__name__.removeprefix("ErrorCode_"), getattr(code, "value", None)
        if name in ("HttpRequestDenied", "DestinationIpProhibited"):
            return HttpError("denied", f"the request {self.request.method} {self.request.url.split('?')[0]} is not granted")
        if name == "HttpResponseBodySize" and value is not None:
            return too_large(value)
        if name == "TlsCertificateError":
            return HttpError("unavailable", "there is no response: the host does not trust the server's certificate")
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
        return HttpError("unavailable", f"there is no response: {value if isinstance(value, str) else words}")
