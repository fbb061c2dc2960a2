// Requests to the HTTP API.

import { sentence, signIn } from "./sign-in.js";

/** An answer that is an error. `message` is a sentence for people, `code` is for programs, and `status` is 0 without an answer. */
export class ApiError extends Error {
  constructor(status, code, detail) {
    super(sentence(detail));
    this.status = status;
    this.code = code;
  }
}

/** Tells the frame whether the server can be reached. */
export const connection = new EventTarget();
let isReachable = true;

function reachable(now) {
  if (now === isReachable) return;
  isReachable = now;
  connection.dispatchEvent(new CustomEvent("change", { detail: now }));
}

/** Returns a URL of the API. `path` begins without `/`. Parts that come from outside must be encoded. */
export function apiUrl(path, query = {}) {
  const url = new URL(`../${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/** Returns the path of a session, or of something that belongs to it: `sessionPath(id, "prompts")`. */
export function sessionPath(session, ...parts) {
  return ["api/sessions", encodeURIComponent(session), ...parts].join("/");
}

/** Time until the answer to a read request begins, in milliseconds. Other requests wait for what they do, such as a tool call. */
const LONGEST_READ = 60_000;

/** Sends a request and returns the answer. Throws an [`ApiError`] if the answer is an error, or if there is none. */
export async function request(method, path, { query, body, headers = {}, signal } = {}) {
  if (!signIn.secret) throw new ApiError(401, "unauthorized", "you are not signed in");
  const secret = signIn.secret;
  const all = { authorization: `Bearer ${secret}`, ...headers };
  if (body !== undefined) all["content-type"] ??= "application/json";
  const late = new AbortController();
  const timer = method === "GET" ? setTimeout(() => late.abort(), LONGEST_READ) : null;
  let answer;
  try {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const either = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
    answer = await fetch(apiUrl(path, query), { method, headers: all, body: content, signal: either, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError" && !late.signal.aborted) throw error;
    reachable(false);
    throw new ApiError(0, "unreachable", late.signal.aborted ? "the server does not answer" : "the server cannot be reached");
  } finally {
    clearTimeout(timer);
  }
  reachable(true);
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401 && secret === signIn.secret) {
    signIn.forget(sentence(problem.detail ?? "the sign-in has ended"));
  }
  throw new ApiError(answer.status, problem.code ?? "failed", problem.detail ?? `the server answered with ${answer.status}`);
}

async function json(method, path, options) {
  const answer = await request(method, path, options);
  return answer.status === 204 ? null : answer.json();
}

export const api = {
  /** Reads JSON: `await api.get("api/agents", { query: { limit: 5 }, signal })`. */
  get: (path, options) => json("GET", path, options),
  post: (path, body = {}, options = {}) => json("POST", path, { ...options, body }),
  delete: (path, options) => json("DELETE", path, options),
  /** Reads bytes, for pictures and downloads. */
  blob: async (path, options) => (await request("GET", path, options)).blob(),
};
