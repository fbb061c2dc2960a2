// Texts and JSON values from outside, in blocks with a button that copies them. A long text is shown piece by piece, so that a
// result of many megabytes never makes the page slow.

import { h, outside, textNodes } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { icon } from "./icon.js";
import { notify } from "./notice.js";

/** Number of characters that are shown at first, and that each further step shows. */
const FIRST = 3_000;
const STEP = 60_000;

/** Returns a button that copies a text. `text` is the text, or a function that returns it. */
export function copyButton(text, label = "Copy") {
  const button = h("button", { class: "icon-button small", type: "button", "aria-label": label, title: label }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      button.replaceChildren(icon("check"));
      setTimeout(() => button.replaceChildren(icon("copy")), 1_500);
    } catch {
      notify("The browser does not allow this page to copy. Select the text instead.", { kind: "bad" });
    }
  });
  return button;
}

/** Returns a block with a text from outside. */
export function textBlock(text, { label = "Text", wrap = true, omittedBytes = 0 } = {}) {
  const pre = h("pre", { class: wrap ? "outside wrap" : "outside", dir: "auto", tabindex: "0", "aria-label": label });
  const more = h("button", { class: "button small quiet", type: "button" });
  let shown = 0;
  const show = (length) => {
    const until = cut(text, shown + length);
    pre.append(...textNodes(text.slice(shown, until)));
    shown = until;
    more.hidden = shown >= text.length;
    more.textContent = `Show more (${bytes(text.length - shown)} left)`;
  };
  more.addEventListener("click", () => show(STEP));
  show(FIRST);
  return h("div", { class: "code" },
    h("header", null, h("span", null, label), copyButton(text, `Copy: ${label}`)),
    pre, more,
    omittedBytes > 0 && h("p", { class: "callout" }, `${bytes(omittedBytes)} more are stored. The API returns the whole text.`));
}

/** Returns a position at or before `position` that is not inside a character. */
function cut(text, position) {
  if (position >= text.length) return text.length;
  const code = text.charCodeAt(position);
  return code >= 0xdc00 && code <= 0xdfff ? position - 1 : position;
}

/** Returns a block with a JSON value. */
export function jsonBlock(value, { label = "JSON" } = {}) {
  return textBlock(JSON.stringify(value, null, 2) ?? "null", { label });
}

/** Returns arguments or another object as a list of names and values, if it is small and flat, and as JSON otherwise. */
export function valueView(value, { label = "Value" } = {}) {
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  const entries = isObject ? Object.entries(value) : [];
  const isFlat = isObject && entries.length > 0 && entries.length <= 8
    && entries.every(([, entry]) => entry === null || typeof entry !== "object");
  const isShort = isFlat && entries.every(([, entry]) => String(entry).length <= 300 && !String(entry).includes("\n"));
  if (!isShort) return typeof value === "string" ? textBlock(value, { label }) : jsonBlock(value, { label });
  return h("dl", { class: "definition" }, entries.map(([name, entry]) => [
    h("dt", null, outside(name, { class: "mono" })),
    h("dd", null, outside(typeof entry === "string" ? entry : JSON.stringify(entry), { class: "mono" })),
  ]));
}
