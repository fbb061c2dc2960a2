// What the token of this sign-in allows, and where the API is described. It is also the example of a small page.

import { h, outside } from "../core/dom.js";
import { api } from "../core/api.js";
import { Page, pageHeader } from "../components/page.js";

const RIGHTS = {
  read: "read agents, sessions, messages and events",
  talk: "begin sessions and turns, answer questions, stop turns",
  approve: "decide about calls that wait for an approval, or whose outcome is unknown",
  administer: "delete sessions and memories, roll plugins back, see prompts and grants, replay turns, change the files of agents",
};

class AboutPage extends Page {
  render() {
    // The page has nothing else that gets the focus, and a small window scrolls it.
    this.content = h("div", { tabindex: "0", role: "region", "aria-label": "About this sign-in" });
    this.append(h("div", { class: "page" }, pageHeader("About", "What you may do on this server."), this.content));
    this.show(this.content, async () => this.details(await api.get("api/token", { signal: this.signal })));
  }

  details(token) {
    const agents = token.agents.length === 0 ? "all agents" : token.agents.join(", ");
    return h("div", { class: "stack" },
      h("section", { class: "card" }, h("header", null, h("h2", null, "Your token")), h("div", { class: "body" },
        h("dl", { class: "definition" },
          h("dt", null, "Name"), h("dd", null, outside(token.name)),
          h("dt", null, "Agents"), h("dd", null, outside(agents)),
          h("dt", null, "User"), h("dd", null, token.user ? outside(token.user) : "the sessions of all users"),
          Object.entries(RIGHTS).map(([right, meaning]) => [
            h("dt", null, h("code", null, right)),
            h("dd", { class: "right" }, token.rights.includes(right) ? h("span", { class: "badge good" }, "allowed") : h("span", { class: "badge" }, "not allowed"), h("span", null, meaning)),
          ])))),
      h("section", { class: "card" }, h("header", null, h("h2", null, "Programs")), h("div", { class: "body stack tight" },
        h("p", null, "This page uses only the HTTP API, so a program can do everything that you can do here."),
        h("p", null, h("code", null, "GET /openapi.json"), " describes all routes. A request needs a token."))));
  }
}

customElements.define("ah-about", AboutPage);
