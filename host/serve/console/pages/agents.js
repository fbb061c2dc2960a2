// The agents: their models, schedules and webhooks, and their configuration files.
// Address: `#/agents/AGENT`.

import { h, outside } from "../core/dom.js";
import { api } from "../core/api.js";
import { ago, exactTime, plural } from "../core/format.js";
import { go, href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { copyButton } from "../components/json-view.js";
import { Page, emptyView, pageHeader } from "../components/page.js";
import { tabs } from "../components/tabs.js";
import { editorView } from "./agents/editor.js";

class AgentsPage extends Page {
  #shown = null;

  render() {
    this.content = h("div", { class: "page agents" });
    this.append(this.content);
  }

  routeChanged() {
    const address = this.route.segments.join("/");
    if (address === this.#shown) return;
    this.#shown = address;
    this.show(this.content, () => this.#load(this.route.segments[0]));
  }

  async #load(name) {
    if (name) return this.#agent(await api.get(`api/agents/${encodeURIComponent(name)}`, { signal: this.signal }));
    const { agents } = await api.get("api/agents", { signal: this.signal });
    if (agents.length === 0) return [pageHeader("Agents"), emptyView("agents", "No agents", "This token may use no agent of this server.")];
    return [
      pageHeader("Agents", "The agents that this server runs."),
      h("ul", { class: "plain sessions card" }, agents.map((agent) => h("li", null, h("a", { href: href("agents", agent.name) },
        outside(agent.name, { class: "title" }),
        h("span", { class: "muted small row" }, outside(agent.model, { class: "mono" }), h("span", null, plural(agent.tools, "tool")))))))];
  }

  #agent(agent) {
    const names = ["overview", "configuration"];
    const parts = tabs("Parts of the agent", [
      { label: "Overview", content: () => overview(agent) },
      { label: "Configuration", content: () => (signIn.may("administer") ? editorView(this, agent.name) : noRight()) },
    ], {
      selected: Math.max(names.indexOf(this.route.query.get("part")), 0),
      onSelect: (index) => go(`${href("agents", agent.name)}?part=${names[index]}`, { replace: true }),
    });
    return [pageHeader(outside(agent.name), outside(agent.model, { class: "mono" }),
      h("a", { class: "button", href: href("plugins", agent.name) }, plural(agent.plugins.length, "plugin")),
      h("a", { class: "button", href: href("agents") }, "All agents")), parts];
  }
}

function noRight() {
  return h("p", { class: "callout" }, "A configuration file decides what the host runs, so it needs the right ", h("code", null, "administer"), ".");
}

function overview(agent) {
  return h("div", { class: "stack" }, schedules(agent.schedules), webhooks(agent.webhooks),
    h("section", { class: "card" }, h("header", null, h("h2", { class: "grow" }, "Tools"), h("span", { class: "badge" }, String(agent.tools.length))),
      h("div", { class: "body" }, agent.tools.length === 0 ? h("p", { class: "muted" }, "The agent has no tools.")
        : h("dl", { class: "definition" }, agent.tools.map((tool) => [h("dt", null, outside(tool.name, { class: "mono" })), h("dd", null, outside(tool.description))])))));
}

function schedules(list) {
  const time = (value) => (value ? h("span", { title: exactTime(value) }, ago(value)) : h("span", { class: "muted" }, "not known"));
  return h("section", { class: "card" }, h("header", null, h("h2", null, "Schedules")),
    h("div", { class: "body scroll-x", tabindex: "0", role: "region", "aria-label": "Schedules" }, list.length === 0
      ? h("p", { class: "muted" }, "The agent begins no session by itself. A table ", h("code", null, "[schedules.NAME]"), " in its configuration would.")
      : h("table", { class: "grants" },
        h("thead", null, h("tr", null, ["Name", "Times", "Last run", "Next run"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", null, list.map((schedule) => h("tr", null,
          h("td", null, outside(schedule.name)), h("td", null, outside(schedule.times, { class: "mono" })),
          h("td", null, schedule.last ? (schedule.last_session ? h("a", { href: href("turns", schedule.last_session) }, time(schedule.last)) : time(schedule.last)) : h("span", { class: "muted" }, "never")),
          h("td", null, time(schedule.next))))))));
}

function webhooks(list) {
  return h("section", { class: "card" }, h("header", null, h("h2", null, "Webhooks")),
    h("div", { class: "body scroll-x", tabindex: "0", role: "region", "aria-label": "Webhooks" }, list.length === 0
      ? h("p", { class: "muted" }, "Other programs begin no session of the agent. A table ", h("code", null, "[webhooks.NAME]"), " in its configuration would let them.")
      : h("table", { class: "grants" },
        h("thead", null, h("tr", null, ["Name", "Address", "Protected by", "Last request"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", null, list.map((webhook) => {
          const address = new URL(`..${webhook.path}`, document.baseURI).href;
          return h("tr", null, h("td", null, outside(webhook.name)),
            h("td", null, h("div", { class: "row" }, outside(address, { class: "mono" }), copyButton(address, "Copy the address"))),
            h("td", null, webhook.signed ? "a signature" : "a token"),
            h("td", null, webhook.last ? h("a", { href: href("turns", webhook.last_session), title: exactTime(webhook.last) }, ago(webhook.last)) : h("span", { class: "muted" }, "none since the server started")));
        })))));
}

customElements.define("ah-agents", AgentsPage);
