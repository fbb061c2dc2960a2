// Words for what the API calls by codes.

import { h } from "../../core/dom.js";

const ENDS = {
  answered: ["good", "answered"],
  completed: ["good", "completed"],
  converse: ["good", "replied"],
  asked: ["warn", "nobody answered its question"],
  limit: ["warn", "answered at a limit"],
  cancelled: ["warn", "cancelled"],
  error: ["bad", "failed"],
};

/** Returns a badge that says how a turn ended. */
export function endBadge(turn) {
  const [kind, text] = ENDS[turn.reason] ?? ["accent", "open"];
  return h("span", { class: `badge ${kind}` }, text);
}

/** Returns the time between two times, in microseconds. */
export function microseconds(from, to) {
  return Math.max(0, (Date.parse(to) - Date.parse(from)) * 1_000);
}

const EVENTS = {
  retry: ({ model, attempt, wait_ms, reason }) => `${model} did not answer; attempt ${attempt} follows after ${wait_ms} ms: ${reason}`,
  model_fallback: ({ from, to, reason }) => `${from} failed, so ${to} is used: ${reason}`,
  steered: ({ text }) => `A prompt was added to the turn: ${text}`,
  nudge: ({ cause, text }) => `The reply did not end the turn (${cause}): ${text}`,
  no_tool_call: ({ reminder }) => `The reply called no tool: ${reminder}`,
  evicted: ({ messages, tokens, summary_tokens, by }) => `${messages} messages with about ${tokens} tokens left the prompt. A summary of about ${summary_tokens} tokens by ${by || "the host"} replaces them.`,
  denied: ({ plugin, thing, grant }) => `${plugin} is not granted ${thing}.${grant ? ` To allow it, ${grant}` : ""}`,
  approval_requested: ({ calls }) => `Waits for an approval: ${calls.map((call) => call.name).join(", ")}`,
  approval_resolved: ({ name, verdict }) => `${name} was decided: ${verdict}`,
  plugin_swapped: ({ plugin, from, to }) => `${plugin} changed: ${short(from)} → ${short(to)}`,
  plugin_rolled_back: ({ plugin, to }) => `${plugin} is rolled back to ${short(to)}`,
  output_rejected: ({ by, attempt }) => `The output was rejected by ${by} (attempt ${attempt})`,
  suspended: () => "The turn waits.",
  resumed: () => "The turn continues.",
  outcome_unknown: ({ name }) => `It is not known whether ${name} took effect.`,
  error: ({ message }) => message,
  tool_not_found: ({ name }) => `There is no tool ${name}.`,
  tool_deferred: ({ name }) => `${name} did not run, because another tool of the reply came first.`,
  tool_disabled: ({ name }) => `${name} is disabled for the rest of the turn, because it failed three times in the same way.`,
  memories_recalled: ({ memories }) => `${memories.length} memories were recalled.`,
  plan: ({ steps }) => `A plan with ${steps.length} steps was made.`,
  plan_fallback: ({ reason }) => `The plan was abandoned: ${reason}`,
  budget_exceeded: () => "A budget does not allow the next model call.",
};

const BAD = new Set(["error", "budget_exceeded", "denied", "outcome_unknown", "tool_not_found", "tool_disabled"]);

/** Returns the sentence about an event, or its name. */
export function eventText(event) {
  try {
    return EVENTS[event.type]?.(event) ?? event.type.replaceAll("_", " ");
  } catch {
    return event.type.replaceAll("_", " ");
  }
}

export const isBad = (event) => BAD.has(event.type);

/** Returns the beginning of a digest, as the command line shows it. */
export function short(digest) {
  return digest ? String(digest).replace("sha256:", "").slice(0, 12) : "nothing";
}
