// A button that opens a menu, with the keyboard of the WAI-ARIA pattern: arrows, Home, End, Escape.

import { h, uniqueId } from "../core/dom.js";
import { icon } from "./icon.js";

/**
 * Returns a menu. `button` is the button that opens it, and `items` is a list, or a function that returns a list, of
 * `{ label, icon, run, kind, disabled }`. `place` has the classes of the position: "above", "start".
 */
export function menu(button, items, { place = "" } = {}) {
  const id = uniqueId("menu");
  const list = h("div", { class: `items ${place}`, role: "menu", id, hidden: true });
  const wrapper = h("div", { class: "menu" }, button, list);
  const open = () => {
    list.replaceChildren();
    for (const item of (typeof items === "function" ? items() : items).filter(Boolean)) {
      list.append(h("button", {
        class: `item ${item.kind ?? ""}`, type: "button", role: item.checked === undefined ? "menuitem" : "menuitemradio",
        "aria-checked": item.checked === undefined ? null : String(item.checked), disabled: item.disabled ?? false, tabindex: "-1",
        on: { click: () => { close(true); item.run(); } },
      }, item.checked === undefined ? item.icon && icon(item.icon) : item.checked ? icon("check") : h("span", { class: "icon" }), h("span", { class: "grow" }, item.label)));
    }
    list.hidden = false;
    button.setAttribute("aria-expanded", "true");
    list.querySelector("button:not(:disabled)")?.focus();
  };
  const close = (focus) => {
    if (list.hidden) return;
    list.hidden = true;
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
  };
  button.setAttribute("aria-haspopup", "menu");
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-controls", id);
  button.addEventListener("click", () => (list.hidden ? open() : close(false)));
  wrapper.addEventListener("focusout", (event) => { if (!wrapper.contains(event.relatedTarget)) close(false); });
  wrapper.addEventListener("keydown", (event) => {
    const enabled = [...list.querySelectorAll("button:not(:disabled)")];
    const place = enabled.indexOf(document.activeElement);
    const target = {
      ArrowDown: enabled[(place + 1) % enabled.length],
      ArrowUp: enabled[(place - 1 + enabled.length) % enabled.length],
      Home: enabled[0],
      End: enabled.at(-1),
    }[event.key];
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    } else if (target && !list.hidden) {
      event.preventDefault();
      target.focus();
    }
  });
  return wrapper;
}
