// What fills the context window of the model.

import { fill, h } from "../core/dom.js";
import { compactCount, count } from "../core/format.js";

const SHARES = [
  ["system", "System text"],
  ["tools", "Tools"],
  ["messages", "Messages"],
  ["reserved", "Reserved for the reply"],
  ["remaining", "Free"],
];

/** Returns the bar for the event `context_budget`, or nothing if there is none yet. */
export function budgetBar(budget) {
  if (!budget?.total) return null;
  const used = budget.total - budget.remaining;
  const percent = Math.round((used / budget.total) * 100);
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, SHARES.map(([name]) => {
    const share = h("span", { class: `share ${name}` });
    share.style.flexGrow = String(Math.max(0, budget[name] ?? 0));
    return share;
  }));
  const state = percent >= 90 ? "bad" : percent >= 75 ? "warn" : "";
  const rows = SHARES.map(([name, label]) => h("div", null,
    h("dt", null, h("span", { class: `swatch ${name}` }), label), h("dd", null, count(budget[name] ?? 0))));
  return h("details", { class: `budget ${state}` },
    h("summary", { title: "What fills the context window" }, bar,
      h("span", { class: "nowrap" }, h("span", { class: "visually-hidden" }, "Context window: "), `${percent} % of ${compactCount(budget.total)}`)),
    h("dl", { class: "budget-shares" }, rows, h("div", { class: "total" }, h("dt", null, "Window, in tokens"), h("dd", null, count(budget.total)))));
}

/** Replaces the bar in a place, and keeps it open if it was open. */
export function showBudget(place, budget) {
  const wasOpen = place.querySelector("details")?.open;
  fill(place, budgetBar(budget));
  if (wasOpen && place.firstChild) place.firstChild.open = true;
}
