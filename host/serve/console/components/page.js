// The base of all pages.

import { fill, h } from "../core/dom.js";
import { ApiError } from "../core/api.js";
import { icon } from "./icon.js";

/** What was shown last in a place, so that an answer that comes too late does not replace something newer. */
const latest = new WeakMap();

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

  /** Moves the focus to the heading, after the element that had it is gone. */
  focusHeading() {
    const heading = this.querySelector("h1");
    if (!heading) return;
    heading.tabIndex = -1;
    heading.focus();
  }

  /**
   * Calls a function now and then while the tab is visible and the page is shown. If it returns a promise, it is not called again
   * until the promise is settled: a browser opens only six connections to a server, and the requests of a slow server would
   * soon use all of them.
   */
  every(milliseconds, run) {
    let isRunning = false;
    const timer = setInterval(async () => {
      if (document.hidden || isRunning) return;
      isRunning = true;
      try {
        await run();
      } finally {
        isRunning = false;
      }
    }, milliseconds);
    this.signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }

  /**
   * Shows that something is loading in `place`, then what `load` returns, or the error with a button that tries again. Returns
   * whether it succeeded.
   */
  async show(place, load) {
    const request = {};
    latest.set(place, request);
    const isLatest = () => this.isConnected && latest.get(place) === request;
    const timer = setTimeout(() => { if (isLatest()) fill(place, loading()); }, 150);
    try {
      const content = await load();
      if (isLatest() && content !== undefined) fill(place, content);
      return true;
    } catch (error) {
      if (error.name === "AbortError" || !isLatest()) return false;
      fill(place, errorView(error, () => this.show(place, load)));
      return false;
    } finally {
      clearTimeout(timer);
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
