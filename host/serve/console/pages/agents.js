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
    const address = addressOf(this.route);
    // A click on a tab changes the address, and has already shown the tab.
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
      h("ul", { class: "plain link-list card" }, agents.map((agent) => h("li", null, h("a", { href: href("agents", agent.name) },
        outside(agent.name, { class: "title" }),
        h("span", { class: "muted small row" }, outside(agent.model, { class: "mono" }), h("span", null, plural(agent.tools, "tool")))))))];
  }

  /** Writes the tab that is shown into the address. */
  #select(agent, part) {
    this.#shown = addressOf({ segments: [agent], query: new URLSearchParams({ part }) });
    go(`${href("agents", agent)}?part=${part}`, { replace: true });
  }

  #agent(agent) {
    const names = ["overview", "configuration"];
    const parts = tabs("Parts of the agent", [
      { label: "Overview", content: () => overview(agent) },
      { label: "Configuration", content: () => (signIn.may("administer") ? editorView(this, agent.name) : noRight()) },
    ], {
      selected: Math.max(names.indexOf(this.route.query.get("part")), 0),
      onSelect: (index) => this.#select(agent.name, names[index]),
    });
    return [pageHeader(outside(agent.name), outside(agent.model, { class: "mono" }),
      h("a", { class: "button", href: href("plugins", agent.name) }, plural(agent.plugins.length, "plugin")),
      h("a", { class: "button", href: href("agents") }, "All agents")), parts];
  }
}

/** Returns the part of the address that decides what is shown. */
function addressOf({ segments, query }) {
  return `${segments.join("/")}?${query.get("part") ?? "overview"}`;
}

function noRight() {
  return h("p", { class: "callout" }, "A configuration file decides what the host runs, so it needs the right ", h("code", null, "administer"), ".");
}

function overview(agent) {
  return h("div", { class: "stack" }, schedules(agent.schedules), webhooks(agent.webhooks),
    section("Tools", agent.tools, "The agent has no tools.", (tool) => h("div", null,
      outside(tool.name, { class: "mono" }, "h3"), outside(tool.description, { class: "muted small" }, "p"))));
}

function schedules(list) {
  const time = (value, otherwise) => (value ? h("time", { datetime: value, title: exactTime(value) }, ago(value)) : h("span", { class: "muted" }, otherwise));
  return section("Schedules", list, ["The agent begins no session by itself. A table ", h("code", null, "[schedules.NAME]"), " in its configuration would."],
    (schedule) => facts(schedule.name, [
      ["Times", outside(schedule.times, { class: "mono" })],
      ["Last run", schedule.last_session ? h("a", { href: href("turns", schedule.last_session) }, time(schedule.last)) : time(schedule.last, "never")],
      ["Next run", time(schedule.next, "not known yet")],
    ]));
}

function webhooks(list) {
  return section("Webhooks", list, ["Other programs begin no session of the agent. A table ", h("code", null, "[webhooks.NAME]"), " in its configuration would let them."],
    (webhook) => {
      const address = new URL(`..${webhook.path}`, document.baseURI).href;
      const time = webhook.last && h("time", { datetime: webhook.last, title: exactTime(webhook.last) }, ago(webhook.last));
      return facts(webhook.name, [
        ["Address", h("span", { class: "row" }, outside(address, { class: "mono" }), copyButton(address, "Copy the address"))],
        ["Protected by", webhook.signed ? "a signature" : "a token"],
        ["Last request", !time ? h("span", { class: "muted" }, "none since the server started") : webhook.last_session ? h("a", { href: href("turns", webhook.last_session) }, time) : time],
      ]);
    });
}

function section(title, list, otherwise, row) {
  return h("section", { class: "card" }, h("header", null, h("h2", { class: "grow" }, title), h("span", { class: "badge" }, String(list.length))),
    list.length === 0 ? h("p", { class: "body muted" }, otherwise) : h("ul", { class: "plain rows" }, list.map((one) => h("li", null, row(one)))));
}

function facts(name, list) {
  return h("div", { class: "stack tight" }, outside(name, {}, "h3"),
    h("dl", { class: "fact-list" }, list.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value)))));
}

customElements.define("ah-agents", AgentsPage);
