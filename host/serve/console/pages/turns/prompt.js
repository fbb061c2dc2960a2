// The exact prompt of a step in blocks: what is new, what has changed, and what a cache of the provider can reuse.

import { append, h, outside, textNodes } from "../../core/dom.js";
import { api, sessionPath } from "../../core/api.js";
import { diffLines } from "../../core/diff.js";
import { bytes, count, plural } from "../../core/format.js";
import { difference } from "../../core/rendered.js";
import { icon } from "../../components/icon.js";
import { copyButton } from "../../components/json-view.js";
import { notifyError } from "../../components/notice.js";
import { shareBar } from "../../components/share-bar.js";

const KINDS = { tool: "tool", output_schema: "output schema", system: "system", message: "message" };
const WHY = { superseded: "it is obsolete", taken_back: "its turn was undone", evicted: "it no longer fitted, and a summary replaces it" };
const LIFECYCLES = { init: "a new input", tool_result: "the results of tools", output_error_feedback: "a correction" };

/** Returns the view of a step's prompt, which loads it. */
export function promptView(page, details, step) {
  const place = h("div", { class: "prompt stack" });
  const path = sessionPath(details.session, "turns", details.turn, "steps", step.step);
  const load = (after) => api.get(`${path}/prompt`, { query: { after, limit: 100 }, signal: page.signal });
  page.show(place, async () => content(page, path, await load(0), load));
  return place;
}

function content(page, path, prompt, load) {
  const blocks = h("ol", { class: "plain prompt-blocks" });
  const more = h("button", { class: "button", type: "button" });
  let next = null;
  const add = (found) => {
    append(blocks, found.blocks.map(block));
    next = found.next;
    more.hidden = next === null;
    more.textContent = next === null ? "" : `Show more blocks (${count(found.block_count - next)} left)`;
  };
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      add(await load(next));
    } catch (error) {
      notifyError(error);
    }
    more.disabled = false;
  });
  add(prompt);
  return [
    summary(page, path, prompt),
    prompt.removed.length > 0 && removed(prompt),
    blocks,
    more,
  ];
}

function summary(page, path, prompt) {
  const { size, reused, previous, body } = prompt;
  const rest = size.tokens - reused.tokens;
  const compared = previous ? `Compared with step ${previous.step} of turn ${previous.turn}.` : "This is the first prompt of the session.";
  const save = h("button", { class: "button", type: "button" }, "Save the whole request");
  save.addEventListener("click", async () => {
    save.disabled = true;
    try {
      const blob = await api.blob(`${path}/request`, { signal: page.signal });
      const link = h("a", { href: URL.createObjectURL(blob), download: `request-${path.split("/").slice(-3).join("-")}.json` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
    } catch (error) {
      notifyError(error);
    }
    save.disabled = false;
  });
  return h("div", { class: "stack tight" },
    h("div", { class: "row apart" },
      h("p", null, `Sent to `, outside(prompt.model, { class: "mono" }), ` because of ${LIFECYCLES[prompt.lifecycle] ?? prompt.lifecycle}. ${compared}`), save),
    shareBar("How much of the prompt can be reused", [
      { label: "can be reused by the provider's cache, about", name: "reused", value: reused.tokens, shown: plural(reused.tokens, "token") },
      { label: "new, about", name: "new", value: rest, shown: plural(rest, "token") },
    ]),
    body && h("p", { class: "muted small" }, `The request has ${bytes(body.bytes)}`,
      body.reused_bytes !== null && `, of which the first ${bytes(body.reused_bytes)} are equal to the request before`,
      body.exact ? ". It is rebuilt exactly as it was sent." : ". It is rebuilt, and may differ from what was sent."));
}

function removed(prompt) {
  return h("details", { class: "removed" },
    h("summary", null, `${plural(prompt.removed_count, "block")} of the previous prompt are no longer in this one`),
    h("ul", { class: "plain" }, prompt.removed.map((block) => h("li", null,
      h("span", { class: "badge bad" }, "removed"), " ", outside(block.title),
      h("span", { class: "muted" }, ` about ${plural(block.tokens, "token")}`, WHY[block.why] && ` · ${WHY[block.why]}`)))));
}

function block(found) {
  const isOpen = found.change !== "same" && found.kind !== "tool";
  const reuse = found.reused_characters === 0 ? null : found.reused_characters >= found.characters ? "reusable" : "partly reusable";
  const details = h("details", { class: `prompt-block ${found.change}`, open: isOpen },
    h("summary", null, icon("chevron"),
      h("span", { class: "kind" }, KINDS[found.kind]),
      outside(found.title, { class: "grow cut" }),
      found.masks.length > 0 && h("span", { class: "badge warn" }, plural(found.masks.length, "mask")),
      found.seen_count > 0 && h("span", { class: "muted small seen" }, `seen ${found.seen_count}×`),
      h("span", { class: "muted small" }, plural(found.tokens, "token")),
      reuse && h("span", { class: "badge good" }, reuse),
      found.change !== "same" && h("span", { class: "badge accent" }, found.change === "added" ? "new" : "changed")));
  const fillBody = () => {
    if (details.querySelector(".body")) return;
    details.append(body(found));
  };
  if (isOpen) fillBody();
  details.addEventListener("toggle", () => { if (details.open) fillBody(); });
  return h("li", null, details);
}

function body(found) {
  const hasDiff = found.change === "changed" && found.diff;
  return h("div", { class: "body stack tight" },
    found.masks.map((mask) => h("p", { class: "callout" }, "A media item is replaced by: ", outside(mask))),
    hasDiff && difference(diffLines(found.diff), "Difference to the previous prompt"),
    h("div", { class: "text" },
      h("pre", { class: "outside wrap", dir: "auto", tabindex: "0", "aria-label": "Text of the block" },
        reusable(found)),
      copyButton(found.text, "Copy the text of the block")),
    found.cut && h("p", { class: "callout" }, `The text has ${count(found.characters)} characters. Save the whole request to see the rest.`));
}

/** Marks the beginning that can be reused if only a part of the block can be reused. */
function reusable(found) {
  const characters = [...found.text];
  if (found.reused_characters === 0 || found.reused_characters >= characters.length) return textNodes(found.text);
  const head = characters.slice(0, found.reused_characters).join("");
  return [h("mark", null, h("span", { class: "visually-hidden" }, "Reusable: "), textNodes(head)), textNodes(characters.slice(found.reused_characters).join(""))];
}
