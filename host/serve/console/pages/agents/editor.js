// The editor of an agent's configuration file: checks while typing, help from the schema, and a difference before saving. The text
// is saved exactly as it is, so that comments stay.

import { announce, fill, h, outside, textNodes, uniqueId } from "../../core/dom.js";
import { api, request } from "../../core/api.js";
import { diffLines } from "../../core/diff.js";
import { plural } from "../../core/format.js";
import { shortcut, shownKeys } from "../../core/keys.js";
import { difference } from "../../core/rendered.js";
import { openDialog } from "../../components/dialog.js";
import { notify } from "../../components/notice.js";
import { helpFor } from "./schema-help.js";

/** Time after the last change until the text is checked, in milliseconds. */
const PAUSE = 500;

/** Returns the editor of an agent's file, which loads it. */
export function editorView(page, agent) {
  const place = h("div");
  const path = `api/agents/${encodeURIComponent(agent)}/configuration`;
  const [added, table] = [page.route.query.get("add"), page.route.query.get("table")];
  page.show(place, async () => {
    const [file, schema] = await Promise.all([
      api.get(path, { signal: page.signal }), api.get("api/configuration-schema", { signal: page.signal }),
    ]);
    const editor = new Editor(page, path, file, schema);
    if (added) requestAnimationFrame(() => editor.add(added, table));
    return editor.element;
  });
  return place;
}

/** Returns a text with lines added to a table, such as `[plugins.payer.grants]`, and the position after them. */
function withLines(text, lines, table) {
  const rows = text.split("\n");
  const place = rows.findIndex((row) => row.trim() === table);
  if (place >= 0) {
    rows.splice(place + 1, 0, lines);
    return { text: rows.join("\n"), position: rows.slice(0, place + 2).join("\n").length };
  }
  const whole = `${text.trimEnd()}\n\n${table}\n${lines}\n`;
  return { text: whole, position: whole.length - 1 };
}

class Editor {
  #timer = null;
  #check = null;
  #number = 0;

  constructor(page, path, file, schema) {
    Object.assign(this, { page, path, file, schema });
    const [id, status] = [uniqueId("editor"), uniqueId("status")];
    this.text = h("textarea", {
      id, class: "mono editor", rows: "24", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
      "aria-describedby": status, value: this.#draft() ?? file.text,
      on: { input: () => this.#changed(), keyup: () => this.#help(), click: () => this.#help() },
    });
    this.problems = h("ol", { class: "plain problems" });
    this.status = h("p", { class: "muted small", id: status });
    this.help = h("aside", { class: "key-help card", tabindex: "0", "aria-label": "Help about the key at the cursor" });
    this.save = h("button", { class: "button primary", type: "button", disabled: true, on: { click: () => this.#review() } }, "Review and save…");
    this.discard = h("button", { class: "button", type: "button", disabled: true, on: { click: () => this.#reset() } }, "Discard changes");
    this.element = h("div", { class: "configuration" },
      h("div", { class: "stack tight main" },
        h("div", { class: "row apart" }, h("label", { for: id }, outside(file.path, { class: "mono" })),
          h("div", { class: "row" }, h("kbd", { class: "keys" }, shownKeys("Control+S")), this.discard, this.save)),
        this.text, this.status, this.problems),
      this.help);
    shortcut("Control+S", "Review and save the configuration", () => { if (!this.save.disabled) this.#review(); }, { signal: page.signal });
    const leave = (event) => { if (this.#isChanged()) event.preventDefault(); };
    window.addEventListener("beforeunload", leave, { signal: page.signal });
    this.discard.disabled = this.text.value === file.text;
    this.#help();
    this.#run();
  }

  /** Returns the text that somebody left without saving it in this tab, if the file is still the same. */
  #draft() {
    const draft = JSON.parse(sessionStorage.getItem(this.#draftKey) ?? "null");
    return draft?.digest === this.file.digest ? draft.text : null;
  }

  get #draftKey() {
    return `agent-host.draft.${this.path}`;
  }

  #keepDraft() {
    const { digest, text } = this.file;
    if (this.text.value === text) sessionStorage.removeItem(this.#draftKey);
    else sessionStorage.setItem(this.#draftKey, JSON.stringify({ digest, text: this.text.value }));
  }

  #isChanged() {
    return this.element.isConnected && this.text.value !== this.file.text;
  }

  #changed() {
    this.save.disabled = true;
    this.discard.disabled = this.text.value === this.file.text;
    this.#keepDraft();
    this.status.textContent = "Checking…";
    this.#help();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), PAUSE);
  }

  /** Adds lines that the person came with. They are not saved. */
  add(lines, table) {
    const { text, position } = withLines(this.text.value, lines, table ?? "");
    this.text.value = text;
    this.text.focus();
    this.text.setSelectionRange(position - lines.length, position);
    this.#changed();
  }

  #reset() {
    this.text.value = this.file.text;
    this.#changed();
  }

  async #run() {
    this.#number += 1;
    const number = this.#number;
    try {
      const check = await api.post(`${this.path}/check`, { text: this.text.value }, { signal: this.page.signal });
      if (number === this.#number) this.#show(check);
    } catch (error) {
      if (error.name !== "AbortError" && number === this.#number) this.status.textContent = `The text could not be checked. ${error.message}`;
    }
  }

  #show(check) {
    const before = this.#check;
    this.#check = check;
    const isChanged = this.text.value !== this.file.text;
    const count = check.problems.length;
    this.text.setAttribute("aria-invalid", String(count > 0));
    this.save.disabled = !isChanged || count > 0;
    this.status.textContent = count > 0 ? `${plural(count, "problem")}: correct ${count === 1 ? "it" : "them"} before you save.`
      : isChanged ? "The text is valid and not saved yet." : "The text is saved and valid.";
    if ((before?.problems.length ?? 0) !== count) announce(this.status.textContent);
    fill(this.problems, check.problems.map((problem) => h("li", null, problem.line === null
      ? h("div", { class: "problem" }, outside(problem.message), problem.advice && outside(problem.advice, { class: "muted small" }))
      : h("button", { class: "problem", type: "button", on: { click: () => this.#goTo(problem) } },
        h("span", { class: "badge bad" }, `Line ${problem.line}`), h("span", { class: "grow" }, outside(problem.message), problem.advice && outside(problem.advice, { class: "advice muted small" }))))));
  }

  /** Moves the cursor to a problem. */
  #goTo({ line, column }) {
    const lines = this.text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const text = lines[line - 1] ?? "";
    const from = start + [...text].slice(0, (column ?? 1) - 1).join("").length;
    this.text.focus();
    this.text.setSelectionRange(from, start + text.length);
    // The browser does not scroll to a selection by itself.
    this.text.scrollTop = (line - 4) * (this.text.scrollHeight / Math.max(lines.length, 1));
    this.#help();
  }

  #help() {
    const found = helpFor(this.schema, this.text.value, this.text.selectionStart);
    if (found.name === this.help.dataset.name) return;
    this.help.dataset.name = found.name;
    fill(this.help, h("header", null, outside(found.name || "agent.toml", { class: "mono grow" }, "h2")),
      h("div", { class: "body stack tight" },
        found.description && h("p", { class: "outside" }, withCode(found.description)),
        found.facts.length > 0 && h("dl", { class: "definition" }, found.facts.map(([name, value]) => [h("dt", null, name), h("dd", null, outside(value, { class: "mono" }))])),
        found.keys.length > 0 && [h("h3", null, found.facts.length > 0 ? "Keys of this table" : "Keys that fit here"),
          h("dl", { class: "key-list" }, found.keys.map(([name, text]) => [h("dt", null, h("code", null, name)), h("dd", { class: "muted small outside" }, withCode(text))]))],
        !found.description && found.keys.length === 0 && h("p", { class: "muted" }, "There is no key with this name.")));
  }

  /** Shows the difference to the file, and saves the text if the person agrees. */
  async #review() {
    const text = this.text.value;
    this.#number += 1;
    let check;
    try {
      check = await api.post(`${this.path}/check`, { text }, { signal: this.page.signal });
    } catch (error) {
      if (error.name !== "AbortError") notify(error.message, { kind: "bad" });
      return;
    }
    this.#show(check);
    if (check.problems.length > 0) return;
    const { adds, removes, later, diff } = check;
    const agree = h("input", { type: "checkbox", id: uniqueId("agree") });
    const problem = h("p", { class: "callout bad", role: "alert", hidden: true });
    const save = async () => {
      if (adds.length > 0 && !agree.checked) {
        fill(problem, "Confirm that the agent may have the new permissions.").hidden = false;
        agree.focus();
        return false;
      }
      try {
        const headers = { "if-match": `"${this.file.digest}"` };
        const answer = await request("PUT", this.path, { body: { text, adds: adds.length > 0 }, headers });
        const { digest } = await answer.json();
        this.file = { ...this.file, text, digest };
        this.#changed();
        notify(later.length > 0 ? `Saved. The next turns use it; after a restart: ${later.join(", ")}.` : "Saved. The next turns use it.");
        return true;
      } catch (error) {
        fill(problem, error.message).hidden = false;
        return false;
      }
    };
    await openDialog({
      title: "Save the configuration?",
      body: h("div", { class: "stack" },
        difference(diffLines(diff), "Changes of the file"),
        permissions("The agent may then also", "warn", adds),
        permissions("The agent may then no longer", "", removes),
        later.length > 0 && h("p", { class: "callout" }, `Only after a restart of the host: ${later.join(", ")}.`),
        adds.length > 0 && h("div", { class: "row" }, agree, h("label", { for: agree.id }, "The agent may have the new permissions.")),
        problem),
      actions: [{ label: "Cancel", value: "cancel" }, { label: "Save", kind: "primary", run: save }],
    });
  }
}

/** Returns nodes for a text in which names are between backticks. */
function withCode(text) {
  return text.split("`").map((piece, index) => (index % 2 === 1 ? h("code", null, textNodes(piece)) : textNodes(piece)));
}

function permissions(title, kind, lines) {
  if (lines.length === 0) return null;
  return h("section", { class: "stack tight" }, h("h3", null, title),
    h("div", { class: `callout ${kind}` }, h("ul", { class: "plain" }, lines.map((line) => h("li", null, outside(line))))));
}
