// One step of a turn: what filled the prompt, what the model replied, what its calls did, and the exact prompt.

import { h, outside } from "../../core/dom.js";
import { bytes, count, dollars, duration, exactTime } from "../../core/format.js";
import { signIn } from "../../core/sign-in.js";
import { shareBar } from "../../components/share-bar.js";
import { tabs } from "../../components/tabs.js";
import { textBlock } from "../../components/json-view.js";
import { promptView } from "./prompt.js";
import { eventText, isBad, microseconds, short } from "./words.js";

/** Returns the view of a step. `page` is the page that shows it. */
export function stepView(page, details, step, options) {
  const calls = details.calls.filter((call) => call.step === step.step);
  const events = details.events.filter((event) => event.step === step.step || (step === details.steps[0] && event.step === 0));
  const entries = [
    { label: "Overview", content: () => overview(details, step, events) },
    { label: `Calls (${calls.length})`, content: () => callList(calls) },
    { label: "Prompt", content: () => (signIn.may("administer") ? promptView(page, details, step) : noRight()) },
  ];
  return tabs("Parts of the step", entries, options);
}

function noRight() {
  return h("p", { class: "callout" }, "A prompt contains the instructions of the agent, so it needs the right ", h("code", null, "administer"), ".");
}

function overview(details, step, events) {
  const usage = step.usage;
  const cached = usage?.details;
  const facts = [
    ["Model", step.model ? outside(step.model, { class: "mono" }) : "no reply yet"],
    usage && ["Tokens", `${count(usage.prompt_tokens)} in, ${count(usage.completion_tokens)} out`],
    cached && ["Provider's cache", `${count(cached.cache_read)} tokens read, ${count(cached.cache_write)} written`],
    cached?.thinking > 0 && ["Thinking", `${count(cached.thinking)} tokens`],
    usage?.cost && ["Cost", dollars(usage.cost.nanodollars) + (usage.cost.partial ? " or more" : "")],
    step.messages !== null && ["Messages in the prompt", count(step.messages)],
    step.sections.length > 0 && ["System sections", outside(step.sections.join(", "))],
    ["Tools", step.last ? "none, because this is the last step" : step.offered_tools === null ? "all" : `${step.offered_tools} selected`],
    step.saved_tokens > 0 && ["Saved by media policies", `about ${count(step.saved_tokens)} tokens`],
  ].filter(Boolean);
  return h("div", { class: "stack" },
    h("dl", { class: "fact-list" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    step.budget && budgetBar(step.budget),
    step.reply !== null && textBlock(step.reply || "(empty)", { label: "Reply" }),
    events.length > 0 && h("section", { class: "stack tight" }, h("h3", null, "What else happened"),
      h("ol", { class: "plain happened" }, events.map((event) => h("li", { class: isBad(event) ? "bad" : null },
        h("time", { datetime: event.time, title: exactTime(event.time) }, `after ${duration(microseconds(details.started, event.time))}`), outside(eventText(event)))))));
}

function budgetBar(budget) {
  const part = (label, name) => ({ label, name, value: budget[name] ?? 0, shown: count(budget[name] ?? 0) });
  return h("section", { class: "stack tight" },
    h("h3", null, `Context window: ${count(budget.total)} tokens`),
    shareBar("What fills the context window", [
      part("system", "system"), part("tools", "tools"), part("messages", "messages"), part("kept for the reply", "reserved"), part("free", "remaining"),
    ]));
}

function callList(calls) {
  if (calls.length === 0) return h("p", { class: "muted" }, "The model called no tool in this step.");
  return h("ol", { class: "plain stack" }, calls.map((call) => h("li", { class: "card call-card" },
    h("header", { class: "row" }, outside(call.name, { class: "mono grow" }, "h3"), stateBadge(call)),
    h("div", { class: "body stack" },
      costs(call),
      textBlock(call.arguments.text, { label: `Arguments${call.edited ? ", edited by a person" : ""}${cut(call.arguments)}` }),
      call.result && textBlock(call.result.text.text || "(empty)", { label: `${call.result.is_error ? "Error" : "Result"}${cut(call.result.text)}` }),
      call.result?.denials.map((denial) => h("p", { class: "callout warn" }, outside(eventText({ type: "denied", ...denial }))))))));
}

function cut(value) {
  return value.cut ? " (shortened)" : "";
}

function stateBadge(call) {
  if (call.result) return h("span", { class: `badge ${call.result.is_error ? "bad" : "good"}` }, call.result.is_error ? "failed" : "succeeded");
  const words = { waiting: "not begun", asking: "waits for an approval", outstanding: "waits for an answer", started: "running", outcome_unknown: "outcome unknown" };
  return h("span", { class: "badge accent" }, words[call.state] ?? call.state);
}

/** Says where the tool of a call comes from. */
function sourceText(source) {
  if (!source) return "nowhere: there is no such tool";
  if (typeof source === "string") return { built_in: "the host", client: "the client" }[source] ?? source;
  const { plugin, mcp, service, agent } = source;
  if (plugin) return `${plugin.plugin}@${short(plugin.digest)}`;
  if (mcp) return `the MCP server ${mcp.server}`;
  if (service) return `the service ${service.event_type}`;
  return agent ? `the agent ${agent.agent}` : "unknown";
}

function costs(call) {
  const cost = call.result?.cost;
  const facts = [
    ["From", outside(sourceText(call.source), { class: "mono" })],
    call.attempt > 1 && ["Attempts", count(call.attempt)],
    cost?.wall_us > 0 && ["Ran", duration(cost.wall_us)],
    cost?.queue_us > 0 && ["Waited in the queue", duration(cost.queue_us)],
    cost?.cpu_us > 0 && ["Processor", duration(cost.cpu_us)],
    cost?.memory_bytes > 0 && ["Memory peak", bytes(cost.memory_bytes)],
    cost?.requests > 0 && ["Requests", count(cost.requests)],
  ].filter(Boolean);
  return h("dl", { class: "fact-list" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}
