// The address after `#/` says which page is shown: `#/chat/clerk%2F1?message=3` is the page `chat` with one segment and a query.

let pages = [];
const changes = new EventTarget();

/** Sets the pages of the console; see main.js. */
export function registerPages(registered) {
  pages = registered;
}

/** The pages that are in the navigation. */
export function navigationPages() {
  return pages.filter((page) => page.label);
}

/** Returns the page and the rest of the address that the window shows now. */
export function currentRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").filter((segment) => segment !== "");
  const page = pages.find((known) => known.path === first) ?? (first ? null : pages[0]);
  return { page, segments: rest.map(decoded), query: new URLSearchParams(query) };
}

function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Returns the address of a page, for links: `href("chat", session)`. */
export function href(path, ...segments) {
  return `#/${[path, ...segments.map(encodeURIComponent)].join("/")}`;
}

/** Returns the address of an agent's configuration, in which lines of a table are added that the person then reviews and saves. */
export function configurationWith(agent, table, lines) {
  return `${href("agents", agent)}?${new URLSearchParams({ part: "configuration", table, add: lines })}`;
}

/** Shows another page. With `replace`, the page that is left is not in the history. */
export function go(address, { replace = false } = {}) {
  if (location.hash === address) return;
  if (replace) {
    history.replaceState(null, "", address);
    changes.dispatchEvent(new Event("change"));
  } else {
    location.hash = address;
  }
}

export function startRouter() {
  window.addEventListener("hashchange", () => changes.dispatchEvent(new Event("change")));
  changes.dispatchEvent(new Event("change"));
}

/** Calls a function whenever the address changes. */
export function onRoute(listener) {
  changes.addEventListener("change", listener);
}
