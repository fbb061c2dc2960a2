// A bar that shows how a whole is divided, with a legend, so that nothing depends on colours alone.

import { h } from "../core/dom.js";

/** Returns a bar. `parts` are `{ label, value, shown, name }`: `name` selects the colour, and `shown` is the value as text. */
export function shareBar(label, parts) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const pieces = parts.filter((part) => part.value > 0).map((part) => {
    const piece = h("span", { class: `piece ${part.name}` });
    piece.style.flexGrow = String(part.value / total);
    return piece;
  });
  return h("figure", { class: "share-figure" },
    h("figcaption", { class: "visually-hidden" }, label),
    h("div", { class: "bar", "aria-hidden": "true" }, pieces),
    h("ul", { class: "plain legend" }, parts.map((part) => h("li", null,
      h("span", { class: `swatch ${part.name}`, "aria-hidden": "true" }), h("span", null, `${part.label} `, h("strong", null, part.shown))))));
}
