// The web console of agent-host. It uses only the public HTTP API (see /openapi.json), and has no build step.
//
// How the console is made
// - `pages/` has one module for each page. A page is a custom element that extends `Page` (components/page.js).
// - `components/` has the parts that several pages use, `core/` what has no appearance: API, events, router, sign-in, DOM.
// - `style/` has the design tokens (tokens.css) and the parts. A page with styles of its own has one file `style/NAME.css`, which
//   index.html loads.
// - host/serve/src/console.rs lists all files. A new file needs a line there and a new build; after that, a development build reads
//   each file again, so a change needs only a reload. A module that the frame or the chat needs also has a line in index.html, so
//   that the browser loads all of them at once.
//
// How a page registers itself
//   1. Write `pages/NAME.js`, which defines one element: `customElements.define("ah-NAME", class extends Page { … })`.
//   2. Add the file to the list in host/serve/src/console.rs.
//   3. Add one line to PAGES below. `path` is the first part of the address after `#/`; the other parts are `this.route.segments`,
//      and the part after `?` is `this.route.query`. With `label` and `icon`, the page is in the navigation.
//   `this.render()` is called once, `this.routeChanged()` at the beginning and whenever the address changes within the page, and
//   `this.signal` is aborted when the page is left. `badge` may name a function that returns a number for the navigation.
//
// Rules for safety
// - Text from outside (models, tools, plugins, users) goes into the page only through `outside()` or `rendered()`, never as markup.
//   The policy of the server forbids markup from strings (Trusted Types), inline styles and scripts, and other servers.
// - All requests go through `api`, which adds the sign-in and turns answers into `ApiError`s with a sentence for people.

import { registerPages, startRouter } from "./core/router.js";
import { applyTheme } from "./core/theme.js";
import { signIn } from "./core/sign-in.js";
import { inboxCount } from "./core/inbox-count.js";
import "./components/shell.js";

const PAGES = [
  { path: "chat", label: "Chat", icon: "chat", element: "ah-chat", load: () => import("./pages/chat.js") },
  { path: "inbox", label: "Inbox", icon: "inbox", element: "ah-inbox", load: () => import("./pages/inbox.js"), badge: inboxCount },
  { path: "turns", label: "Turns", icon: "turn", element: "ah-turns", load: () => import("./pages/turns.js") },
  { path: "plugins", label: "Plugins", icon: "plugins", element: "ah-plugins", load: () => import("./pages/plugins.js") },
  { path: "agents", label: "Agents", icon: "agents", element: "ah-agents", load: () => import("./pages/agents.js") },
  { path: "about", element: "ah-about", title: "About", load: () => import("./pages/about.js") },
];

applyTheme();
registerPages(PAGES);
await signIn.start();
startRouter();
