// Replays the calls of a plugin in a turn with another version of the plugin.

import { fill, h, outside } from "../../core/dom.js";
import { api, sessionPath } from "../../core/api.js";
import { diffLines } from "../../core/diff.js";
import { ago, plural } from "../../core/format.js";
import { difference } from "../../core/rendered.js";
import { signIn } from "../../core/sign-in.js";
import { openDialog } from "../../components/dialog.js";
import { loading } from "../../components/page.js";
import { short } from "./words.js";

/** Opens the dialog for a turn. */
export function replayDialog(details) {
  const names = details.plugins.map((plugin) => plugin.split("@")[0]);
  const plugin = h("select", { id: "replay-plugin" }, names.map((name) => h("option", { value: name }, name)));
  const version = h("select", { id: "replay-version" });
  const result = h("div", { class: "replay-result", role: "status" });
  const versions = async () => {
    fill(version, h("option", { value: "" }, "the version in use now"));
    try {
      const path = `api/agents/${encodeURIComponent(details.agent)}/plugins/${encodeURIComponent(plugin.value)}/versions`;
      const found = await api.get(path);
      const known = new Set();
      for (const one of found.versions) {
        if (known.has(one.digest)) continue;
        known.add(one.digest);
        version.append(h("option", { value: one.digest }, `${short(one.digest)}, used since ${ago(one.began)}${one.digest === found.digest ? " (now)" : ""}`));
      }
      fill(result);
    } catch (error) {
      fill(result, h("p", { class: "callout bad" }, error.message));
    }
  };
  plugin.addEventListener("change", versions);
  versions();
  const run = async () => {
    fill(result, loading("Replaying…"));
    try {
      const body = { plugin: plugin.value, ...(version.value ? { digest: version.value } : {}) };
      fill(result, report(await api.post(sessionPath(details.session, "turns", details.turn, "replays"), body)));
    } catch (error) {
      fill(result, h("p", { class: "callout bad" }, error.message));
    }
    return false;
  };
  const may = signIn.may("administer");
  return openDialog({
    title: `Replay turn ${details.turn}`,
    body: h("div", { class: "stack" },
      h("p", null, "The recorded calls of the plugin run again with another version of it, and their results are compared. The plugin gets only recorded answers: nothing is written, no request is sent, and no model is called."),
      !may && h("p", { class: "callout" }, "A replay needs the right ", h("code", null, "administer"), "."),
      h("div", { class: "field" }, h("label", { for: "replay-plugin" }, "Plugin"), plugin),
      h("div", { class: "field" }, h("label", { for: "replay-version" }, "Version"), version),
      result),
    actions: [{ label: "Close", value: "close" }, may && { label: "Replay", kind: "primary", run }].filter(Boolean),
  });
}

function report(found) {
  const { same, differences, difference_count: all, skipped } = found;
  const kind = all > 0 ? "warn" : same > 0 ? "good" : "";
  const sentence = all > 0 ? `${plural(all, "call")} gave another result, and ${same} gave the recorded one.`
    : same > 0 ? `${plural(same, "call")} gave the recorded result.` : "The turn has no calls of this plugin that can be replayed.";
  return h("div", { class: "stack" },
    h("p", { class: `callout ${kind}` }, sentence),
    differences.map((one) => h("section", { class: "stack tight" },
      outside(one.place, { class: "mono" }, "h3"),
      outside(one.plugin, { class: "muted small mono" }, "p"),
      one.unrecorded.map((thing) => h("p", { class: "callout" }, "Denied, because it was not recorded: ", outside(thing))),
      one.effects.map((effect) => h("p", { class: "callout" }, "Now: ", outside(effect))),
      one.diff && difference(diffLines(one.diff), "Recorded and replayed result"))),
    skipped.length > 0 && h("details", null, h("summary", null, `${plural(skipped.length, "call")} could not be compared`),
      h("ul", null, skipped.map((why) => h("li", null, outside(why))))));
}
