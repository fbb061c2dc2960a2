// Everything that waits for a person, across all agents.

import { fill, h } from "../core/dom.js";
import { plural } from "../core/format.js";
import { inbox } from "../core/inbox-count.js";
import { Page, emptyView, errorView, loading, pageHeader } from "../components/page.js";
import { DecisionCard, itemKey } from "../components/decision.js";

class InboxPage extends Page {
  #cards = new Map();
  #decided = new Map();
  /** The number of items that the page says, which is not said again. */
  #count = null;

  render() {
    this.list = h("div", { class: "stack decisions" });
    this.state = h("div", null, loading());
    this.help = h("p", { class: "muted small keys", hidden: true },
      h("kbd", null, "↓"), " ", h("kbd", null, "↑"), " next and previous; the keys on the buttons work while a card has the focus");
    this.more = h("div", { class: "row", hidden: true }, h("p", { class: "muted small grow" }, "More sessions wait. These have waited for the longest time."),
      h("button", { class: "button", type: "button", on: { click: (event) => this.#showMore(event.currentTarget) } }, "Show more"));
    this.append(h("div", { class: "page narrow" },
      pageHeader("Inbox", "Approvals, questions and everything else that waits for a person, the oldest first."),
      this.help, this.state, this.list, this.more));
    this.list.addEventListener("decided", ({ detail: { item, needsFocus } }) => {
      this.#decided.set(itemKey(item), Date.now());
      this.#cards.delete(itemKey(item));
      if (needsFocus) this.focusHeading();
    });
    this.list.addEventListener("keydown", (event) => this.#move(event));
    inbox.addEventListener("change", () => this.#show(), { signal: this.signal });
    inbox.refresh();
    this.every(2_000, () => inbox.poll());
  }

  #show() {
    if (inbox.error && this.#cards.size === 0) {
      this.#count = null;
      fill(this.state, errorView(inbox.error, () => inbox.refresh()));
      return;
    }
    const items = (inbox.items ?? []).filter((item) => {
      // The list may have been read before the decision was stored.
      const decided = this.#decided.get(itemKey(item));
      return !decided || Date.now() - decided > 5_000;
    });
    const keys = new Set(items.map(itemKey));
    for (const [key, card] of this.#cards) {
      if (keys.has(key)) continue;
      this.#cards.delete(key);
      this.#leave(card);
    }
    for (const item of items) {
      const key = itemKey(item);
      if (this.#cards.has(key)) continue;
      const card = new DecisionCard(item);
      card.element.tabIndex = 0;
      this.#cards.set(key, card);
      this.list.append(card.element);
    }
    document.title = `${items.length > 0 ? `(${items.length}) ` : ""}Inbox · agent-host`;
    this.help.hidden = items.length === 0;
    this.more.hidden = !inbox.hasMore;
    if (inbox.items === null || this.#count === items.length) return;
    this.#count = items.length;
    fill(this.state, items.length === 0
      ? emptyView("inbox", "Nothing waits for you", "When an agent needs an approval or asks a question, it is listed here. The page looks for new items by itself.")
      : h("p", { class: "visually-hidden", role: "status" }, plural(items.length, "item")));
  }

  async #showMore(button) {
    button.disabled = true;
    await inbox.showMore();
    button.disabled = false;
    // The button that was disabled has lost the focus.
    if (this.more.hidden) this.list.lastElementChild?.focus();
    else button.focus();
  }

  /** Shows that somebody else decided, before the card disappears. */
  #leave(card) {
    fill(card.content, h("p", { class: "callout" }, "Somebody else decided about this, or the turn ended."));
    setTimeout(() => card.element.remove(), 4_000);
  }

  #move(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const cards = [...this.list.querySelectorAll(".decision")];
    const place = cards.indexOf(event.target);
    if (!step || place < 0) return;
    event.preventDefault();
    cards[Math.min(cards.length - 1, Math.max(0, place + step))].focus();
  }
}

customElements.define("ah-inbox", InboxPage);
