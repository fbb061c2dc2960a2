// Sessions: the list on the left, and one session or a new one on the right. A narrow window shows one of the two.

import { api } from "../core/api.js";
import { fill, h, outside, shorten, uniqueId } from "../core/dom.js";
import { go, href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { icon } from "../components/icon.js";
import { Page, emptyView, loading } from "../components/page.js";
import { Composer } from "../chat/composer.js";
import { Conversation } from "../chat/conversation.js";
import { SessionList } from "../chat/session-list.js";

/** The agent of the last session that began in this browser is offered first. */
const LAST_AGENT = "agent-host.agent";

class ChatPage extends Page {
  #conversation = null;
  /** The session that a person has just begun here. They go on writing in its field. */
  #begun = null;

  render() {
    this.sessions = new SessionList(this);
    this.place = h("div", { class: "chat-place" });
    this.layout = h("div", { class: "chat" }, this.sessions.element, this.place);
    this.append(this.layout);
    this.sessions.start();
  }

  routeChanged() {
    const [session] = this.route.segments;
    const isSession = session !== undefined && session !== "new";
    this.layout.dataset.shows = session === undefined ? "list" : "session";
    if (this.#conversation && this.#conversation.session === session && !this.route.query.get("message")) return;
    this.#conversation?.close();
    this.#conversation = null;
    this.sessions.select(isSession ? session : null);
    if (isSession) this.#open(session);
    else this.#new();
  }

  #open(session) {
    this.#conversation = new Conversation(session, {
      parent: this.signal,
      onChange: (details) => {
        document.title = `${shorten(details.title ?? "Session", 60)} · agent-host`;
        this.sessions.refresh();
      },
    });
    fill(this.place, this.#conversation.element);
    this.#conversation.start({ message: this.route.query.get("message") });
    if (this.#begun === session) this.#conversation.focus();
    this.#begun = null;
  }

  #new() {
    document.title = "Chat · agent-host";
    if (!signIn.may("talk")) {
      // A narrow window shows either the list or the place beside it.
      this.layout.dataset.shows = "list";
      fill(this.place, emptyView("chat", "Choose a session", "Your token may read sessions, but it may not begin one. That needs the right “talk”."));
      return;
    }
    fill(this.place, loading());
    this.show(this.place, async () => {
      const { agents } = await api.get("api/agents", { signal: this.signal });
      return agents.length === 0
        ? emptyView("agents", "No agents", "This server runs no agent that your token may use.")
        : this.#newSession(agents);
    });
  }

  #newSession(agents) {
    const id = uniqueId("agent");
    const isKnown = (wanted) => agents.some(({ name }) => name === wanted);
    let agent = [this.route.query.get("agent"), localStorage.getItem(LAST_AGENT)].find(isKnown) ?? agents[0].name;
    const about = h("p", { class: "muted small" });
    const describe = () => {
      const { model, tools } = agents.find(({ name }) => name === agent);
      fill(about, outside(model), ` · ${tools === 1 ? "1 tool" : `${tools} tools`}`);
    };
    const choice = h("select", { id, on: { change: (event) => { agent = event.target.value; describe(); } } },
      agents.map(({ name }) => h("option", { value: name, selected: name === agent }, name)));
    describe();
    const composer = new Composer({
      draftKey: "new",
      placeholder: "What should the agent do?",
      send: async ({ text, attachments }) => {
        const { session } = await api.post("api/sessions", { agent, prompt: text, attachments });
        localStorage.setItem(LAST_AGENT, agent);
        this.sessions.refresh();
        this.#begun = session;
        go(href("chat", session));
      },
      stop: () => {},
    });
    composer.acceptDrops(this.place, this.signal);
    if (matchMedia("(min-width: 60rem)").matches || this.route.segments[0] === "new") requestAnimationFrame(() => composer.field.focus());
    return h("section", { class: "new-session", "aria-label": "New session" },
      h("a", { class: "icon-button back", href: href("chat"), "aria-label": "Back to the sessions" }, icon("back")),
      h("div", { class: "stack" },
        h("div", null, h("h1", null, "Begin a session"), agents.length === 1 && h("p", { class: "muted" }, "with ", outside(agent)), agents.length === 1 && about),
        agents.length > 1 && h("div", { class: "field" }, h("label", { for: id }, "Agent"), choice, about),
        composer.element));
  }
}

customElements.define("ah-chat", ChatPage);
