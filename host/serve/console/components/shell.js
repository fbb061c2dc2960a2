// The frame: navigation, account, the page that the address names, notices, and the sign-in.

import { announce, fill, h } from "../core/dom.js";
import { connection } from "../core/api.js";
import { inbox } from "../core/inbox-count.js";
import { currentShortcuts, shortcut } from "../core/keys.js";
import { currentRoute, href, go, navigationPages, onRoute } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { chooseTheme, theme } from "../core/theme.js";
import { openDialog } from "./dialog.js";
import { icon } from "./icon.js";
import { menu } from "./menu.js";
import { emptyView, errorView, loading } from "./page.js";
import "../pages/sign-in.js";

class Shell extends HTMLElement {
  #shown = null;
  #main = null;
  #links = new Map();
  #started = false;
  /** Is aborted when the sign-in changes. */
  #signedIn = null;

  connectedCallback() {
    onRoute(() => this.#route());
    signIn.addEventListener("change", () => this.#signInChanged());
    const offline = h("div", { class: "offline", role: "alert", hidden: true }, "The server cannot be reached. The page tries again by itself.");
    connection.addEventListener("change", ({ detail: isReachable }) => { offline.hidden = isReachable; });
    // The bar is above the page, so that it covers nothing.
    this.before(offline);
    document.body.append(h("div", { class: "notices" }), h("div", { id: "announcements", class: "visually-hidden", role: "status" }));
    shortcut("Control+/", "Show the keyboard shortcuts", showShortcuts);
    shortcut("Alt+N", "Begin a session", () => { if (signIn.secret) go(href("chat", "new")); });
  }

  /** Is called for the first time when the router starts, which is when the sign-in is known. */
  #route() {
    if (!this.#started) {
      this.#started = true;
      this.#signInChanged();
      return;
    }
    if (signIn.secret) this.#showPage();
  }

  #signInChanged() {
    if (!this.#started) return;
    this.#shown = null;
    this.#signedIn?.abort();
    this.#signedIn = new AbortController();
    // What the last sign-in has shown must not stay.
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    fill(document.querySelector(".notices"));
    if (!signIn.secret) {
      inbox.stop();
      document.title = "Sign in · agent-host";
      fill(this, h("ah-sign-in"));
      return;
    }
    this.#frame();
    inbox.start();
    this.#showPage();
  }

  #frame() {
    this.#main = h("main", { id: "main", tabindex: "-1" });
    this.#links.clear();
    const items = navigationPages().map((page) => {
      const badge = h("span", { class: "badge count", hidden: true });
      const link = h("a", { href: href(page.path) }, icon(page.icon), h("span", null, page.label), badge);
      this.#links.set(page, link);
      if (page.badge) {
        const { count, changes, label } = page.badge();
        const update = () => {
          badge.hidden = count() === 0;
          fill(badge, h("span", { "aria-hidden": "true" }, count() > 99 ? "99+" : count()), h("span", { class: "visually-hidden" }, label(count())));
        };
        changes.addEventListener("change", update, { signal: this.#signedIn.signal });
        update();
      }
      return h("li", null, link);
    });
    const skip = h("button", { class: "button primary skip", type: "button", on: { click: () => this.#main.focus() } }, "Skip to the content");
    fill(this, skip, h("div", { class: "frame" },
      h("header", { class: "rail" },
        h("div", { class: "brand" }, h("img", { src: "icon.svg", alt: "" }), "agent-host"),
        h("nav", { "aria-label": "Pages" }, h("ul", { class: "plain" }, items)),
        h("div", { class: "foot" }, this.#account())),
      this.#main));
  }

  #account() {
    const button = h("button", { class: "account", type: "button", "aria-label": `Account: ${signIn.token.name}` },
      icon("user"), h("span", { class: "cut name" }, signIn.token.name));
    const themes = [["system", "Theme of the system"], ["light", "Light theme"], ["dark", "Dark theme"]];
    return menu(button, () => [
      ...themes.map(([name, label]) => ({ label, checked: theme() === name, run: () => chooseTheme(name) })),
      { label: "Keyboard shortcuts", icon: "question", run: showShortcuts },
      { label: "About", icon: "about", run: () => go(href("about")) },
      { label: "Sign out", icon: "leave", run: () => signIn.end("You are signed out.") },
    ], { place: "above start account-menu" });
  }

  async #showPage() {
    const { page, segments, query } = currentRoute();
    for (const [known, link] of this.#links) {
      if (known === page) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!page) {
      this.#shown = null;
      fill(this.#main, h("h1", { class: "visually-hidden" }, "Unknown page"), emptyView("question", "There is no such page", "The address may be wrong, or this version of the console does not have the page.",
        h("a", { class: "button", href: "#/" }, "Go to the start")));
      return;
    }
    document.title = `${page.label ?? page.title} · agent-host`;
    const route = { segments, query };
    if (this.#shown?.page === page) {
      // A page whose module is being loaded gets the address of that moment.
      if (!this.#shown.element) return;
      this.#shown.element.route = route;
      this.#shown.element.routeChanged();
      return;
    }
    const shown = { page, element: null };
    this.#shown = shown;
    // The address may change before the module is loaded. Then this page must not replace the other one.
    const timer = setTimeout(() => { if (this.#shown === shown) fill(this.#main, loading()); }, 200);
    try {
      await page.load();
    } catch (error) {
      clearTimeout(timer);
      if (this.#shown === shown) {
        this.#shown = null;
        fill(this.#main, errorView(error, () => this.#showPage()));
      }
      return;
    }
    clearTimeout(timer);
    if (this.#shown !== shown) return;
    // The address may have changed while the module was loaded.
    const now = currentRoute();
    shown.element = document.createElement(page.element);
    shown.element.route = { segments: now.segments, query: now.query };
    fill(this.#main, shown.element);
    this.#main.scrollTop = 0;
    announce(`${page.label ?? page.title} page`);
  }
}

function showShortcuts() {
  const rows = currentShortcuts().map(({ keys, label }) => [h("dt", null, h("kbd", null, keys)), h("dd", null, label)]);
  openDialog({ title: "Keyboard shortcuts", body: h("dl", { class: "definition" }, rows), actions: [{ label: "Close", kind: "primary" }] });
}

customElements.define("ah-shell", Shell);
