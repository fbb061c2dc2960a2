// The timeline of a turn: one row for each part that took time, below the step to which it belongs.

import { h, outside, shorten } from "../../core/dom.js";
import { duration } from "../../core/format.js";
import { microseconds } from "./words.js";

const KINDS = { model: "model", tool: "tool", check: "check", host: "host" };
const OUTCOMES = { ok: "", ended: "", failed: "failed", open: "not ended" };

/** Returns the timeline. `onStep` is called with the step that a person chooses. */
export function timeline(details, { selected, onStep }) {
  const begin = Date.parse(details.started);
  const end = details.ended ? Date.parse(details.ended) : Math.max(Date.now(), begin + 1);
  const scale = { begin, length: Math.max(end - begin, 0.001) };
  const children = new Map();
  for (const activity of details.activities) {
    const key = activity.parent ?? `step ${activity.step ?? 0}`;
    children.set(key, [...(children.get(key) ?? []), activity]);
  }
  const byStart = (one, other) => Date.parse(one.started) - Date.parse(other.started);
  const below = (key, depth) => (children.get(key) ?? []).sort(byStart).flatMap((activity) => [
    row(activity, scale, depth), ...(activity.id && depth < 4 ? below(activity.id, depth + 1) : []),
  ]);
  const steps = details.steps.map((step) => {
    const until = step.ended ?? details.ended ?? new Date(end).toISOString();
    const took = microseconds(step.started, until);
    const summary = step.reply ? shorten(step.reply, 90) : "";
    const button = h("button", {
      class: "part", type: "button", "data-step": step.step, "aria-pressed": String(step.step === selected), on: { click: () => onStep(step.step) },
    }, h("span", { class: "name" }, h("strong", null, `Step ${step.step}`), summary && outside(summary, { class: "muted cut" })),
      track(scale, Date.parse(step.started), took, "step"), h("span", { class: "took" }, duration(took)));
    return h("li", null, button, h("ol", { class: "plain" }, below(`step ${step.step}`, 1)));
  });
  const whole = below("step 0", 0);
  return h("div", { class: "timeline" },
    h("p", { class: "legend", "aria-hidden": "true" }, Object.entries(KINDS).map(([kind, label]) => h("span", null, h("span", { class: `swatch ${kind}` }), label))),
    h("ol", { class: "plain" }, whole, steps));
}

function row(activity, scale, depth) {
  const took = activity.took_us ?? microseconds(activity.started, new Date(scale.begin + scale.length).toISOString());
  const outcome = OUTCOMES[activity.outcome] ?? "";
  const facts = factsOf(activity);
  const name = activity.name.replace(/^execute_tool /, "");
  return h("li", { class: `part depth-${Math.min(depth, 4)}`, title: facts },
    h("span", { class: "name" }, h("span", { class: "visually-hidden" }, `${KINDS[activity.kind]}: `), outside(name, { class: "mono" }),
      outcome && h("span", { class: `badge ${activity.outcome === "failed" ? "bad" : "accent"}` }, outcome)),
    track(scale, Date.parse(activity.started), took, activity.kind, activity.outcome),
    h("span", { class: "took" }, duration(took), facts && h("span", { class: "visually-hidden" }, `, ${facts}`)));
}

/** Returns a bar that shows when a part began and how long it took. */
function track(scale, start, took, kind, outcome = "ok") {
  const bar = h("span", { class: `fill ${kind} ${outcome}` });
  const from = Math.min(Math.max((start - scale.begin) / scale.length, 0), 1);
  const width = Math.min(took / 1_000 / scale.length, 1 - from);
  bar.style.insetInlineStart = `${from * 100}%`;
  bar.style.width = `${Math.max(width * 100, 0)}%`;
  return h("span", { class: "track", "aria-hidden": "true" }, bar);
}

const FACTS = {
  "agent_host.tool.wall_us": (value) => `ran ${duration(value)}`,
  "agent_host.tool.cpu_us": (value) => `used ${duration(value)} of processor time`,
  "agent_host.tool.queue_us": (value) => `waited ${duration(value)} in the queue`,
  "http.response.status_code": (value) => `status ${value}`,
  "gen_ai.usage.input_tokens": (value) => `${value} tokens in`,
  "gen_ai.usage.output_tokens": (value) => `${value} tokens out`,
  "agent_host.plugin": (value) => String(value),
  "error.type": (value) => String(value),
};

function factsOf(activity) {
  return Object.entries(activity.facts).filter(([name]) => FACTS[name]).map(([name, value]) => FACTS[name](value)).join(", ");
}
