// The number of things that wait for a person, for the navigation and for pages that follow the inbox.

import { api } from "./api.js";
import { announce } from "./dom.js";
import { signIn } from "./sign-in.js";

const PAUSE = 4_000;

class InboxCount extends EventTarget {
  count = 0;
  items = null;
  /** Whether more sessions wait than are listed. */
  hasMore = false;
  error = null;
  #timer = null;

  /** Reads the inbox again now and then, while the tab is visible. */
  start() {
    if (this.#timer === null) this.#timer = setInterval(() => { if (!document.hidden) this.refresh(); }, PAUSE);
    this.refresh();
  }

  stop() {
    this.items = null;
    this.count = 0;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  async refresh() {
    if (!signIn.may("read")) return;
    try {
      const { items, has_more: hasMore } = await api.get("api/inbox");
      this.hasMore = hasMore;
      if (this.items && items.length > this.items.length) announce(`${items.length} waiting in the inbox`);
      this.items = items;
      this.count = items.length;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.dispatchEvent(new Event("change"));
  }
}

export const inbox = new InboxCount();

/** Returns the number for the navigation, and an event target that says when it changes. */
export function inboxCount() {
  return { count: () => inbox.count, changes: inbox, label: (count) => `${count} waiting` };
}
