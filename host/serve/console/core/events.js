// Event streams over `fetch`, because `EventSource` cannot send the sign-in in a header.

import { ApiError, request } from "./api.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

/**
 * Follows a stream of server-sent events until `signal` is aborted, and connects again after an interruption, without missing an
 * event. While the tab is hidden, the stream is closed, because a browser opens only few connections to a server.
 *
 * `onEvent({ id, type, data })` gets each event with its data as JSON, and `onState("open" | "waiting" | "refused", error)` what
 * the stream does.
 */
export async function follow(path, { after = "0", signal, onEvent, onState = () => {} }) {
  let last = String(after);
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    await untilVisible(signal);
    if (signal.aborted) return;
    const connection = new AbortController();
    const stop = () => connection.abort();
    const hidden = () => { if (document.hidden) stop(); };
    signal.addEventListener("abort", stop, { once: true });
    document.addEventListener("visibilitychange", hidden);
    try {
      const headers = { accept: "text/event-stream", "last-event-id": last };
      const answer = await request("GET", path, { headers, signal: connection.signal });
      onState("open");
      pause = FIRST_PAUSE;
      for await (const event of parse(answer.body)) {
        if (event.id) last = event.id;
        onEvent(event);
      }
      onState("waiting");
    } catch (error) {
      if (signal.aborted) return;
      const isFinal = error instanceof ApiError && [401, 403, 404].includes(error.status);
      if (isFinal) {
        onState("refused", error);
        return;
      }
      if (error.name !== "AbortError") onState("waiting", error);
    } finally {
      // If `onEvent` has failed, the rest of the stream would keep its connection open.
      stop();
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", hidden);
    }
    if (!document.hidden) {
      await sleep(pause, signal);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }
}

async function* parse(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { id: "", type: "message", data: [] };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "" || line === "\r") {
        if (event.data.length > 0) yield { id: event.id, type: event.type, data: JSON.parse(event.data.join("\n")) };
        event = { id: "", type: "message", data: [] };
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") event.data.push(content);
      else if (name === "event") event.type = content.trim();
      else if (name === "id") event.id = content.trim();
    }
  }
}

function untilVisible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      signal.removeEventListener("abort", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
  });
}

/** Waits for some milliseconds, or until the signal is aborted. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}
