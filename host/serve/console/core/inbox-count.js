// The number of things that wait for a person, for the navigation and for pages that follow the inbox.

import { api } from "./api.js";
import { announce } from "./dom.js";
import { signIn } from "./sign-in.js";

const PAUSE = 4_000;
/** Time in milliseconds after the last movement or key for which a person counts as present. */
const PRESENCE = 5 * 60_000;
/** Maximum number of parts that are read one after another. */
const MAX_PARTS = 20;

class InboxCount extends EventTarget {
  count = 0;
  items = null;
  /** Whether more sessions wait than are listed. */
  hasMore = false;
  error = null;
  #timer = null;
  /** Number of parts that are shown. Each has up to 100 sessions. */
  #parts = 1;
  /** Ends the read that is in progress. `null` if there is none. */
  #reading = null;
  #lastSign = Date.now();

  constructor() {
    super();
    const note = () => { this.#lastSign = Date.now(); };
    for (const sign of ["pointerdown", "pointermove", "keydown", "wheel", "touchstart", "focus"]) {
      window.addEventListener(sign, note, { passive: true, capture: true });
    }
  }

  /** Whether a person looks at the console. Only then do turns wait for the grants of a plugin. */
  get #isPresent() {
    return !document.hidden && Date.now() - this.#lastSign < PRESENCE;
  }

  /** Reads the inbox again now and then, while the tab is visible. */
  start() {
    if (this.#timer === null) this.#timer = setInterval(() => { if (!document.hidden) this.poll(); }, PAUSE);
    this.refresh();
  }

  stop() {
    this.items = null;
    this.count = 0;
    this.#parts = 1;
    this.#reading?.abort();
    this.#reading = null;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Shows a further part, with what has waited for a shorter time. */
  showMore() {
    this.#parts = Math.min(MAX_PARTS, this.#parts + 1);
    return this.refresh();
  }

  /** Reads the inbox again, unless it is being read. So a slow server gets only one such request at a time. */
  poll() {
    return this.#reading ? Promise.resolve() : this.refresh();
  }

  /** Reads the inbox now. A read that is in progress ends without a result. */
  async refresh() {
    if (!signIn.may("read")) return;
    this.#reading?.abort();
    const reading = new AbortController();
    this.#reading = reading;
    const { signal } = reading;
    try {
      let [items, after] = [[], null];
      for (let part = 0; part < MAX_PARTS; part += 1) {
        // A part can be empty, because a service that was asked a moment ago is not listed.
        if (part >= this.#parts && items.length > 0) break;
        const query = { after, present: part === 0 && this.#isPresent && signIn.may("administer") ? true : null };
        const answer = await api.get("api/inbox", { query, signal });
        if (signal.aborted) return;
        items = items.concat(answer.items);
        after = answer.next ?? null;
        if (after === null) break;
      }
      this.hasMore = after !== null;
      if (this.items && items.length > this.items.length) announce(`${items.length} waiting in the inbox`);
      this.items = items;
      this.count = items.length;
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    } finally {
      if (this.#reading === reading) this.#reading = null;
    }
    this.dispatchEvent(new Event("change"));
  }
}

export const inbox = new InboxCount();

/** Returns the number for the navigation, and an event target that says when it changes. */
export function inboxCount() {
  return { count: () => inbox.count, changes: inbox, label: (count) => `${count}${inbox.hasMore ? " or more" : ""} waiting` };
}
