// The plugins of an agent: what each may do, its health and versions, its tools, and what its calls have used.
// Address: `#/plugins/AGENT/PLUGIN`.

import { announce, h, outside } from "../core/dom.js";
import { api } from "../core/api.js";
import { bytes, count, duration, plural } from "../core/format.js";
import { go, href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { agentChoice } from "../components/agent-choice.js";
import { notify } from "../components/notice.js";
import { Page, emptyView, pageHeader } from "../components/page.js";
import { tabs } from "../components/tabs.js";
import { accessView } from "./plugins/access.js";
import { toolsView } from "./plugins/tools.js";
import { versionsView } from "./plugins/versions.js";
import { short } from "./turns/words.js";

const HEALTH = { "in use": "good", "on trial": "warn", "rolled back": "warn" };

/** Time between two looks for other versions, in milliseconds. */
const PAUSE = 3_000;

class PluginsPage extends Page {
  #shown = "";
  #agent = null;
  /** The plugins of the agent that the page shows, with their digests. */
  #versions = "";

  render() {
    this.content = h("div", { class: "page plugins" });
    this.append(this.content);
    this.every(PAUSE, () => this.#look());
  }

  /** Shows a swap that happens while the page is open. What somebody writes or reads in a form of a tool is not taken away. */
  async #look() {
    const agent = this.#agent;
    if (agent === null) return;
    const found = await api.get(`api/agents/${encodeURIComponent(agent)}`, { signal: this.signal }).catch(() => null);
    // The frame tells that the server cannot be reached, and the next look tries again.
    if (!found || agent !== this.#agent || versionsOf(found.plugins) === this.#versions) return;
    this.#versions = versionsOf(found.plugins);
    const text = `The plugins of ${agent} have changed.`;
    const reload = () => this.show(this.content, () => this.#load(...this.route.segments));
    if (this.content.querySelector(".tool-form[open]")) {
      notify(text, { action: { label: "Show the change", run: reload } });
      return;
    }
    const hadFocus = this.content.contains(document.activeElement);
    if (await reload()) announce(text);
    if (hadFocus) (this.content.querySelector("[role=tab][aria-selected=true]") ?? this.content.querySelector("a"))?.focus();
  }

  routeChanged() {
    const address = addressOf(this.route);
    // A click on a tab changes the address, and has already shown the tab.
    if (this.route.segments.length > 0 && address === this.#shown) return;
    this.#shown = address;
    this.show(this.content, () => this.#load(...this.route.segments));
  }

  async #load(agent, plugin) {
    const { agents } = await api.get("api/agents", { signal: this.signal });
    if (agents.length === 0) return [pageHeader("Plugins"), emptyView("plugins", "No agents", "This token may use no agent of this server.")];
    const name = agent ?? agents[0].name;
    const path = `api/agents/${encodeURIComponent(name)}/plugins`;
    const found = await api.get(path, { signal: this.signal });
    [this.#agent, this.#versions] = [name, versionsOf(found.plugins)];
    const chosen = found.plugins.find((one) => one.name === plugin);
    return chosen ? this.#plugin(name, path, chosen) : this.#list(agents, name, found);
  }

  #list(agents, name, { plugins, generation, counted_sessions: sessions }) {
    const header = pageHeader("Plugins", [`What extends the agent `, outside(name), "."], agentChoice("plugins", agents, name));
    if (plugins.length === 0) {
      return [header, emptyView("plugins", "No plugins", ["The agent has no plugin folder, or the folder is empty. The command ", h("code", null, "agent-host plugin add"), " installs a plugin."])];
    }
    return [header,
      h("ul", { class: "plain plugin-list" }, plugins.map((plugin) => h("li", { class: "card" },
        h("a", { href: href("plugins", name, plugin.name) },
          h("div", { class: "row apart" }, outside(plugin.name, { class: "name" }, "h2"), healthBadge(plugin)),
          outside(plugin.description || "No description.", { class: "muted" }, "p"),
          h("div", { class: "muted small row" },
            h("span", null, plugin.version ? ["version ", outside(plugin.version)] : "no version"),
            h("span", { class: "mono" }, short(plugin.digest)),
            h("span", null, plural(plugin.tools.length, "tool")),
            h("span", null, plugin.used.calls === 0 ? "no recent calls" : `${plural(plugin.used.calls, "recent call")}, ${duration(plugin.used.wall_us / plugin.used.calls)} each`)))))),
      h("p", { class: "muted small" }, `Generation `, h("code", null, short(generation)), `. Recent calls are those of the last 5 turns of each of the ${count(sessions)} latest sessions.`)];
  }

  /** Writes the tab that is shown into the address. */
  #select(agent, plugin, part) {
    this.#shown = addressOf({ segments: [agent, plugin], query: new URLSearchParams({ part }) });
    go(`${href("plugins", agent, plugin)}?part=${part}`, { replace: true });
  }

  #plugin(agent, path, plugin) {
    const own = `${path}/${encodeURIComponent(plugin.name)}`;
    const names = ["access", "tools", "versions", "use"];
    const selected = Math.max(names.indexOf(this.route.query.get("part")), 0);
    const reload = () => this.show(this.content, () => this.#load(agent, plugin.name));
    const parts = tabs("Parts of the plugin", [
      { label: "Access", content: () => (signIn.may("administer") ? accessView(this, own) : noRight()) },
      { label: `Tools (${plugin.tools.length})`, content: () => toolsView(this, agent, plugin) },
      { label: "Versions", content: () => versionsView(this, own, plugin, reload) },
      { label: "Resources", content: () => useView(plugin) },
    ], { selected, onSelect: (index) => this.#select(agent, plugin.name, names[index]) });
    return [
      pageHeader(outside(plugin.name), plugin.description && outside(plugin.description), healthBadge(plugin),
        h("a", { class: "button", href: href("plugins", agent) }, "All plugins")),
      h("dl", { class: "fact-list" }, [
        ["Agent", outside(agent)],
        ["Version", plugin.version ? outside(plugin.version) : "none"],
        ["Digest", h("span", { class: "mono", title: plugin.digest }, short(plugin.digest))],
        ["Size", bytes(plugin.size)],
        ["Kinds", plugin.kinds.join(", ") || "none"],
      ].map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
      parts,
    ];
  }
}

function versionsOf(plugins) {
  return plugins.map(({ name, digest }) => `${name}@${digest}`).sort().join();
}

/** Returns the part of the address that decides what is shown. */
function addressOf({ segments, query }) {
  return `${segments.join("/")}?${query.get("part") ?? "access"}`;
}

function noRight() {
  return h("p", { class: "callout" }, "Grants name folders, servers and variables of the host, so they need the right ", h("code", null, "administer"), ".");
}

function healthBadge(plugin) {
  const trial = plugin.trial ? `: ${plural(plugin.trial.calls, "call")}, ${plural(plugin.trial.traps, "trap")}` : "";
  return h("span", { class: `badge ${HEALTH[plugin.health] ?? ""}` }, `${plugin.health}${trial}`);
}

function useView({ used }) {
  if (used.calls === 0) return h("p", { class: "muted" }, "No recent session has called this plugin.");
  const facts = [
    ["Calls", count(used.calls)],
    ["Failed", count(used.failed)],
    ["Time of a call", duration(used.wall_us / used.calls)],
    ["Longest call", duration(used.longest_us)],
    ["Processor time of a call", duration(used.cpu_us / used.calls)],
    ["Largest memory peak", bytes(used.memory_peak)],
    ["Network requests", count(used.requests)],
  ];
  return h("section", { class: "card" }, h("dl", { class: "fact-list large body" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
}

customElements.define("ah-plugins", PluginsPage);
