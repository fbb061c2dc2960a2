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
  const details = h("details", { class: `budget ${state}`, on: { keydown: (event) => closeOnEscape(event, details), focusout: (event) => closeOutside(event, details) } },
    h("summary", { title: "What fills the context window" }, bar,
      h("span", { class: "nowrap" }, h("span", { class: "visually-hidden" }, "Context window: "), `${percent} %`, h("span", { class: "of" }, ` of ${compactCount(budget.total)}`))),
    h("dl", { class: "budget-shares" }, rows, h("div", { class: "total" }, h("dt", null, "Window, in tokens"), h("dd", null, count(budget.total)))));
  return details;
}

function closeOnEscape(event, details) {
  if (event.key !== "Escape" || !details.open) return;
  event.preventDefault();
  details.open = false;
  details.querySelector("summary").focus();
}

/** Closes the list when somebody goes on with something else. */
function closeOutside(event, details) {
  if (details.isConnected && !details.contains(event.relatedTarget)) details.open = false;
}

/** Replaces the bar in a place, and keeps it open if it was open. */
export function showBudget(place, budget) {
  const version = JSON.stringify(budget ?? null);
  if (place.dataset.version === version) return;
  place.dataset.version = version;
  const wasOpen = place.querySelector("details")?.open;
  const hadFocus = place.contains(document.activeElement);
  fill(place, budgetBar(budget));
  if (!place.firstChild) return;
  if (wasOpen) place.firstChild.open = true;
  if (hadFocus) place.querySelector("summary").focus();
}
