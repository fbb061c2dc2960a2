// What a plugin may do, where each grant comes from, and who has signed the plugin.

import { h, outside } from "../../core/dom.js";
import { api } from "../../core/api.js";
import { configurationWith } from "../../core/router.js";
import { copyButton } from "../../components/json-view.js";

/** Returns the view of what a plugin may do, which loads it. `path` is the path of the plugin in the API. */
export function accessView(page, path) {
  const place = h("div", { class: "stack" });
  const [agent] = page.route.segments;
  page.show(place, async () => content(await api.get(`${path}/authority`, { signal: page.signal }), agent));
  return place;
}

function content(found, agent) {
  const isNothing = found.has_manifest && found.gets.length + found.partly.length + found.denied.length === 0;
  return [
    found.problem && h("p", { class: "callout bad" }, "The configuration file cannot be used now: ", outside(found.problem)),
    !found.has_manifest && h("p", { class: "callout warn" }, "The plugin has no manifest, so it gets everything that it is granted."),
    h("ul", { class: "plain access card" },
      found.gets.map((text) => line("good", "gets", outside(text))),
      found.partly.map((one) => line("warn", "partly", [outside(one.thing), "; it gets ", outside(one.part ?? ""), missing(one, "To allow all of it", agent)])),
      found.denied.map((one) => line("bad", "denied", [outside(one.thing), missing(one, "To allow it", agent)])),
      found.unused.map((text) => line("warn", "unused", ["The plugin ", outside(text), "."])),
      isNothing && line("", "nothing", "The plugin asks for nothing, and gets nothing."),
      found.always.map((text) => line("", "always", outside(text)))),
    grants(found.grants),
    found.lock && lock(found.lock),
  ];
}

function line(kind, word, content) {
  return h("li", null, h("span", { class: `badge ${kind}` }, word), h("div", { class: "grow" }, content));
}

function missing({ table, line: text }, purpose, agent) {
  const whole = `${table}\n${text}`;
  return h("div", { class: "missing" }, h("span", { class: "muted small" }, `${purpose}, add to the configuration:`),
    h("div", { class: "row" }, h("pre", { class: "grow" }, outside(whole)), copyButton(whole, "Copy the lines")),
    h("p", null, h("a", { href: configurationWith(agent, table, text) }, "Add it to the configuration…")));
}

function grants(list) {
  return h("section", { class: "card" }, h("header", null, h("h2", null, "Where the grants come from")),
    h("div", { class: "body scroll-x", tabindex: "0", role: "region", "aria-label": "Grants" }, list.length === 0
      ? h("p", { class: "muted" }, "The configuration grants nothing to this plugin.")
      : h("table", { class: "grants" },
        h("thead", null, h("tr", null, ["Kind", "Value", "Origin"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", null, list.map((grant) => h("tr", null,
          h("td", null, h("code", null, grant.kind)), h("td", null, outside(grant.value, { class: "mono" })), h("td", null, outside(grant.origin, { class: "mono" }))))))));
}

function lock(found) {
  return h("section", { class: "card" },
    h("header", null, h("h2", { class: "grow" }, "Signature and lock file"), h("span", { class: `badge ${found.valid ? "good" : "bad"}` }, found.valid ? "may be used" : "refused")),
    h("div", { class: "body" }, h("dl", { class: "definition" },
      h("dt", null, "State"), h("dd", null, outside(found.state)),
      h("dt", null, "Lock file"), h("dd", null, found.locked ? "lists the plugin" : "does not list the plugin"),
      found.version && [h("dt", null, "Version"), h("dd", null, outside(found.version))],
      found.reference && [h("dt", null, "Comes from"), h("dd", null, outside(found.reference, { class: "mono" }))])));
}
