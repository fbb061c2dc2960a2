// Tabs with the keyboard of the WAI-ARIA pattern.

import { fill, h, uniqueId } from "../core/dom.js";

/** Returns tabs for a list of `{ label, content }`, where `content` is a function that returns the node of the tab. */
export function tabs(label, entries, { selected = 0, onSelect = () => {} } = {}) {
  const panel = h("div", { role: "tabpanel", id: uniqueId("panel"), tabindex: "0" });
  const buttons = entries.map((entry, index) => h("button", {
    role: "tab", type: "button", id: uniqueId("tab"), "aria-controls": panel.id, on: { click: () => select(index) },
  }, entry.label));
  const select = (index) => {
    buttons.forEach((button, position) => {
      button.setAttribute("aria-selected", String(position === index));
      button.tabIndex = position === index ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[index].id);
    fill(panel, entries[index].content());
    onSelect(index);
  };
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons);
  list.addEventListener("keydown", (event) => {
    const place = buttons.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const target = event.key === "Home" ? 0 : event.key === "End" ? buttons.length - 1 : step && (place + step + buttons.length) % buttons.length;
    if (target === undefined) return;
    event.preventDefault();
    select(target);
    buttons[target].focus();
  });
  select(selected);
  return h("div", { class: "stack" }, list, panel);
}
