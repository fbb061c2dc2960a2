// A call of a tool: what it was asked, what it returned, what it cost, and what it was denied.

import { fill, h, outside, shorten } from "../core/dom.js";
import { bytes, count, duration, plural } from "../core/format.js";
import { configurationWith } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { icon } from "../components/icon.js";
import { copyButton, jsonBlock, textBlock, valueView } from "../components/json-view.js";
import { mediaView } from "../components/media.js";

const STATES = {
  waiting: ["waiting", "Not begun yet"],
  asking: ["waiting", "Waits for an approval"],
  outstanding: ["waiting", "Waits for an answer"],
  started: ["running", "Running"],
  outcome_unknown: ["unknown", "Outcome unknown"],
};

/** Shows a call, and changes when the call changes. */
export class ToolCard {
  #call = null;
  #version = null;
  #body = h("div", { class: "body stack" });
  #summary = h("summary");

  constructor(session) {
    this.session = session;
    this.element = h("details", { class: "tool" }, this.#summary, this.#body);
    // The content is created when somebody opens the card, because a session can have thousands of calls.
    this.element.addEventListener("toggle", () => { if (this.element.open) this.#fillBody(); });
  }

  update(call) {
    // A result never changes, and it can be long, so it is not compared.
    const version = JSON.stringify([call.state, call.attempt, call.result !== null, call.edited]);
    if (this.#version === version) return;
    this.#version = version;
    this.#call = call;
    const { kind, label } = status(call);
    this.element.dataset.state = kind;
    const cost = call.result?.cost;
    fill(this.#summary,
      kind === "running" ? h("span", { class: "spinner" }) : icon({ done: "tool", failed: "warning", waiting: "clock", unknown: "question" }[kind]),
      h("span", { class: "name mono" }, outside(call.name)),
      outside(preview(call.edited ?? call.arguments), { class: "preview cut muted mono" }),
      call.edited && h("span", { class: "badge accent" }, "changed by a person"),
      call.result?.denials?.length > 0 && h("span", { class: "badge warn" }, plural(call.result.denials.length, "denial")),
      label && h("span", { class: `badge ${{ failed: "bad", waiting: "warn", unknown: "warn" }[kind] ?? ""}` }, label),
      cost?.wall_us > 0 && h("span", { class: "muted small nowrap" }, duration(cost.wall_us)),
      icon("chevron"));
    if (this.element.open) this.#fillBody();
  }

  #fillBody() {
    const call = this.#call;
    if (!call) return;
    fill(this.#body,
      section("Arguments", valueView(call.arguments, { label: "Arguments" })),
      call.edited && section("Arguments after a person changed them", valueView(call.edited, { label: "Changed arguments" })),
      call.result && section(call.result.is_error ? "Error" : "Result", results(this.session, call.result)),
      call.result?.denials?.map((denial) => denialView(denial, this.session)),
      footer(call));
  }
}

function section(title, ...content) {
  return h("section", { class: "stack tight" }, h("h3", { class: "small muted" }, title), content);
}

function status(call) {
  if (call.result) return call.result.is_error ? { kind: "failed", label: call.attempt === 0 ? "did not run" : "failed" } : { kind: "done" };
  const [kind, label] = STATES[call.state] ?? ["waiting", call.state];
  return { kind, label };
}

function preview(value) {
  if (value === null || typeof value !== "object") return shorten(value, 80);
  return shorten(Object.values(value).map((entry) => (typeof entry === "string" ? entry : JSON.stringify(entry))).join(", "), 80);
}

function results(session, result) {
  if (result.content.length === 0) return h("p", { class: "muted small" }, "The tool returned nothing.");
  return result.content.map((item) => {
    if (item.kind === "media") return mediaView(session, item.media);
    if (item.kind === "json") return jsonBlock(item.value, { label: "Result" });
    return textBlock(item.text, { label: "Result", omittedBytes: item.omitted_bytes });
  });
}

/** Returns what a plugin was denied in a session, with the lines of the configuration that would allow it. */
export function denialView(denial, session) {
  const { table, line } = denial;
  const [agent] = session.split("/");
  return h("div", { class: "callout warn stack tight" },
    h("p", null, h("strong", null, "Denied: "), outside(denial.plugin, { class: "mono" }), " is not granted ", outside(denial.thing), "."),
    h("div", { class: "row missing-lines" }, outside(denial.grant, { class: "grow plain-text mono" }), copyButton(table ? `${table}\n${line}` : denial.grant, "Copy what to add")),
    table && signIn.may("administer") && h("p", null, h("a", { href: configurationWith(agent, table, line) }, "Add it to the configuration…")));
}

function footer(call) {
  const cost = call.result?.cost;
  const source = sourceText(call.source);
  const facts = [
    source && ["From", source],
    call.attempt > 1 && ["Attempts", count(call.attempt)],
    cost?.wall_us > 0 && ["Time", `${duration(cost.wall_us)}${cost.queue_us > 1_000 ? `, after ${duration(cost.queue_us)} in the queue` : ""}`],
    cost?.cpu_us > 0 && ["Processor", duration(cost.cpu_us)],
    cost?.memory_bytes > 0 && ["Memory", bytes(cost.memory_bytes)],
    cost?.bytes_in > 0 && ["Data in", bytes(cost.bytes_in)],
    cost?.bytes_out > 0 && ["Data out", bytes(cost.bytes_out)],
    cost?.requests > 0 && ["Requests", count(cost.requests)],
    cost?.fuel > 0 && ["Fuel", count(cost.fuel)],
    cost?.model?.asks > 0 && ["Model requests", count(cost.model.asks)],
  ].filter(Boolean);
  if (facts.length === 0) return null;
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** Returns where a tool comes from, for people. */
export function sourceText(source) {
  if (!source) return null;
  if (typeof source === "string") return { built_in: "the host", client: "the program that began the turn" }[source] ?? source;
  const [kind, details] = Object.entries(source)[0] ?? [];
  switch (kind) {
    case "plugin": return outside(`${details.plugin}@${shortDigest(details.digest)}`, { class: "mono", title: details.digest });
    case "mcp": return h("span", null, "the server ", outside(details.server, { class: "mono" }));
    case "service": return h("span", null, "the service ", outside(details.event_type, { class: "mono" }));
    case "agent": return h("span", null, "the agent ", outside(details.agent, { class: "mono" }));
    default: return { built_in: "the host", client: "the program that began the turn" }[kind] ?? kind;
  }
}

/** Returns the beginning of a digest, which people compare. */
export function shortDigest(digest) {
  return String(digest ?? "").replace("sha256:", "").slice(0, 12);
}
