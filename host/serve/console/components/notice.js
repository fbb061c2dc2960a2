// Short notices at the bottom of the window. Errors stay until they are closed; other notices disappear.

import { announce, h } from "../core/dom.js";
import { icon } from "./icon.js";

const SHOWN_FOR = 6_000;

/** Shows a notice. `kind` is "info" or "bad", and `action` is `{ label, run }`. */
export function notify(text, { kind = "info", action } = {}) {
  const region = document.querySelector(".notices");
  if (!region) return;
  const close = () => {
    const hadFocus = notice.contains(document.activeElement);
    notice.remove();
    if (hadFocus) document.getElementById("main")?.focus();
  };
  const notice = h("div", { class: `notice ${kind}` },
    h("span", { class: "grow" }, text),
    action && h("button", { class: "button small", type: "button", on: { click: () => { close(); action.run(); } } }, action.label),
    h("button", { class: "icon-button small", type: "button", "aria-label": "Close the notice", on: { click: close } }, icon("cross")));
  region.append(notice);
  while (region.children.length > 3) region.firstChild.remove();
  announce(text);
  if (kind !== "bad") setTimeout(close, SHOWN_FOR);
}

/** Shows the error of a request, unless the page was left meanwhile. */
export function notifyError(error, prefix = "") {
  if (error.name === "AbortError") return;
  notify(prefix ? `${prefix} ${error.message}` : error.message, { kind: "bad" });
}
