// A message of a person or of the model.

import { h, outside, shorten } from "../core/dom.js";
import { compactCount, dollars, plural } from "../core/format.js";
import { renderedBlocks } from "../core/rendered.js";
import { sentence } from "../core/sign-in.js";
import { copyButton, jsonBlock } from "../components/json-view.js";
import { icon } from "../components/icon.js";
import { mediaView } from "../components/media.js";
import { denialView, shortDigest } from "./tool-card.js";

const HIDDEN = {
  undone: "Undone. The model no longer sees this message.",
  superseded: "Replaced. The model no longer sees this message.",
  evicted: "Summarised. The model sees a summary instead of this message.",
};

/**
 * Returns a message. `cards` returns the card of a call by its id, and `actions` are buttons, `{ icon, label, run }`.
 */
export function messageView(session, message, cards, actions) {
  const isModel = message.role === "assistant";
  const texts = message.parts.filter((part) => part.kind === "text").map((part) => part.text);
  const label = { user: "Prompt", assistant: "Reply", system: "System" }[message.role] ?? message.role;
  const buttons = [
    texts.length > 0 && copyButton(texts.join("\n\n"), `Copy the ${label.toLowerCase()}`),
    ...actions.map(({ icon: name, label: title, run }) => h("button", { class: "icon-button small", type: "button", "aria-label": title, title, on: { click: run } }, icon(name))),
  ].filter(Boolean);
  const parts = message.parts.map((part) => partView(session, part, isModel, cards));
  return h("article", {
    class: `message ${isModel ? "model" : "person"}${message.hidden ? " hidden-message" : ""}`,
    "aria-label": `${label}: ${shorten(texts.join(" "), 60) || "calls of tools"}`,
  },
  message.hidden && h("p", { class: "badge" }, HIDDEN[message.hidden] ?? message.hidden),
  h("div", { class: "parts" }, parts),
  texts.length > 0 && h("div", { class: "actions" }, buttons));
}

function partView(session, part, isModel, cards) {
  switch (part.kind) {
    case "text":
      if (part.blocks) return h("div", { class: "prose" }, renderedBlocks(part.blocks));
      return part.text.trim() || !isModel ? outside(part.text, { class: "plain-text" }, "div") : null;
    case "json": return jsonBlock(part.value, { label: "Data" });
    case "media": return mediaView(session, part.media);
    case "call": return cards(part.call);
    case "thinking": return h("details", { class: "thinking" }, h("summary", null, icon("thought"), h("span", null, "Thinking")), outside(part.text, { class: "plain-text" }, "div"));
    default: return null;
  }
}

/** Returns a line about something that happened in a turn and is not a message. */
export function noteView(event, session) {
  if (event.type === "denied") return denialView(event, session);
  const name = outside(event.plugin ?? event.name ?? "", { class: "mono" });
  const line = (picture, ...text) => h("p", { class: "event-line muted small" }, icon(picture), h("span", null, ...text));
  switch (event.type) {
    case "plugin_swapped":
      if (!event.to) return line("plugins", "The plugin ", name, " was removed before this turn.");
      return line("plugins", event.from ? "From here on, another version of the plugin " : "From here on, there is a further plugin, ", name, event.from ? ` is used: ${shortDigest(event.from)} → ${shortDigest(event.to)}.` : ".");
    case "plugin_rolled_back": return line("plugins", "From here on, the plugin ", name, ` is rolled back: ${shortDigest(event.from)} → ${shortDigest(event.to)}.`);
    case "model_fallback": return line("warning", outside(event.from), " did not answer, so ", outside(event.to), " continues.");
    case "tool_disabled": return line("warning", "The tool ", name, " failed three times in the same way and is disabled for this turn.");
    default: return line("warning", outside(event.type.replaceAll("_", " ")));
  }
}

/** Returns a prompt that was sent, but that is not part of the conversation yet. */
export function pendingPrompt(text, attachments, note) {
  return h("article", { class: "message person pending", "aria-label": `Prompt: ${shorten(text, 60)}` },
    h("div", { class: "parts" },
      attachments.map((attachment) => (attachment.url ? h("img", { class: "chosen", src: attachment.url, alt: attachment.name }) : h("span", { class: "badge" }, outside(attachment.name)))),
      outside(text, { class: "plain-text" }, "div")),
    note && h("p", { class: "muted small" }, note));
}

/** Returns what was written of a reply that was interrupted. */
export function incompleteReply(content) {
  return h("article", { class: "message model hidden-message", "aria-label": "Reply that was not completed" },
    h("p", { class: "badge" }, "Not completed. The model does not see this part."),
    h("div", { class: "parts" }, content));
}

/** Returns how a turn ended. `recent` are the latest events by their type, and `retry` is a button, or `null`. */
export function turnEnd(state, recent, retry) {
  const end = recent.loop_end;
  const problem = recent.error && end?.reason === "error" ? recent.error : null;
  const isStopped = state === "cancelled";
  return [
    problem && h("div", { class: "callout bad stack tight", role: "alert" }, h("p", null, h("strong", null, "The turn failed. "), outside(sentence(problem.message))), h("p", { class: "row" }, retry)),
    isStopped && h("p", { class: "callout row" }, h("span", { class: "grow" }, "The turn was stopped."), retry),
    recent.memories_recalled && h("p", null, `${plural(recent.memories_recalled.memories.length, "memory", "memories")} recalled`),
    end?.cost && (end.cost.interactions > 0 || !(problem || isStopped)) && costLine(end, recent.stream_complete?.model),
  ];
}

function costLine({ cost, reason }, model) {
  const { usage } = cost;
  return h("p", { class: "cost" }, [
    plural(cost.interactions, "model call"),
    `${compactCount((usage.prompt_tokens ?? 0) + (usage.completion_tokens ?? 0))} tokens`,
    usage.cost && `${usage.cost.partial ? "at least " : ""}${dollars(usage.cost.nanodollars)}`,
    reason === "limit" && "ended at the limit of model calls",
    model,
  ].filter(Boolean).join(" · "));
}
