// Sends requests through `wasi:http`. All handles are dropped, also after an error.

import { poll } from "wasi:io/poll@0.2.0";
import { handle } from "wasi:http/outgoing-handler@0.2.0";
import { Fields, OutgoingBody, OutgoingRequest } from "wasi:http/types@0.2.0";
import { waitFor } from "./promise.js";

/** The size of a piece that is written at once. The host takes at most 4 KiB. */
const WRITE_SIZE = 4096;
/** The size of a piece that is read at once. */
const READ_SIZE = 64 * 1024;
/** The methods that `wasi:http` names. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

const decoder = new TextDecoder();

export async function send(request) {
  const outgoing = outgoingRequest(request);
  const body = outgoing.body();
  const pending = handle(outgoing, undefined);
  try {
    write(body, request.body);
    const ready = pending.subscribe();
    try {
      await waitFor(ready, poll);
    } finally {
      drop(ready);
    }
    return read(response(pending), request.atMost);
  } finally {
    drop(pending);
  }
}

function outgoingRequest({ method, scheme, authority, pathWithQuery, headers }) {
  const encoder = new TextEncoder();
  const fields = new Fields();
  headers.forEach(([name, value]) => fields.append(name, encoder.encode(value)));
  const outgoing = new OutgoingRequest(fields);
  outgoing.setMethod(METHODS.includes(method) ? { tag: method.toLowerCase() } : { tag: "other", val: method });
  outgoing.setScheme({ tag: scheme === "http" ? "HTTP" : "HTTPS" });
  outgoing.setAuthority(authority);
  outgoing.setPathWithQuery(pathWithQuery);
  return outgoing;
}

function write(body, bytes) {
  const stream = body.write();
  try {
    for (let start = 0; start < bytes.length; start += WRITE_SIZE) {
      stream.blockingWriteAndFlush(bytes.subarray(start, start + WRITE_SIZE));
    }
  } finally {
    drop(stream);
  }
  OutgoingBody.finish(body, undefined);
}

/** Takes the answer out of `option<result<result<incoming-response, error-code>>>`. */
function response(pending) {
  const outer = pending.get();
  if (outer === null || outer.tag === "err") throw { tag: "internal-error", val: "the answer is missing" };
  if (outer.val.tag === "err") throw outer.val.val;
  return outer.val.val;
}

function read(incoming, atMost) {
  try {
    const fields = incoming.headers();
    const headers = fields.entries().map(([name, value]) => [name, decoder.decode(Uint8Array.from(value))]);
    drop(fields);
    const body = incoming.consume();
    try {
      return { status: incoming.status(), headers, bytes: readBody(body, atMost) };
    } finally {
      drop(body);
    }
  } finally {
    drop(incoming);
  }
}

function readBody(body, atMost) {
  const stream = body.stream();
  const chunks = [];
  let length = 0;
  try {
    for (;;) {
      const chunk = stream.blockingRead(READ_SIZE);
      length += chunk.length;
      if (length > atMost) throw { tag: "HTTP-response-body-size", val: atMost };
      chunks.push(chunk);
    }
  } catch (thrown) {
    const error = thrown?.payload ?? thrown;
    if (error?.tag === "last-operation-failed") {
      const reason = error.val.toDebugString();
      drop(error.val);
      throw { tag: "internal-error", val: `the answer was interrupted: ${reason}` };
    }
    if (error?.tag !== "closed") throw thrown;
  } finally {
    drop(stream);
  }
  const bytes = new Uint8Array(length);
  chunks.reduce((offset, chunk) => (bytes.set(chunk, offset), offset + chunk.length), 0);
  return bytes;
}

function drop(resource) {
  resource[Symbol.dispose]?.();
}
