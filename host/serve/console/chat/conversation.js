// One session: its messages, and the turn that runs. The stored transcript is the truth; the event stream says when to read it
// again, and brings the text that is being written.

import { api, ApiError, sessionPath } from "../core/api.js";
import { announce, appendText, fill, h, outside, shorten } from "../core/dom.js";
import { follow } from "../core/events.js";
import { compactCount, dollars, plural } from "../core/format.js";
import { inbox } from "../core/inbox-count.js";
import { href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { DecisionCard, itemKey } from "../components/decision.js";
import { icon } from "../components/icon.js";
import { menu } from "../components/menu.js";
import { notifyError } from "../components/notice.js";
import { errorView, loading } from "../components/page.js";
import { showBudget } from "./budget-bar.js";
import { Composer, readOnlyNote } from "./composer.js";
import { numberOfKept } from "./kept-messages.js";
import { LiveText } from "./live-text.js";
import { incompleteReply, messageView, noteView, pendingPrompt, turnEnd } from "./message-view.js";
import { forkSession, isOpenState, retryTurn, sessionActions } from "./session-actions.js";
import { ToolCard } from "./tool-card.js";

/** Distance from the end, in pixels, within which the view follows new messages. */
const NEAR_END = 120;

/** Events after which the transcript is read again. */
const CHANGES = new Set(["loop_start", "context_built", "tool_call", "tool_result", "tool_result_error", "tool_not_found", "tool_deferred", "denied", "stream_complete", "suspended", "resumed", "approval_requested", "approval_resolved", "outcome_unknown", "steered", "evicted", "output_rejected", "error", "loop_end", "nudge", "no_tool_call", "budget_exceeded", "plugin_swapped", "plugin_rolled_back", "model_fallback", "tool_disabled"]);

/** Events that come after the reply before them is complete. */
const ENDS_REPLY = new Set(["stream_complete", "tool_call", "loop_iteration", "approval_requested", "suspended"]);

export class Conversation {
  #cards = new Map();
  #messages = new Map();
  /** What happened besides messages, by the number of the event. */
  #notes = new Map();
  #pending = [];
  #decisions = new Map();
  #unfinished = new Map();
  #lastMessage = 0;
  #firstMessage = Infinity;
  #state = "idle";
  #sync = { running: false, wanted: false };
  /** How often the whole conversation was shown again. */
  #reloads = 0;
  #thinking = "";
  /** The thinking of a reply that is complete, until its message is shown. */
  #keptThinking = null;
  /** Whether the reply that was written is complete. It stays until its message is shown, or the next reply begins. */
  #isSealed = false;
  #waitCount = 0;
  /** What was written of a reply that was interrupted, until the turn ends or the reply begins again. */
  #partial = null;
  /** What the turn does, in a few words. */
  #doing = null;
  /** The items that were decided here a moment ago, with the time. The inbox may still contain them. */
  #decided = new Map();
  #controller = new AbortController();
  #follows = true;
  /** The position of the view at the last look. */
  #top = 0;
  /** Whether the view moves to the end before the next frame. */
  #isMoving = false;
  #started = false;
  /** The beginning of the last reply, for people who use a screen reader. */
  #lastReply = "";

  constructor(session, { parent, onChange, back }) {
    this.session = session;
    this.onChange = onChange;
    parent.addEventListener("abort", () => this.close(), { once: true });
    this.signal = this.#controller.signal;
    this.element = h("section", { class: "conversation", "aria-label": "Session" });
    this.#render(back);
  }

  close() {
    this.#controller.abort();
  }

  #render(back) {
    this.title = h("h1", { class: "cut" }, "Session");
    this.about = h("p", { class: "muted small cut" });
    this.budget = h("div", { class: "budget-place" });
    this.earlier = h("button", { class: "button small quiet", type: "button", hidden: true, on: { click: () => this.#loadEarlier() } }, "Show earlier messages");
    this.list = h("div", { class: "messages" });
    this.thought = h("details", { class: "thinking", hidden: true }, h("summary", null, icon("thought"), h("span", null, "Thinking")), h("div", { class: "plain-text outside", dir: "auto" }));
    this.live = new LiveText(this.signal, () => this.#stay());
    this.liveMessage = h("article", { class: "message model live-message", "aria-label": "Reply that is being written", hidden: true }, h("div", { class: "parts" }, this.thought, this.live.element));
    this.waits = h("div", { class: "stack waits", on: { decided: ({ detail }) => this.#wasDecided(detail) } });
    this.status = h("div", { class: "status muted small" });
    this.queue = h("div", { class: "queue" });
    this.jump = h("button", { class: "button small jump", type: "button", hidden: true, on: { click: () => this.#toEnd() } }, icon("down"), "Latest");
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Messages" },
      h("div", { class: "column" }, h("h2", { class: "visually-hidden" }, "Messages"), h("div", { class: "row earlier" }, this.earlier), this.list, this.liveMessage, this.waits, this.status));
    this.scroll.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.composer = signIn.may("talk") ? new Composer({
      draftKey: this.session,
      send: (prompt) => this.#send(prompt),
      stop: () => this.#stop(),
      placeholder: "Write a prompt",
    }) : null;
    this.composer?.acceptDrops(this.element, this.signal);
    const more = h("button", { class: "icon-button", type: "button", "aria-label": "More", title: "More" }, icon("more"));
    fill(this.element,
      h("header", null, h("a", { class: "icon-button back", href: href("chat"), "aria-label": "Back to the sessions", on: { click: back } }, icon("back")),
        h("div", { class: "grow" }, this.title, this.about), this.budget, menu(more, () => sessionActions(this.session, this.#state, () => this.#reload()))),
      this.scroll,
      h("div", { class: "foot" }, this.jump, this.queue, this.composer ? this.composer.element : readOnlyNote()));
    fill(this.list, loading());
  }

  /** Moves the focus to the field for prompts. */
  focus() {
    this.composer?.field.focus();
  }

  async start({ message } = {}) {
    inbox.addEventListener("change", () => this.#showWaits(), { signal: this.signal });
    try {
      const query = message ? { before: Number(message) + 20 } : {};
      const transcript = await api.get(sessionPath(this.session, "transcript"), { query, signal: this.signal });
      this.#started = true;
      this.list.replaceChildren();
      this.#apply(transcript);
      if (message) await this.#showMessage(Number(message));
      else this.#toEnd();
      this.#about();
      // The stream repeats the pieces of a reply that is being written, so that a reload loses nothing.
      follow(sessionPath(this.session, "events"), {
        after: transcript.last_event, signal: this.signal, onEvent: (event) => this.#event(event), onState: (state, error) => this.#stream(state, error),
      });
      if (message) this.#read();
    } catch (error) {
      if (error.name !== "AbortError") fill(this.list, errorView(error, () => this.start({ message })));
    }
  }

  #stream(state, error) {
    if (error instanceof ApiError && error.status === 429) {
      this.element.dataset.stream = "polling";
      setTimeout(() => this.#read(), 1_000);
    } else if (state === "open") {
      delete this.element.dataset.stream;
      this.#read();
    }
  }

  /** Reads what is shown in the heading. */
  async #about() {
    try {
      const session = await api.get(sessionPath(this.session), { signal: this.signal });
      this.details = session;
      fill(this.title, outside(shorten(session.title ?? "Untitled", 120)));
      const { usage } = session;
      const tokens = (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0);
      fill(this.about, outside(session.agent), ` · ${plural(session.turns, "turn")} · ${compactCount(tokens)} tokens`,
        usage?.cost && ` · ${usage.cost.partial ? "at least " : ""}${dollars(usage.cost.nanodollars)}`,
        session.user && [" · for ", outside(session.user)],
        session.delegated_by && [" · delegated by ", h("a", { href: href("chat", session.delegated_by) }, outside(shorten(session.delegated_by, 40)))]);
      this.onChange(session);
    } catch (error) {
      if (error.name !== "AbortError" && error.status === 404) fill(this.about, "This session was deleted.");
    }
  }

  // Transcript

  #apply(transcript) {
    const calls = new Map(transcript.calls.map((call) => [call.id, call]));
    for (const call of calls.values()) {
      const card = this.#cards.get(call.id) ?? new ToolCard(this.session);
      this.#cards.set(call.id, card);
      card.update(call);
      if (call.result) this.#unfinished.delete(call.id);
    }
    if (!isOpenState(transcript.state) && transcript.state !== "cancelled" && transcript.state !== "failed") this.#isSealed = true;
    const messages = transcript.messages.filter((message) => this.#lastMessage === 0 || message.id >= this.#firstMessage);
    for (const message of messages) {
      this.#show(message);
      for (const part of message.parts) {
        if (part.kind === "call" && calls.get(part.call)?.result === null) this.#unfinished.set(part.call, message.id);
      }
    }
    this.#showNotes(transcript.notes);
    if (messages.length > 0) this.#firstMessage = Math.min(this.#firstMessage, messages[0].id);
    if (this.#lastMessage === 0) this.earlier.hidden = !transcript.has_earlier;
    this.#lastMessage = Math.max(this.#lastMessage, transcript.last_message);
    this.#turn(transcript);
    this.#forgetEarlier();
    // The view moves at once: when the text that was being written disappears, the browser moves it up, which must not look as if
    // somebody had scrolled.
    if (this.#follows) this.#moveToEnd();
    this.#stay();
  }

  /** Removes the earliest messages from a long page, so that a page that is open for days does not grow. */
  #forgetEarlier() {
    if (!this.#follows) return;
    const latestFirst = [...this.#messages.entries()].sort(([one], [other]) => other - one)
      .map(([id, { element }]) => ({ id, element, length: element.textContent.length }));
    const kept = numberOfKept(latestFirst.map(({ length }) => length));
    if (kept === latestFirst.length) return;
    const { id: first, element } = latestFirst[kept - 1];
    for (const { id } of latestFirst.slice(kept)) this.#messages.delete(id);
    while (this.list.firstChild !== element) this.list.firstChild.remove();
    for (const [sequence, note] of this.#notes) {
      if (!note.isConnected) this.#notes.delete(sequence);
    }
    for (const [call, card] of this.#cards) {
      if (!card.element.isConnected && !this.#unfinished.has(call)) this.#cards.delete(call);
    }
    for (const [call, message] of this.#unfinished) {
      if (message < first) this.#unfinished.delete(call);
    }
    this.#firstMessage = first;
    this.earlier.hidden = false;
    this.#moveToEnd();
  }

  /** Shows what happened in the turns besides messages, before the first or after the last message of each turn. */
  #showNotes(notes) {
    for (const note of notes) {
      if (this.#notes.has(note.sequence)) continue;
      const shown = [...this.#messages.entries()].sort(([one], [other]) => one - other).map(([, message]) => message);
      if (shown.length > 0 && note.turn < shown[0].turn) continue;
      const element = noteView(note.event, this.session);
      this.#notes.set(note.sequence, element);
      const next = shown.find(({ turn }) => (note.place === "start" ? turn >= note.turn : turn > note.turn));
      if (next) next.element.before(element);
      else this.list.append(element);
    }
  }

  #show(message) {
    const known = this.#messages.get(message.id);
    const version = JSON.stringify([message.hidden, message.parts.length]);
    if (known?.version === version) return;
    if (message.role === "user" && !known) this.#pending.shift()?.remove();
    const isModel = message.role === "assistant";
    if (isModel) this.#lastReply = message.parts.findLast((part) => part.kind === "text")?.text ?? "";
    if (isModel && !known && (this.#isSealed || this.#isBeingWritten(message))) this.#finishLive();
    const element = messageView(this.session, message, (call) => {
      if (!this.#cards.has(call)) this.#cards.set(call, new ToolCard(this.session));
      return this.#cards.get(call).element;
    }, signIn.may("talk") ? [{ icon: "fork", label: "Fork the session after this message", run: () => forkSession(this.session, message.id) }] : []);
    if (isModel && !known && this.#keptThinking) {
      // Some providers keep the thinking in the stored message.
      if (!element.querySelector("details.thinking")) element.querySelector(".parts").prepend(this.#keptThinking);
      this.#keptThinking = null;
    }
    this.#messages.set(message.id, { element, version, turn: message.turn });
    if (known) {
      known.element.replaceWith(element);
      return;
    }
    const next = [...this.#messages.keys()].filter((id) => id > message.id).sort((one, other) => one - other)[0];
    if (next === undefined) this.list.append(element);
    else this.#messages.get(next).element.before(element);
  }

  /** Returns whether a stored message is the reply that is shown as being written. The event that ends it may come later. */
  #isBeingWritten(message) {
    const text = message.parts.find((part) => part.kind === "text")?.text ?? "";
    return !this.liveMessage.hidden && text.startsWith(this.live.text);
  }

  #turn({ state, queued, waits, recent }) {
    const wasOpen = this.#isOpen;
    this.#state = state;
    this.#waitCount = waits.length;
    this.composer?.setTurnOpen(this.#isOpen);
    fill(this.queue, queued.map((prompt) => h("p", { class: "queued small" }, h("span", { class: "badge" }, prompt.steers ? "Steers" : "Queued"), outside(prompt.text, { class: "cut" }))));
    const byType = Object.fromEntries(recent.map((event) => [event.type, event]));
    showBudget(this.budget, byType.context_budget);
    this.#statusLine(byType);
    if (!this.#isOpen) {
      if (wasOpen) this.#sayEnd();
      this.#keepPartial();
      this.#finishLive();
      if (this.#pending.length > 0 && wasOpen) {
        this.#pending.forEach((element) => element.remove());
        this.#pending = [];
      }
    }
    this.#showWaits();
    if (waits.length > 0) inbox.refresh();
  }

  get #isOpen() {
    return isOpenState(this.#state);
  }

  #statusLine(recent) {
    const hadFocus = this.status.contains(document.activeElement);
    this.#fillStatus(recent);
    if (hadFocus && !this.status.contains(document.activeElement)) (this.composer?.field ?? this.scroll).focus();
  }

  #fillStatus(recent) {
    if (this.#state === "running") {
      // A question about grants waits while the turn runs.
      const isAsked = this.#decisions.size > 0;
      fill(this.status, h("p", { class: "row", role: "status" }, isAsked ? icon("clock") : h("span", { class: "spinner" }), isAsked ? "Waiting for your decision" : this.#doing ?? "Working…"));
      return;
    }
    this.#doing = null;
    if (this.#state === "suspended") {
      fill(this.status, h("p", { class: "row", role: "status" }, icon("clock"), `Waiting for ${plural(this.#waitCount, "answer")}`));
      return;
    }
    const retry = h("button", { class: "button small", type: "button", on: { click: () => retryTurn(this.session, () => this.#reload()) } }, icon("retry"), "Try again");
    fill(this.status, turnEnd(this.#state, recent, signIn.may("talk") ? retry : null));
  }

  /** Reads the transcript again, from the oldest message that may still change. Several requests become one. */
  async #read() {
    this.#sync.wanted = true;
    if (this.#sync.running || !this.#started) return;
    this.#sync.running = true;
    while (this.#sync.wanted && !this.signal.aborted) {
      this.#sync.wanted = false;
      try {
        const reloads = this.#reloads;
        const after = Math.min(this.#lastMessage, ...[...this.#unfinished.values()].map((id) => id - 1));
        const transcript = await api.get(sessionPath(this.session, "transcript"), { query: { after, limit: 100 }, signal: this.signal });
        if (reloads !== this.#reloads) {
          this.#sync.wanted = true;
          continue;
        }
        this.#apply(transcript);
        if (transcript.messages.length >= 90) this.#sync.wanted = true;
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status === 404) {
          fill(this.status, h("p", { class: "callout bad" }, "This session was deleted."));
          return;
        }
      }
    }
    this.#sync.running = false;
  }

  async #loadEarlier() {
    this.earlier.disabled = true;
    try {
      const transcript = await api.get(sessionPath(this.session, "transcript"), { query: { before: this.#firstMessage }, signal: this.signal });
      const [height, top] = [this.scroll.scrollHeight, this.scroll.scrollTop];
      this.#follows = false;
      for (const call of transcript.calls) {
        const card = this.#cards.get(call.id) ?? new ToolCard(this.session);
        this.#cards.set(call.id, card);
        card.update(call);
      }
      transcript.messages.forEach((message) => this.#show(message));
      this.#showNotes(transcript.notes);
      this.#firstMessage = transcript.messages[0]?.id ?? 1;
      this.earlier.hidden = !transcript.has_earlier;
      if (this.earlier.hidden) this.scroll.focus({ preventScroll: true });
      this.scroll.scrollTop = top + this.scroll.scrollHeight - height;
    } catch (error) {
      notifyError(error);
    }
    this.earlier.disabled = false;
  }

  async #showMessage(id) {
    const nearest = [...this.#messages.keys()].filter((known) => known <= id).at(-1) ?? this.#firstMessage;
    const element = this.#messages.get(nearest)?.element;
    if (!element) return;
    this.#follows = false;
    element.scrollIntoView({ block: "center" });
    element.classList.add("found");
  }

  // Events

  #event({ type, data }) {
    switch (type) {
      case "stream_token":
        this.#beginReply();
        this.#partial = null;
        this.liveMessage.hidden = false;
        this.#note("Writing…");
        this.live.append(data.text);
        return;
      case "thinking_start":
        this.#beginReply();
        this.#note("Thinking…");
        return;
      case "thinking_content":
        this.#beginReply();
        this.#think(data.text);
        return;
      case "thinking_end":
        this.#note(null);
        return;
      case "reply":
        this.#clearLive();
        this.liveMessage.hidden = !(data.text || data.thinking);
        this.live.set(data.text ?? "");
        this.#think(data.thinking ?? "");
        return;
      case "stream_clear":
        this.#rememberPartial();
        this.#clearLive();
        return;
      case "context_budget":
        showBudget(this.budget, data);
        return;
      case "retry":
        this.#note(`The model ${data.model} did not answer (${shorten(data.reason, 120)}). Attempt ${data.attempt} follows in ${Math.ceil(data.wait_ms / 1_000)} s…`);
        return;
      default:
    }
    if (ENDS_REPLY.has(type)) this.#isSealed = true;
    if (type === "tool_call") this.#note(`Running ${data.name}…`);
    if (type === "loop_iteration") this.#note(null);
    if (type === "loop_start") this.#state = "running";
    if (type === "loop_end" || type === "loop_start") this.#about();
    if (type === "suspended") announce("The turn waits for an answer.");
    if (CHANGES.has(type)) this.#read();
  }

  /** Shows what the turn does. */
  #note(text) {
    if (this.#doing === text) return;
    this.#doing = text;
    if (this.#state === "running") this.#statusLine({});
  }

  /** Shows a further piece of the thinking. */
  #think(piece) {
    if (!piece) return;
    this.#thinking += piece;
    this.thought.hidden = false;
    this.liveMessage.hidden = false;
    appendText(this.thought.lastChild, piece);
    this.#stay();
  }

  /** Tells people who use a screen reader how the turn ended. They hear the beginning of the reply, and not each piece of it. */
  #sayEnd() {
    // A turn that failed has an alert.
    if (this.#state === "cancelled") announce("Stopped.");
    else if (this.#state !== "failed") announce(this.#lastReply ? `Reply: ${shorten(this.#lastReply, 300)}` : "The turn has ended.");
  }

  #rememberPartial() {
    if (!this.liveMessage.hidden && !this.#isSealed && this.live.text.trim()) this.#partial = this.live.copy();
  }

  /** Keeps what was written before a turn was stopped or failed. It is not stored, so that it is here until the page is left. */
  #keepPartial() {
    this.#rememberPartial();
    if (this.#partial && ["cancelled", "failed"].includes(this.#state)) {
      this.list.append(incompleteReply(this.#partial));
    }
    this.#partial = null;
  }

  /** Prepares for the next reply if the reply that was written is complete. */
  #beginReply() {
    if (!this.#isSealed) return;
    this.#finishLive();
  }

  #clearLive() {
    this.#isSealed = false;
    this.live.set("");
    this.#thinking = "";
    this.thought.hidden = true;
    this.thought.open = false;
    this.thought.lastChild.replaceChildren();
    this.liveMessage.hidden = true;
  }

  /** Removes the reply that was being written, because its message is shown. Its thinking moves to the message. */
  #finishLive() {
    if (this.#thinking) {
      this.#keptThinking = this.thought.cloneNode(true);
      this.#keptThinking.open = this.thought.open;
    }
    this.#clearLive();
  }

  // Waits

  #showWaits() {
    // A question about grants waits while the turn runs.
    const mayWait = (item) => item.kind !== "denied_grants" && (this.#state === "suspended" || (this.#state === "running" && item.kind === "first_use"));
    const items = (inbox.items ?? []).filter((item) => mayWait(item) && this.#waitsHere(item));
    const keys = new Set(items.map(itemKey));
    const count = this.#decisions.size;
    for (const [key, card] of this.#decisions) {
      if (keys.has(key) && card.element.isConnected) continue;
      card.element.remove();
      this.#decisions.delete(key);
      this.#read();
    }
    for (const item of items) {
      if (this.#decisions.has(itemKey(item))) continue;
      const card = new DecisionCard(item, { withSession: false });
      this.#decisions.set(itemKey(item), card);
      this.waits.append(card.element);
      this.#stay();
    }
    if (count !== this.#decisions.size && this.#state === "running") this.#statusLine({});
  }

  #wasDecided({ item, needsFocus }) {
    this.#decided.set(itemKey(item), Date.now());
    if (needsFocus) (this.composer?.field ?? this.scroll).focus();
    setTimeout(() => this.#read(), 100);
  }

  #waitsHere(item) {
    return item.session === this.session && Date.now() - (this.#decided.get(itemKey(item)) ?? 0) > 5_000;
  }

  // What people do

  async #send({ text, attachments, shown, steer }) {
    const answer = await api.post(sessionPath(this.session, "prompts"), { prompt: text, steer, attachments });
    if (answer.status === "started") {
      const element = pendingPrompt(text, shown);
      this.#pending.push(element);
      this.list.append(element);
      this.#state = "running";
      this.composer.setTurnOpen(true);
      this.#doing = null;
      this.#statusLine({});
    }
    this.#toEnd();
    this.#read();
  }

  async #stop() {
    try {
      await api.post(sessionPath(this.session, "cancel"));
    } catch (error) {
      notifyError(error);
    }
    this.#read();
  }

  /** Shows the whole conversation again, because messages that are shown have changed. */
  async #reload() {
    const transcript = await api.get(sessionPath(this.session, "transcript"), { signal: this.signal }).catch(() => null);
    if (!transcript) return;
    // An answer to an earlier request describes what was shown before, so that it is not used.
    this.#reloads += 1;
    this.#messages.clear();
    this.#notes.clear();
    this.#cards.clear();
    this.#unfinished.clear();
    this.#pending = [];
    this.#lastMessage = 0;
    this.#firstMessage = Infinity;
    this.list.replaceChildren();
    this.#apply(transcript);
    this.#toEnd();
  }

  // Scrolling

  /** Moves the view to the end before the next frame, however often it is called until then. */
  #stay() {
    if (!this.#follows || this.#isMoving) return;
    this.#isMoving = true;
    requestAnimationFrame(() => {
      this.#isMoving = false;
      if (this.#follows) this.#moveToEnd();
    });
  }

  #moveToEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.#top = this.scroll.scrollTop;
  }

  /** Stops to follow when somebody scrolls up, and not when messages arrive faster than the view moves. */
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const rest = scrollHeight - scrollTop - clientHeight;
    if (scrollTop < this.#top && rest > 8) this.#follows = false;
    else if (rest < NEAR_END) this.#follows = true;
    this.#top = scrollTop;
    this.jump.hidden = this.#follows;
  }

  #toEnd() {
    this.#follows = true;
    this.jump.hidden = true;
    this.#forgetEarlier();
    this.#moveToEnd();
    // Messages that were not laid out yet may change the height a moment later.
    this.#stay();
  }
}
