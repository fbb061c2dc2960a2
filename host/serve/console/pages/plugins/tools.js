// The tools of a plugin, each with a form that calls it. A call is a turn of a session, with the agent's grants and limits.

import { fill, h, outside } from "../../core/dom.js";
import { api, sessionPath } from "../../core/api.js";
import { href } from "../../core/router.js";
import { signIn } from "../../core/sign-in.js";
import { icon } from "../../components/icon.js";
import { textBlock } from "../../components/json-view.js";
import { loading } from "../../components/page.js";
import { schemaForm } from "../../components/schema-form.js";

/** Time between two looks at a call that has not ended, in milliseconds. */
const PAUSE = 400;
const TRAITS = { read_only: "only reads", destructive: "may destroy", idempotent: "may repeat", sequential: "runs alone", open_world: "uses the outside", needs_approval: "needs approval" };

/** Returns the list of a plugin's tools. */
export function toolsView(page, agent, plugin) {
  if (plugin.tools.length === 0) return h("p", { class: "muted" }, "The plugin has no tools. It takes part in turns in another way.");
  return h("ul", { class: "plain stack" }, plugin.tools.map((tool) => h("li", { class: "card" }, h("details", { class: "tool-form" },
    h("summary", null, icon("chevron"), outside(tool.name, { class: "mono name grow" }), h("span", { class: "row" },
      Object.entries(TRAITS).filter(([trait]) => tool.traits[trait]).map(([trait, label]) => h("span", { class: `badge ${["destructive", "needs_approval"].includes(trait) ? "warn" : ""}` }, label)))),
    h("div", { class: "body stack" },
      outside(tool.description, {}, "p"),
      signIn.may("talk") ? form(page, agent, tool) : h("p", { class: "callout" }, "To call the tool, a token needs the right ", h("code", null, "talk"), ".")))))); 
}

function form(page, agent, tool) {
  const { element, read } = schemaForm(tool.input_schema);
  const result = h("div", { role: "status", class: "stack" });
  const button = h("button", { class: "button primary", type: "submit" }, "Call the tool");
  const submit = async (event) => {
    event.preventDefault();
    let body;
    try {
      body = { tool: tool.name, arguments: read() };
    } catch (error) {
      return fill(result, h("p", { class: "callout bad" }, error.message));
    }
    button.disabled = true;
    fill(result, loading("Calling…"));
    try {
      const { session } = await api.post(`api/agents/${encodeURIComponent(agent)}/calls`, body, { signal: page.signal });
      await follow(page, session, result);
    } catch (error) {
      if (error.name !== "AbortError") fill(result, h("p", { class: "callout bad" }, error.message));
    }
    button.disabled = false;
  };
  return h("form", { class: "stack", novalidate: true, on: { submit } },
    h("p", { class: "muted small" }, "The call has the agent's grants, approvals and limits, and is kept as a session."), element, h("div", { class: "row" }, button), result);
}

/** Shows the call of a session until it has ended, or waits for a person. */
async function follow(page, session, place) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (page.signal.aborted) return;
    const turn = await api.get(sessionPath(session, "turns", 1), { signal: page.signal }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    const call = turn?.calls[0];
    const links = h("p", { class: "row" }, h("a", { href: href("turns", session, 1) }, "Show the turn"));
    if (call?.result) {
      const { is_error: isError, text } = call.result;
      return fill(place, textBlock(text.text || "(empty)", { label: isError ? "Error" : "Result" }), links);
    }
    if (call?.state === "asking") {
      return fill(place, h("p", { class: "callout warn" }, "The call waits for an approval. ", h("a", { href: href("inbox") }, "Open the inbox")), links);
    }
    if (turn?.ended) {
      const error = turn.events.findLast((event) => event.type === "error");
      return fill(place, h("p", { class: "callout bad" }, outside(error?.message ?? "The turn ended without a result.")), links);
    }
  }
}
