// HTTP requests. The manifest must request each address: `[asks] http = ["GET https://api.example.com/v1/"]`. The host
// adds secrets that the agent grants for the destination, so that the plugin never sees them. Redirects are not followed.

import * as host from "#host/http";
import { ToolError } from "./errors.js";

/** The maximum size of an answer in bytes, unless the request sets another. */
const DEFAULT_LIMIT = 1024 * 1024;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** An HTTP request that has no answer, or whose answer cannot be used. Tools may let it pass to the model. */
export class HttpError extends ToolError {
  name = "HttpError";
  /** The status of the answer, or undefined if there is no answer. */
  status;

  constructor(message, { status, ...options } = {}) {
    super(message, options);
    this.status = status;
  }
}

/** An answer. An error status such as 404 is not an exception; use `expectOk` to make it one. */
export class Response {
  #request;

  constructor({ status, headers, bytes }, request) {
    /** The HTTP status, such as 200. */
    this.status = status;
    /** The headers. Their names are in lower case, and values of equal names are joined with a comma. */
    this.headers = {};
    for (const [name, value] of headers) {
      const key = name.toLowerCase();
      this.headers[key] = key in this.headers ? `${this.headers[key]}, ${value}` : value;
    }
    /** The body. */
    this.bytes = bytes;
    this.#request = request;
  }

  /** Whether the status is 200 to 299. */
  get ok() {
    return this.status >= 200 && this.status < 300;
  }

  /** Returns the body as a text. */
  text() {
    return decoder.decode(this.bytes);
  }

  /** Returns the body as a JSON value. */
  json() {
    try {
      return JSON.parse(this.text());
    } catch {
      throw new HttpError(`the answer to ${this.#request} is not JSON`, { status: this.status });
    }
  }

  /** Returns this answer if its status is 200 to 299, and throws an `HttpError` otherwise. */
  expectOk() {
    if (this.ok) return this;
    const kind = this.#errorKind();
    const seconds = Number(this.headers["retry-after"]);
    const retryAfter = kind === "unavailable" && Number.isFinite(seconds) ? seconds * 1000 : undefined;
    const body = this.text().trim().slice(0, 500);
    const message = `${this.#request} was answered with the status ${this.status}${body ? `: ${body}` : ""}`;
    throw new HttpError(message, { status: this.status, kind, retryAfter });
  }

  #errorKind() {
    if (this.status === 401 || this.status === 403) return "denied";
    if (this.status === 404 || this.status === 410) return "not-found";
    return this.status === 429 || this.status >= 500 ? "unavailable" : "failed";
  }
}

/** Sends a GET request. */
export function get(url, options) {
  return request({ ...options, method: "GET", url });
}

/** Sends a POST request. A body that is neither a text nor bytes is sent as JSON. */
export function post(url, body, options) {
  return request({ ...options, method: "POST", url, body });
}

/** Sends a PUT request. A body that is neither a text nor bytes is sent as JSON. */
export function put(url, body, options) {
  return request({ ...options, method: "PUT", url, body });
}

/** Sends a DELETE request. */
function remove(url, options) {
  return request({ ...options, method: "DELETE", url });
}

// `delete` is a reserved word, so a function cannot have this name, but a module can export it.
export { remove as delete };

/**
 * Sends a request and waits for the complete answer. `query` is an object whose values are added to the address.
 * `atMost` is the maximum size of the answer in bytes: by default 1 MiB, and at most 10 MiB.
 */
export async function request({ method = "GET", url, query, headers = {}, body, atMost = DEFAULT_LIMIT }) {
  const address = parse(withQuery(String(url), query));
  const description = `${method} ${String(url).split(/[?#]/)[0]}`;
  const fields = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)]));
  const content = bytesOf(body);
  if (content.isJson && !fields.some(([name]) => name.toLowerCase() === "content-type")) {
    fields.push(["content-type", "application/json"]);
  }
  try {
    const answer = await host.send({ method, ...address, headers: fields, body: content.bytes, atMost });
    return new Response(answer, description);
  } catch (thrown) {
    throw httpError(thrown, description, atMost) ?? thrown;
  }
}

/** Splits an address into the parts that the host needs. The fragment is not sent. */
function parse(url) {
  const parts = /^(https?):\/\/([^/?#]+)([^?#]*)(\?[^#]*)?/i.exec(url);
  if (parts === null) throw ToolError.invalid("/url", `\`${url}\` is not an http or https address`);
  const [, scheme, authority, path, query = ""] = parts;
  return { url, scheme: scheme.toLowerCase(), authority, pathWithQuery: `${path || "/"}${query}` };
}

function withQuery(url, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    [value].flat().filter((one) => one !== undefined && one !== null).map((one) => [name, String(one)]),
  );
  if (pairs.length === 0) return url;
  const text = pairs.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
  const [address, fragment] = url.split("#");
  return `${address}${address.includes("?") ? "&" : "?"}${text}${fragment === undefined ? "" : `#${fragment}`}`;
}

function bytesOf(body) {
  if (body === undefined || body === null) return { bytes: new Uint8Array(), isJson: false };
  if (body instanceof Uint8Array) return { bytes: body, isJson: false };
  if (body instanceof ArrayBuffer) return { bytes: new Uint8Array(body), isJson: false };
  if (typeof body === "string") return { bytes: encoder.encode(body), isJson: false };
  return { bytes: encoder.encode(JSON.stringify(body)), isJson: true };
}

/** Converts an error code of `wasi:http`. Returns undefined for other exceptions. */
function httpError(thrown, description, atMost) {
  const { tag, val } = thrown?.payload ?? thrown ?? {};
  switch (tag) {
    case undefined:
      return undefined;
    case "HTTP-request-denied":
    case "destination-IP-prohibited":
      return new HttpError(`the request ${description} is not granted`, { kind: "denied" });
    case "HTTP-response-body-size":
      return new HttpError(`the answer to ${description} has more than ${val ?? atMost} bytes`);
    case "TLS-certificate-error":
      return unavailable(description, "the host does not trust the server's certificate");
    case "internal-error":
      return unavailable(description, val ?? "the host failed");
    default:
      return unavailable(description, tag.replaceAll("-", " "));
  }
}

function unavailable(description, reason) {
  return new HttpError(`there is no answer to ${description}: ${reason}`, { kind: "unavailable" });
}
