// Something that waits for a person: an approval, a question, a call whose outcome is unknown, a service that has not answered, or
// a plugin that lacks grants.
// The inbox and the chat show the same cards.

import { api, ApiError, sessionPath } from "../core/api.js";
import { fill, h, outside, shorten, uniqueId } from "../core/dom.js";
import { ago, bytes, exactTime } from "../core/format.js";
import { inbox } from "../core/inbox-count.js";
import { difference } from "../core/rendered.js";
import { configurationWith, href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { sourceText } from "../chat/tool-card.js";
import { confirmed } from "./dialog.js";
import { icon } from "./icon.js";
import { jsonBlock, valueView } from "./json-view.js";
import { menu } from "./menu.js";
import { notify, notifyError } from "./notice.js";

/** Time in milliseconds for which a card ignores keys after the page has moved the focus to it. */
const PAUSE = 700;

const KINDS = {
  approval: { icon: "shield", title: "Approval", right: "approve" },
  question: { icon: "question", title: "Question", right: "talk" },
  outcome_unknown: { icon: "warning", title: "Outcome unknown", right: "approve" },
  overdue_service: { icon: "clock", title: "No answer yet", right: "talk" },
  first_use: { icon: "plugins", title: "First use", right: "administer" },
  denied_grants: { icon: "plugins", title: "Ran without grants", right: "administer" },
};

/** What happened with an answer about grants, by the status of the response. */
const GRANT_RESULTS = {
  kept: { always: "The plugin has the grants. They are in the agent's file.", never: "Nobody is asked again. The answer is in the agent's file." },
  used: { this_session: "The plugin has the grants in this session.", no: "The plugin does not get the grants in this session." },
};

/** A card for one item of the inbox. `withSession` adds a link to the session. */
export class DecisionCard {
  #hadFocus = false;

  constructor(item, { withSession = true } = {}) {
    this.item = item;
    this.kind = KINDS[item.kind];
    const heading = uniqueId("decision");
    this.may = signIn.may(this.kind.right);
    this.content = h("div", { class: "body stack" });
    this.element = h("article", { class: `card decision ${item.kind}`, "aria-labelledby": heading, tabindex: "-1" },
      h("header", null, icon(this.kind.icon),
        h("h2", { id: heading, class: "grow" }, h("span", null, this.kind.title), item.kind !== "question" && [" · ", outside(item.first_use?.plugin ?? item.tool, { class: "mono" })]),
        h("span", { class: "muted small nowrap" }, h("time", { datetime: item.since, title: exactTime(item.since) }, ago(item.since)))),
      this.content);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    fill(this.content,
      withSession && this.#session(),
      ...this.#body(),
      item.expires && h("p", { class: "muted small" }, "The host stops waiting ", h("time", { datetime: item.expires, title: exactTime(item.expires) }, ago(item.expires)), "."),
      this.may ? null : h("p", { class: "callout" }, `The token “${signIn.token.name}” does not have the right `, h("code", null, this.kind.right), ", so somebody else must decide."));
  }

  #session() {
    const { item } = this;
    return h("p", { class: "small" }, h("span", { class: "muted" }, "Agent "), outside(item.agent), h("span", { class: "muted" }, " in "),
      h("a", { href: href("chat", item.session) }, outside(shorten(item.title ?? item.session, 80))),
      item.user && [h("span", { class: "muted" }, " for "), outside(item.user)]);
  }

  #body() {
    switch (this.item.kind) {
      case "approval": return this.#approval();
      case "question": return this.#question();
      case "outcome_unknown": return this.#unknown();
      case "first_use": return this.#firstUse();
      case "denied_grants": return this.#deniedGrants();
      default: return this.#service();
    }
  }

  /** Keys work only while the card itself has the focus, so that they never fire while somebody types. */
  #key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    // A key that is held, or that was meant for the card before this one, decides nothing.
    if (event.repeat || performance.now() - this.#movedAt() < PAUSE) return;
    const button = this.element.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!button || button.disabled) return;
    event.preventDefault();
    button.click();
  }

  /** The time at which the page moved the focus to this card. */
  #movedAt() {
    return Number(this.element.dataset.movedAt ?? -Infinity);
  }

  #button(label, key, run, kind = "") {
    return h("button", { class: `button ${kind}`, type: "button", disabled: !this.may, "data-key": key, "aria-keyshortcuts": key?.toUpperCase(), on: { click: run } },
      label, key && h("kbd", { "aria-hidden": "true" }, key.toUpperCase()));
  }

  // Approvals

  #approval() {
    const { item } = this;
    this.editor = null;
    this.place = h("div", { class: "stack tight" });
    this.preview = h("div", { class: "stack tight" });
    this.buttons = h("div", { class: "row decide" });
    const hint = effects(item.traits);
    this.#showArguments();
    return [
      h("p", null, outside(item.agent), " wants to call ", outside(item.tool, { class: "mono" }), hint && `. The tool ${hint}`, "."),
      h("section", { class: "stack tight" }, h("h3", { class: "small muted" }, "Arguments"), this.place),
      this.preview,
      h("dl", { class: "facts" },
        item.because && h("div", null, h("dt", null, "Required by"), h("dd", null, outside(item.because))),
        item.source && h("div", null, h("dt", null, "From"), h("dd", null, sourceText(item.source))),
        h("div", null, h("dt", null, "Call"), h("dd", null, outside(item.call, { class: "mono" }))),
        digestOf(item.source) && h("div", { class: "digest" }, h("dt", null, "Digest"), h("dd", null, outside(digestOf(item.source), { class: "mono" })))),
      this.buttons,
    ];
  }

  #showArguments() {
    const { item } = this;
    if (item.omitted_bytes > 0) {
      // Nobody can allow what is not shown completely.
      fill(this.place, h("p", { class: "callout" }, `The arguments have ${bytes(item.omitted_bytes)}, which is too long to show here. To allow the call, decide in a terminal, with `, h("code", null, "agent-host session approve"), "."));
      fill(this.buttons, this.#button("Deny", "d", () => this.#deny(), "danger"));
      return;
    }
    fill(this.place, valueView(item.arguments, { label: "Arguments" }));
    const more = h("button", { class: "button", type: "button", disabled: !this.may }, "Allow for longer", icon("down"));
    fill(this.buttons,
      this.#button("Allow once", "a", () => this.#allow("once"), "primary"),
      this.#button("Deny", "d", () => this.#deny(), "danger"),
      item.editable && this.#button("Edit", "e", () => this.#edit()),
      menu(more, [
        { label: "Allow this tool in this session", run: () => this.#allow("session") },
        { label: "Always allow this tool", run: () => this.#allowAlways() },
      ], { place: "start above" }),
      this.#button("Show changes", "c", () => this.#rehearse(), "quiet"));
  }

  #edit() {
    const id = uniqueId("arguments");
    const field = h("textarea", { id, class: "mono", rows: "8", spellcheck: "false", "aria-describedby": `${id}-problem` });
    field.value = JSON.stringify(this.item.arguments, null, 2);
    field.rows = Math.min(20, field.value.split("\n").length + 1);
    const problem = h("p", { class: "error", id: `${id}-problem`, role: "alert" });
    const allow = h("button", { class: "button primary", type: "button" }, "Allow with these arguments");
    const read = () => {
      try {
        const value = JSON.parse(field.value);
        problem.textContent = "";
        field.removeAttribute("aria-invalid");
        allow.disabled = false;
        return value;
      } catch (error) {
        problem.textContent = `This is not JSON: ${error.message}`;
        field.setAttribute("aria-invalid", "true");
        allow.disabled = true;
        return undefined;
      }
    };
    field.addEventListener("input", read);
    allow.addEventListener("click", () => {
      const value = read();
      if (value !== undefined) this.#allow("once", value);
    });
    const cancel = h("button", { class: "button", type: "button", on: { click: () => { this.#showArguments(); this.element.focus(); } } }, "Cancel");
    // The changes that were shown are those of the arguments before.
    fill(this.preview);
    fill(this.place, h("div", { class: "field" }, h("label", { for: id }, "Changed arguments, as JSON"), field, problem));
    fill(this.buttons, allow, cancel);
    field.focus();
  }

  async #rehearse() {
    fill(this.preview, h("p", { class: "muted small", role: "status" }, "The host runs the call on copies of its files…"));
    try {
      const { changes } = await api.post(sessionPath(this.item.session, "rehearsals"), { call: this.item.call });
      const shown = await Promise.all(changes.map(async (change) => {
        const { lines } = await api.post("api/render/difference", { old: change.old ?? "", new: change.new ?? "" });
        const what = change.old === null ? "new file" : change.new === null ? "removed" : "changed";
        return h("section", { class: "stack tight" },
          h("h3", { class: "small" }, outside(change.path, { class: "mono" }), " ", h("span", { class: "badge" }, what)),
          difference(lines, `Changes of ${change.path}`));
      }));
      fill(this.preview, shown.length > 0 ? shown : h("p", { class: "callout" }, "The call changes no text files, or the host cannot run it on copies. It may still have other effects."));
    } catch (error) {
      fill(this.preview, h("p", { class: "callout bad" }, error.message));
    }
  }

  #allow(scope, edited) {
    const decision = { call: this.item.call, verdict: "granted", scope };
    if (edited !== undefined) decision.arguments = edited;
    return this.#decide("approvals", { decisions: [decision] }, edited === undefined ? "The call is allowed." : "The call is allowed with the changed arguments.");
  }

  async #allowAlways() {
    const isSure = await confirmed({
      title: "Always allow this tool?",
      text: `Later calls of ${this.item.tool} run without a question, until somebody revokes the approval or the tool changes.`,
      action: "Always allow",
      danger: false,
    });
    if (isSure) await this.#allow("always");
  }

  #deny() {
    const id = uniqueId("reason");
    const field = h("input", { id, type: "text", placeholder: "Optional" });
    const send = () => {
      const reason = field.value.trim();
      this.#decide("approvals", { decisions: [{ call: this.item.call, verdict: "denied", ...(reason ? { reason } : {}) }] }, "The call is denied.");
    };
    field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); send(); } });
    fill(this.buttons, h("div", { class: "field grow" }, h("label", { for: id }, "Reason, which the model is told"), field),
      h("div", { class: "row" },
        h("button", { class: "button danger", type: "button", on: { click: send } }, "Deny"),
        h("button", { class: "button", type: "button", on: { click: () => { this.#showArguments(); this.element.focus(); } } }, "Cancel")));
    field.focus();
  }

  // Questions

  #question() {
    const id = uniqueId("answer");
    const field = h("textarea", { id, rows: "2", disabled: !this.may });
    const send = () => {
      if (field.value.trim() === "") return field.focus();
      return this.#decide("answers", { call: this.item.call, text: field.value }, "The answer was sent.");
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    return [
      h("p", { class: "question" }, outside(this.item.question ?? "", { class: "plain-text" })),
      h("div", { class: "field" }, h("label", { for: id }, "Your answer"), field),
      h("div", { class: "row decide" }, h("button", { class: "button primary", type: "button", disabled: !this.may, on: { click: send } }, "Answer")),
    ];
  }

  // Calls whose outcome is unknown

  #unknown() {
    this.place = h("div", { class: "row decide" });
    this.#showResolutions();
    return [
      h("p", null, "The host stopped while this call was running. It may have had its effect, so the host does not repeat it without asking."),
      h("section", { class: "stack tight" }, h("h3", { class: "small muted" }, "Arguments"), valueView(this.item.arguments, { label: "Arguments" })),
      this.place,
    ];
  }

  #showResolutions() {
    fill(this.place,
      this.#button("Run it again", "r", () => this.#decide("resolutions", { decision: "retry", call: this.item.call }, "The call runs again.")),
      this.#button("It worked", "w", () => this.#resolveWith("result", "Result, which the model is told", "done")),
      this.#button("It failed", "f", () => this.#resolveWith("failed", "Error, which the model is told", "the call failed")));
  }

  #resolveWith(decision, label, text) {
    const id = uniqueId("outcome");
    const field = h("input", { id, type: "text", value: text });
    const send = () => this.#decide("resolutions", { decision, call: this.item.call, text: field.value }, "The outcome is recorded.");
    field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); send(); } });
    fill(this.place, h("div", { class: "field grow" }, h("label", { for: id }, label), field),
      h("div", { class: "row" },
        h("button", { class: "button primary", type: "button", on: { click: send } }, "Record"),
        h("button", { class: "button", type: "button", on: { click: () => { this.#showResolutions(); this.element.focus(); } } }, "Cancel")));
    field.focus();
    field.select();
  }

  // Services

  #service() {
    const id = uniqueId("answer");
    const field = h("textarea", { id, class: "mono", rows: "3", disabled: !this.may, spellcheck: "false" });
    field.value = "{}";
    const type = h("input", { id: `${id}-type`, type: "text", value: this.item.event_type ?? "", disabled: !this.may });
    const send = () => {
      let data;
      try {
        data = JSON.parse(field.value);
      } catch {
        data = field.value;
      }
      const event = { specversion: "1.0", id: crypto.randomUUID?.() ?? String(Date.now()), source: "/console", type: type.value.trim(), subject: this.item.session, parentid: this.item.event, data };
      return this.#decide(null, event, "The answer was recorded.");
    };
    const stop = async () => {
      if (!(await confirmed({ title: "Stop the turn?", text: "The agent stops waiting, and prompts in the queue are dropped.", action: "Stop the turn" }))) return;
      try {
        await api.post(sessionPath(this.item.session, "cancel"));
        this.#gone("The turn is stopped.");
      } catch (error) {
        notifyError(error);
      }
    };
    return [
      h("p", null, "The service ", outside(this.item.event_type ?? this.item.tool, { class: "mono" }), " has not answered. You can answer for it, if you know the result."),
      h("section", { class: "stack tight" }, h("h3", { class: "small muted" }, "Request"), jsonBlock(this.item.arguments, { label: "Request" })),
      h("div", { class: "field" }, h("label", { for: `${id}-type` }, "Type of the answer"), type),
      h("div", { class: "field" }, h("label", { for: id }, "Data of the answer, as JSON or text"), field),
      h("div", { class: "row decide" },
        h("button", { class: "button primary", type: "button", disabled: !this.may, on: { click: send } }, "Answer for the service"),
        this.#button("Stop the turn", "s", stop, "danger")),
    ];
  }

  // Grants that a plugin lacks

  #firstUse() {
    const { item } = this;
    const { plugin, offered, can_be_kept: canBeKept } = item.first_use;
    const answer = (label, key, value, kind) => this.#button(label, key, () => this.#grant(value), kind);
    return [
      h("p", null, "The plugin ", outside(plugin, { class: "mono" }), item.tool ? [" is about to run ", outside(item.tool, { class: "mono" })] : " is about to build the context", ", and asks for these grants:"),
      h("ul", { class: "plain stack tight" }, offered.map((grant) => h("li", { class: "claim stack tight" }, outside(grant.meaning), h("pre", { class: "small" }, outside(grant.line))))),
      ...this.#aboutPlugin(),
      h("div", { class: "row decide" },
        answer("Allow in this session", null, "this_session", "primary"),
        canBeKept && answer("Always", null, "always"),
        answer("Deny", "d", "no", "danger"),
        canBeKept && answer("Never ask again", null, "never", "quiet")),
    ];
  }

  /** What a plugin did without, because nobody was there to answer. */
  #deniedGrants() {
    const { item } = this;
    const { plugin, offered, can_be_kept: canBeKept } = item.first_use;
    const add = (label, grant, size = "small") => h("a", { class: `button ${size}`, href: configurationWith(item.agent, grant.table, grant.line) }, label);
    return [
      h("p", null, "The plugin ", outside(plugin, { class: "mono" }), item.tool ? [" ran ", outside(item.tool, { class: "mono" })] : " built the context", " without these grants, because nobody was there to give them:"),
      h("ul", { class: "plain stack tight" }, offered.map((grant) => h("li", { class: "claim stack tight" }, outside(grant.meaning), h("pre", { class: "small" }, outside(grant.line)), canBeKept && h("p", null, add("Add it to the configuration…", grant))))),
      ...this.#aboutPlugin(),
      h("div", { class: "row decide" },
        this.#button("Dismiss", "d", () => this.#grant("no")),
        canBeKept && offered.length > 0 && add("Never ask again…", { table: offered[0].table, line: "ask = false" }, "")),
    ];
  }

  /** What no answer can grant, and which plugin it is. Names and lines come from the plugin's manifest, so they are in boxes. */
  #aboutPlugin() {
    const { digest, not_offered: missing } = this.item.first_use;
    return [
      missing.length > 0 && h("div", { class: "stack tight" }, h("h3", { class: "small muted" }, "The plugin also asks for this, which cannot be granted here"),
        h("ul", { class: "plain stack tight small" }, missing.map((one) => h("li", { class: "claim stack tight" },
          h("p", null, h("span", { class: "muted" }, "Asks for: "), outside(shorten(one.thing, 120), { class: "mono" })),
          h("p", null, h("span", { class: "muted" }, "Why not: "), outside(shorten(one.why, 200))),
          h("p", null, h("span", { class: "muted" }, one.table ? "In the configuration: " : "Instead: "), outside(shorten(`${one.table} ${one.line}`.trim(), 200), { class: "mono" })))))),
      h("dl", { class: "facts" }, h("div", { class: "digest" }, h("dt", null, "Digest"), h("dd", null, outside(digest, { class: "mono" })))),
    ];
  }

  #grant(answer) {
    const said = ({ status, reason }) => (status === "not_kept"
      ? `The answer applies to this session, but it is not in the agent's file: ${reason}. To keep it, add the lines yourself.`
      : GRANT_RESULTS[status]?.[answer] ?? "Dismissed.");
    return this.#decide("first-uses", { question: this.item.first_use.question, answer }, said);
  }

  /** Sends a decision. If somebody else was first, the person is told. */
  async #decide(part, body, success) {
    this.#hadFocus = this.element.contains(document.activeElement);
    for (const button of this.element.querySelectorAll("button")) button.disabled = true;
    try {
      const answer = part
        ? await api.post(sessionPath(this.item.session, part), body)
        : await api.post("api/events", body, { headers: { "content-type": "application/cloudevents+json" } });
      if (answer.status === "late") this.#gone("Somebody else decided first. Your decision was not used.");
      else if (answer.status === "duplicate") this.#gone("Somebody else already decided the same.");
      else if (answer.violations?.length > 0) this.#gone("The answer does not fit its schema, so the model gets an error.");
      else this.#gone(typeof success === "function" ? success(answer) : success, answer.status === "not_kept" ? "bad" : "info");
    } catch (error) {
      if (error instanceof ApiError && [404, 409].includes(error.status)) {
        this.#gone(`This does not wait any more: somebody else decided first, or the turn ended. ${error.message}`);
        return;
      }
      for (const button of this.element.querySelectorAll("button")) button.disabled = !this.may;
      notifyError(error);
      // The button that was disabled has lost the focus.
      if (this.#hadFocus) this.element.focus();
    }
  }

  /** Removes the card. The focus moves to the next card, or to what the page chooses. */
  #gone(text, kind = "info") {
    notify(text, { kind });
    const next = [this.element.nextElementSibling, this.element.previousElementSibling].find((sibling) => sibling?.matches(".decision"));
    const { parentElement } = this.element;
    this.element.remove();
    parentElement?.dispatchEvent(new CustomEvent("decided", { bubbles: true, detail: { item: this.item, needsFocus: this.#hadFocus && !next } }));
    if (this.#hadFocus && next) {
      next.dataset.movedAt = String(performance.now());
      next.focus();
    }
    inbox.refresh();
  }
}

/** Returns the key of an item. */
export function itemKey(item) {
  return `${item.session}\n${item.call}\n${item.kind}\n${item.first_use?.question ?? ""}`;
}

function digestOf(source) {
  const details = source && typeof source === "object" ? Object.values(source)[0] : null;
  return details?.digest ?? details?.definition ?? null;
}

function effects(traits) {
  if (!traits) return "";
  const parts = [
    traits.read_only && "only reads",
    traits.destructive && "may delete or overwrite data",
    traits.open_world && "reaches other systems",
    traits.idempotent && !traits.read_only && "has no further effect if it runs twice",
  ].filter(Boolean);
  return parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts.join("");
}
