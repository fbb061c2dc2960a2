// The turns of a session: what happened when, step by step.
// Address: `#/turns/SESSION/TURN/STEP`. Without a turn, the latest turn is shown, and without a session, a list of sessions.

import { announce, fill, h, outside, shorten } from "../core/dom.js";
import { api, sessionPath } from "../core/api.js";
import { ago, count, dollars, duration, exactTime, plural } from "../core/format.js";
import { shortcut, shownKeys } from "../core/keys.js";
import { go, href } from "../core/router.js";
import { Page, emptyView, loading, pageHeader } from "../components/page.js";
import { icon } from "../components/icon.js";
import { STATES } from "../chat/session-list.js";
import { stepView } from "./turns/step.js";
import { timeline } from "./turns/timeline.js";
import { replayDialog } from "./turns/replay.js";
import { endBadge, microseconds } from "./turns/words.js";

/** Time between two looks at an open turn, in milliseconds. */
const PAUSE = 2_000;

class TurnsPage extends Page {
  #session = null;
  #turn = null;
  #details = null;
  #step = null;
  #tab = 0;

  render() {
    this.content = h("div", { class: "page turns" });
    this.append(this.content);
    shortcut("Alt+PageDown", "Next step", () => this.#move(1), { signal: this.signal });
    shortcut("Alt+PageUp", "Previous step", () => this.#move(-1), { signal: this.signal });
    this.every(PAUSE, () => (this.#details && !this.#details.ended ? this.#refresh() : null));
  }

  routeChanged() {
    const [session, turn, step] = this.route.segments;
    if (!session) {
      this.#session = null;
      this.show(this.content, () => this.#sessions());
    } else if (session !== this.#session || !turn || Number(turn) !== this.#turn) {
      this.show(this.content, () => this.#open(session, turn && Number(turn), step && Number(step)));
    } else if (step && Number(step) !== this.#step) {
      this.#select(Number(step), false);
    }
  }

  async #sessions() {
    const { sessions } = await api.get("api/sessions", { query: { limit: 50 }, signal: this.signal });
    const header = pageHeader("Turns", "Choose a session to see what its agent did, step by step.");
    if (sessions.length === 0) {
      return [header, emptyView("turn", "No sessions yet", "A session begins with a prompt, a schedule or a webhook.",
        h("a", { class: "button", href: href("chat") }, "Go to the chat"))];
    }
    return [header, h("ul", { class: "plain link-list card" }, sessions.map((session) => h("li", null,
      h("a", { href: href("turns", session.session) },
        outside(session.title || "Without a prompt", { class: "title cut" }),
        h("span", { class: "muted small row" },
          outside(session.agent), h("span", null, plural(session.turns, "turn")), STATES[session.state] && h("span", null, STATES[session.state][1]), h("span", null, ago(session.updated)))))))];
  }

  async #open(session, turn, step) {
    const { turns, next } = await api.get(sessionPath(session, "turns"), { query: { limit: 50, before: turn ? turn + 25 : null }, signal: this.signal });
    const header = pageHeader("Turns", null, h("a", { class: "button", href: href("turns") }, "All sessions"));
    if (turns.length === 0) {
      return [header, emptyView("turn", "No recorded turns", "The turns that a fork or an import has copied have no recorded times.")];
    }
    const shown = turns.some((known) => known.turn === turn) ? turn : turns[0].turn;
    const details = await api.get(sessionPath(session, "turns", shown), { signal: this.signal });
    [this.#session, this.#turn, this.#details] = [session, shown, details];
    this.#step = details.steps.some((known) => known.step === step) ? step : details.steps[0]?.step ?? null;
    this.heading = h("section", { class: "card summary", "aria-label": "Summary of the turn" });
    this.times = h("section", { class: "card", "aria-labelledby": "times-heading" });
    this.detail = h("section", { class: "step", "aria-label": "Step" });
    this.#fillTurn();
    return [this.#header(turns, next), this.heading, this.times, this.detail];
  }

  #header(turns, next) {
    const select = h("select", { "aria-label": "Turn", on: { change: () => go(href("turns", this.#session, select.value)) } },
      turns.map((known) => h("option", { value: known.turn, selected: known.turn === this.#turn },
        `Turn ${known.turn} · ${ago(known.started)}`)),
      next && h("option", { value: next - 1 }, "Earlier turns…"));
    return pageHeader("Turns", outside(this.#session, { class: "mono" }),
      select,
      h("a", { class: "button", href: href("chat", this.#session) }, icon("chat"), "Chat"),
      h("a", { class: "button", href: href("turns") }, "All sessions"));
  }

  async #refresh() {
    const [session, turn] = [this.#session, this.#turn];
    try {
      const details = await api.get(sessionPath(session, "turns", turn), { signal: this.signal });
      if (session !== this.#session || turn !== this.#turn) return;
      const [before, stepBefore] = [JSON.stringify(this.#details), this.#stepContent()];
      this.#details = details;
      this.#step ??= details.steps[0]?.step ?? null;
      if (JSON.stringify(details) === before) return;
      const focused = this.contains(document.activeElement) ? document.activeElement.dataset.step : undefined;
      this.#fillTimes();
      if (focused) this.querySelector(`[data-step="${Number(focused)}"]`)?.focus();
      // A part that somebody reads is not shown again without a reason.
      if (this.#stepContent() !== stepBefore) this.#fillStep();
    } catch {
      // The frame already tells that the server cannot be reached, and the next look tries again.
    }
  }

  /** What the page shows about the selected step, to recognise a change. */
  #stepContent() {
    const { steps, calls, events } = this.#details;
    const ofStep = (one) => one.step === this.#step;
    return JSON.stringify([steps.length, steps.filter(ofStep), calls.filter(ofStep), events.filter(ofStep)]);
  }

  #fillTurn() {
    this.#fillTimes();
    this.#fillStep();
  }

  #fillTimes() {
    const details = this.#details;
    fill(this.heading, this.#summary(details));
    fill(this.times,
      h("header", null, h("h2", { id: "times-heading", class: "grow" }, "Timeline"),
        h("span", { class: "muted small" }, details.ended ? duration(microseconds(details.started, details.ended)) : "The turn is open")),
      h("div", { class: "body parts" },
        details.steps.length === 0 && !details.activities.length ? h("p", { class: "muted" }, details.ended ? "The turn ended before its first step." : loading("The turn is being prepared…"))
          : timeline(details, { selected: this.#step, onStep: (step) => this.#select(step, true) }),
        details.left_out > 0 && h("p", { class: "callout" }, `${count(details.left_out)} more parts are stored, which are too many to show.`)));
  }

  #summary(details) {
    const cost = details.cost;
    const facts = [
      ["Agent", outside(details.agent)],
      ["Began", exactTime(details.started)],
      cost && ["Model calls", count(cost.interactions)],
      cost && ["Tokens", `${count(cost.usage.prompt_tokens)} in, ${count(cost.usage.completion_tokens)} out`],
      cost?.usage.cost && ["Cost", dollars(cost.usage.cost.nanodollars) + (cost.usage.cost.partial ? " or more" : "")],
      ["Plugins", details.plugins.length ? details.plugins.map((plugin, index) => [index > 0 && ", ", outside(plugin, { class: "mono" })]) : "none"],
    ].filter(Boolean);
    return h("div", { class: "body row apart" },
      h("div", { class: "stack tight grow" },
        h("div", { class: "row" }, h("h2", null, `Turn ${details.turn}`), endBadge(details)),
        h("dl", { class: "fact-list" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))))),
      details.plugins.length > 0 && h("button", {
        class: "button", type: "button", on: { click: () => replayDialog(details) },
      }, icon("retry"), "Replay with another plugin version…"));
  }

  #fillStep() {
    const details = this.#details;
    const place = details.steps.findIndex((step) => step.step === this.#step);
    if (place < 0) return fill(this.detail);
    const { move } = this.detail.contains(document.activeElement) ? document.activeElement.dataset : {};
    const button = (label, offset, name, keys) => h("button", {
      class: "icon-button", type: "button", "data-move": offset, "aria-label": `${label} (${shownKeys(keys)})`, title: `${label} (${shownKeys(keys)})`,
      disabled: details.steps[place + offset] === undefined, on: { click: () => this.#move(offset) },
    }, icon(name));
    fill(this.detail,
      h("header", { class: "row apart" },
        h("h2", { id: "step-heading", tabindex: "-1" }, `Step ${this.#step} of ${details.steps.length}`),
        h("div", { class: "row" },
          h("span", { class: "muted small keys" }, h("kbd", null, shownKeys("Alt+PageUp")), " ", h("kbd", null, shownKeys("Alt+PageDown"))),
          button("Previous step", -1, "back", "Alt+PageUp"), button("Next step", 1, "chevron", "Alt+PageDown"))),
      stepView(this, details, details.steps[place], { selected: this.#tab, onSelect: (tab) => { this.#tab = tab; } }));
    // The focus stays on the button that shows the next step, or moves to the heading at the last one.
    if (move) (this.detail.querySelector(`[data-move="${Number(move)}"]:enabled`) ?? this.detail.querySelector("h2")).focus();
  }

  #move(offset) {
    const steps = this.#details?.steps ?? [];
    const place = steps.findIndex((step) => step.step === this.#step);
    const target = steps[place + offset];
    if (!target) return announce(offset > 0 ? "This is the last step." : "This is the first step.");
    this.#select(target.step, true);
    announce(`Step ${target.step}. ${shorten(target.reply ?? "", 120)}`);
  }

  #select(step, addressed) {
    this.#step = step;
    if (addressed) go(href("turns", this.#session, this.#turn, step), { replace: true });
    for (const row of this.querySelectorAll("[data-step]")) {
      const isSelected = Number(row.dataset.step) === step;
      row.setAttribute("aria-pressed", String(isSelected));
      if (isSelected) row.scrollIntoView({ block: "nearest" });
    }
    this.#fillStep();
  }
}

customElements.define("ah-turns", TurnsPage);
