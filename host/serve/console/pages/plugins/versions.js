// The versions of a plugin that this host has used, and rollbacks.

import { h } from "../../core/dom.js";
import { api } from "../../core/api.js";
import { ago, exactTime } from "../../core/format.js";
import { signIn } from "../../core/sign-in.js";
import { confirmed } from "../../components/dialog.js";
import { notify, notifyError } from "../../components/notice.js";
import { short } from "../turns/words.js";

const WHY = { replaced: "a new version replaced it", removed: "its file was removed", trapped: "it crashed too often", asked: "a person asked for it" };

/** Returns the view of a plugin's versions, which loads it. `reload` is called after a change. */
export function versionsView(page, path, plugin, reload) {
  const place = h("div", { class: "stack" });
  page.show(place, async () => content(await api.get(`${path}/versions`, { signal: page.signal }), path, plugin, reload));
  return place;
}

function time(value) {
  return h("time", { datetime: value, title: exactTime(value) }, ago(value));
}

function content(found, path, plugin, reload) {
  const may = signIn.may("administer");
  const seen = new Set();
  const change = async (question, run) => {
    if (!(await confirmed({ ...question, danger: false }))) return;
    try {
      const { to } = await run();
      notify(`${plugin.name} uses ${short(to)} from the next turn on.`);
      setTimeout(reload, 600);
    } catch (error) {
      notifyError(error);
    }
  };
  const rollBack = (digest) => change({
    title: "Roll the plugin back?", action: "Roll back",
    text: `All agents that use this plugin folder use ${short(digest)} from their next turns on, until the plugin's file changes.`,
  }, () => api.post(`${path}/rollback`, { digest }));
  const undo = () => change({
    title: "Undo the rollback?", action: "Undo", text: `The version in the plugin's file, ${short(found.instead_of)}, is used again.`,
  }, () => api.delete(`${path}/rollback`));
  return [
    plugin.trial && h("p", { class: "callout warn" }, `This version is on trial: after ${plugin.trial.calls} calls, ${plugin.trial.traps} have crashed. If too many crash, ${short(plugin.trial.before)} is used again.`),
    found.instead_of && h("div", { class: "callout warn row apart" }, h("span", null, "An earlier version is used. The plugin's file contains ", h("code", null, short(found.instead_of)), "."),
      may && h("button", { class: "button", type: "button", on: { click: undo } }, "Undo the rollback")),
    h("ul", { class: "plain rows card" }, found.versions.map((version) => {
      const isNow = version.digest === found.digest && !version.ended;
      const isOffered = may && version.digest !== found.digest && version.digest !== found.instead_of && !seen.has(version.digest);
      seen.add(version.digest);
      return h("li", { class: "row apart" },
        h("div", { class: "stack tight" },
          h("div", { class: "row" }, h("span", { class: "mono", title: version.digest }, short(version.digest)), isNow && h("span", { class: "badge good" }, "in use")),
          h("p", { class: "muted small" }, "began ", time(version.began), version.ended && [", ended ", time(version.ended)],
            version.ended && WHY[version.why] && `: ${WHY[version.why]}`)),
        isOffered && h("button", { class: "button", type: "button", on: { click: () => rollBack(version.digest) } }, "Roll back to it"));
    })),
  ];
}
