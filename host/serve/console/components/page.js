// The base of all pages.

import { fill, h } from "../core/dom.js";
import { ApiError } from "../core/api.js";
import { icon } from "./icon.js";

/** A page of the console; see main.js. */
export class Page extends HTMLElement {
  #controller = null;
  /** The rest of the address: `{ segments, query }`. The frame sets it before the page is shown. */
  route = { segments: [], query: new URLSearchParams() };

  /** Is aborted when the page is left. Requests and listeners of the page use it. */
  get signal() {
    return this.#controller.signal;
  }

  connectedCallback() {
    this.#controller = new AbortController();
    this.render();
    this.routeChanged();
  }

  disconnectedCallback() {
    this.#controller.abort();
  }

  /** Creates the content of the page. */
  render() {}

  /** Is called at the beginning, and when the address has changed within the page. */
  routeChanged() {}

  /** Calls a function now and then while the tab is visible and the page is shown. */
  every(milliseconds, run) {
    const timer = setInterval(() => { if (!document.hidden) run(); }, milliseconds);
    this.signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }

  /**
   * Shows that something is loading in `place`, then what `load` returns, or the error with a button that tries again. Returns
   * whether it succeeded.
   */
  async show(place, load) {
    const timer = setTimeout(() => fill(place, loading()), 150);
    try {
      const content = await load();
      clearTimeout(timer);
      if (this.isConnected && content !== undefined) fill(place, content);
      return true;
    } catch (error) {
      clearTimeout(timer);
      if (error.name === "AbortError" || !this.isConnected) return false;
      fill(place, errorView(error, () => this.show(place, load)));
      return false;
    }
  }
}

/** Returns the heading of a page, with a sentence below and buttons on the right. */
export function pageHeader(title, text, ...actions) {
  return h("header", null, h("div", null, h("h1", null, title), text && h("p", null, text)), h("div", { class: "row" }, actions));
}

export function loading(text = "Loading…") {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "spinner" }), text);
}

/** Returns what is shown instead of an empty list: what it would contain, and how it is filled. */
export function emptyView(name, title, text, ...actions) {
  return h("div", { class: "empty" }, icon(name), h("h2", null, title), h("p", null, text), actions);
}

/** Returns what is shown instead of content that could not be loaded. */
export function errorView(error, retry) {
  const isRight = error instanceof ApiError && error.status === 403;
  return h("div", { class: "empty", role: "alert" }, icon(isRight ? "shield" : "warning"),
    h("h2", null, isRight ? "Not allowed" : "This could not be loaded"),
    h("p", null, error.message, isRight ? " Ask the person who runs the server for a token with this right." : ""),
    retry && !isRight && h("button", { class: "button", type: "button", on: { click: retry } }, "Try again"));
}
