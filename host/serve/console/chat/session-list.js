// The list of sessions, with a search in titles and messages.

import { api } from "../core/api.js";
import { fill, h, outside, shorten, textNodes, uniqueId } from "../core/dom.js";
import { ago, exactTime } from "../core/format.js";
import { inbox } from "../core/inbox-count.js";
import { shortcut, shownKeys } from "../core/keys.js";
import { href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { icon } from "../components/icon.js";
import { emptyView, errorView } from "../components/page.js";

const PAUSE = 4_000;
export const STATES = {
  running: ["running", "working"],
  suspended: ["waiting", "waiting"],
  failed: ["failed", "failed"],
  cancelled: ["stopped", "stopped"],
};

export class SessionList {
  #sessions = [];
  #selected = null;
  #found = null;
  #timer = null;
  #version = null;

  constructor(page) {
    this.page = page;
    const id = uniqueId("search");
    this.field = h("input", { id, type: "search", placeholder: "Search", autocomplete: "off", "aria-describedby": `${id}-hint` });
    this.list = h("div", { class: "sessions" });
    this.element = h("section", { class: "session-list", "aria-label": "Sessions" },
      h("header", null,
        h("h1", null, "Sessions"),
        signIn.may("talk") && h("a", { class: "button small", href: href("chat", "new") }, icon("plus"), "New")),
      h("div", { class: "search" }, h("label", { class: "visually-hidden", for: id }, "Search sessions and messages"), icon("search"), this.field,
        h("span", { class: "visually-hidden", id: `${id}-hint` }, `Shortcut: ${shownKeys("Control+K")}`)),
      this.list);
    this.field.addEventListener("input", () => this.#search());
    shortcut("Control+K", "Search sessions and messages", () => { this.field.focus(); this.field.select(); }, { signal: page.signal });
  }

  start() {
    this.refresh();
    this.page.every(PAUSE, () => this.refresh());
  }

  select(session) {
    this.#selected = session;
    this.#show();
  }

  async refresh() {
    try {
      const { sessions } = await api.get("api/sessions", { query: { limit: 200 }, signal: this.page.signal });
      // The list is drawn again only if it changes, or if its times do.
      const asked = (inbox.items ?? []).filter(({ kind }) => kind === "first_use").map(({ session }) => session);
      const version = `${Math.floor(Date.now() / 60_000)} ${JSON.stringify([sessions, asked])}`;
      if (version === this.#version) return;
      this.#version = version;
      this.#sessions = sessions;
      this.#show();
    } catch (error) {
      if (error.name !== "AbortError" && this.#sessions.length === 0) fill(this.list, errorView(error, () => this.refresh()));
    }
  }

  #search() {
    this.#show();
    clearTimeout(this.#timer);
    const query = this.field.value.trim();
    if (query.length < 2) {
      this.#found = null;
      this.#show();
      return;
    }
    this.#timer = setTimeout(async () => {
      try {
        const { messages } = await api.get("api/messages", { query: { query, limit: 30 }, signal: this.page.signal });
        if (this.field.value.trim() !== query) return;
        this.#found = messages;
        this.#show();
      } catch {
        // The list of titles is still shown.
      }
    }, 250);
  }

  #show() {
    const query = this.field.value.trim().toLowerCase();
    const matching = this.#sessions.filter((session) => !query || `${session.title ?? ""} ${session.agent} ${session.session}`.toLowerCase().includes(query));
    // The focus stays on the same link when the list is drawn again.
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const several = new Set(this.#sessions.map((session) => session.agent)).size > 1;
    const items = matching.map((session) => this.#item(session, several));
    const hits = (this.#found ?? []).filter(() => query);
    fill(this.list,
      items.length > 0 && h("ul", { class: "plain" }, items),
      hits.length > 0 && [h("h2", { class: "small muted" }, "In messages"), h("ul", { class: "plain" }, hits.map((hit) => hitItem(hit, query)))],
      items.length === 0 && hits.length === 0 && (query
        ? emptyView("search", "Nothing found", "No title and no message contains these words.")
        : emptyView("chat", "No sessions yet", "Sessions that begin here, in the terminal or through the API are listed here.")));
    if (focused) this.list.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  #item(session, several) {
    // A turn that runs may wait for the grants of a plugin.
    const isAsked = inbox.items?.some((item) => item.kind === "first_use" && item.session === session.session);
    const [kind, word] = STATES[isAsked ? "suspended" : session.state] ?? [];
    return h("li", null, h("a", { href: href("chat", session.session), "aria-current": session.session === this.#selected ? "true" : null },
      h("span", { class: "title cut" }, outside(shorten(session.title ?? "Untitled", 120))),
      h("span", { class: "details muted small" },
        kind && h("span", { class: `dot ${kind}` }), kind && h("span", null, word),
        several && outside(session.agent, { class: "cut" }),
        h("time", { datetime: session.updated, title: exactTime(session.updated) }, ago(session.updated)))));
  }
}

function hitItem(hit, query) {
  const excerpt = shorten(hit.excerpt, 160);
  const place = excerpt.toLowerCase().indexOf(query);
  const found = place < 0 ? textNodes(excerpt)
    : [textNodes(excerpt.slice(0, place)), h("mark", null, textNodes(excerpt.slice(place, place + query.length))), textNodes(excerpt.slice(place + query.length))];
  return h("li", null, h("a", { href: `${href("chat", hit.session)}?message=${hit.message}` },
    h("span", { class: "title cut" }, outside(shorten(hit.title ?? hit.session, 80))),
    h("span", { class: "outside excerpt muted small", dir: "auto" }, found)));
}
