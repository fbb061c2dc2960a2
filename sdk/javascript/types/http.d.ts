// HTTP requests. The manifest must request each address: `[asks] http = ["GET https://api.example.com/v1/"]`.

export interface Options {
  /** Values that are added to the address. Null and undefined are left out. */
  query?: { [name: string]: Value | Value[] };
  /** The host adds the headers that the protocol needs, and the secrets that the agent grants for the destination. */
  headers?: { [name: string]: string | number | string[] };
  /** Maximum size of the answer in bytes: by default 1 MiB, and at most 10 MiB. */
  atMost?: number;
}

type Value = string | number | boolean | null | undefined;

/** An answer. An error status is not an exception, unless `expectOk` is called. */
export class Response {
  private constructor();
  readonly status: number;
  /** Whether the status is 200 to 299. */
  readonly ok: boolean;
  /** The headers. Their names are in lower case. */
  readonly headers: { [name: string]: string };
  readonly bytes: Uint8Array;
  /** Returns the body as a text. */
  text(): string;
  /** Returns the body as a JSON value. Throws an `HttpError` if it is not JSON. */
  json(): any;
  /** Returns this answer if its status is 200 to 299, and throws an `HttpError` otherwise. */
  expectOk(): Response;
}

/** Sends a request and waits for the complete answer. A body that is neither a text nor bytes is sent as JSON. */
export function request(request: Options & { method?: string; url: string; body?: unknown }): Promise<Response>;
/** Sends a GET request. */
export function get(url: string, options?: Options): Promise<Response>;
/** Sends a POST request. */
export function post(url: string, body?: unknown, options?: Options): Promise<Response>;
/** Sends a PUT request. */
export function put(url: string, body?: unknown, options?: Options): Promise<Response>;
/** Sends a DELETE request. */
declare function remove(url: string, options?: Options): Promise<Response>;
export { remove as delete };
/** An HTTP request that has no answer, or whose answer cannot be used. */
export { HttpError } from "./index.js";
