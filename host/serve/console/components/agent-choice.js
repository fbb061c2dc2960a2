// Chooses the agent of a page that shows one agent.

import { h } from "../core/dom.js";
import { go, href } from "../core/router.js";

/** Returns a field that shows the page of another agent, or nothing if there is only one. */
export function agentChoice(path, agents, current) {
  if (agents.length < 2) return null;
  const select = h("select", { "aria-label": "Agent", on: { change: () => go(href(path, select.value)) } },
    agents.map((agent) => h("option", { value: agent.name, selected: agent.name === current }, agent.name)));
  return select;
}
