// Dialogs. The browser keeps the focus inside, and returns it when the dialog is closed.

import { append, h, uniqueId } from "../core/dom.js";
import { icon } from "./icon.js";

/**
 * Opens a dialog. `actions` are `{ label, kind, value, run }`: `run` may return `false` (or a promise of it) to keep the dialog
 * open. Returns a promise of the `value` of the action that closed the dialog, or `null`.
 */
export function openDialog({ title, body, actions = [] }) {
  return new Promise((resolve) => {
    const id = uniqueId("dialog");
    let result = null;
    const dialog = h("dialog", { "aria-labelledby": id });
    const finish = (value) => { result = value; dialog.close(); };
    const buttons = actions.map(({ label, kind = "", value = label, run }) => h("button", {
      class: `button ${kind}`, type: "button",
      on: {
        click: async (event) => {
          const button = event.currentTarget;
          button.disabled = true;
          const done = run ? await run() : true;
          button.disabled = false;
          if (done !== false) finish(value);
        },
      },
    }, label));
    append(dialog, [
      h("header", null, h("h2", { id }, title),
        h("button", { class: "icon-button", type: "button", "aria-label": "Close", on: { click: () => finish(null) } }, icon("cross"))),
      h("div", { class: "body" }, body),
      buttons.length > 0 && h("footer", null, buttons),
    ]);
    dialog.addEventListener("click", (event) => { if (event.target === dialog) finish(null); });
    dialog.addEventListener("close", () => { dialog.remove(); resolve(result); });
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

/** Asks before something that cannot be taken back. Returns whether the person agreed. */
export async function confirmed({ title, text, action, danger = true }) {
  const answer = await openDialog({
    title,
    body: h("p", null, text),
    actions: [
      { label: "Cancel", value: "cancel" },
      { label: action, kind: danger ? "danger" : "primary", value: "agreed" },
    ],
  });
  return answer === "agreed";
}
