// Asks for a token. The token is exchanged for a sign-in and is not stored.

import { h, uniqueId } from "../core/dom.js";
import { signIn } from "../core/sign-in.js";

class SignInPage extends HTMLElement {
  connectedCallback() {
    const id = uniqueId("token");
    const field = h("input", {
      id, type: "password", name: "token", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true,
      placeholder: "aht_…", "aria-describedby": `${id}-problem`, autofocus: true,
    });
    const problem = h("p", { class: signIn.wasAsked ? "hint" : "error", id: `${id}-problem`, role: "alert" }, signIn.message);
    const button = h("button", { class: "button primary", type: "submit" }, "Sign in");
    const submit = async (event) => {
      event.preventDefault();
      const token = field.value.trim();
      if (!token) {
        problem.className = "error";
        problem.textContent = "Enter a token.";
        field.focus();
        return;
      }
      button.disabled = true;
      try {
        await signIn.withToken(token);
      } catch (error) {
        problem.className = "error";
        problem.textContent = error.message;
        field.setAttribute("aria-invalid", "true");
        field.select();
      } finally {
        button.disabled = false;
      }
    };
    this.replaceChildren(h("main", { class: "sign-in" }, h("div", { class: "card" },
      h("h1", { class: "brand" }, h("img", { src: "icon.svg", alt: "" }), "agent-host"),
      h("form", { novalidate: true, on: { submit } },
        h("div", { class: "field" }, h("label", { for: id }, "Token"), field, problem),
        button),
      h("div", { class: "help" },
        h("p", null, "The first token is in the file ", h("code", null, "server-token"), " of the data folder. The server names the file when it starts. On this machine, a further token comes from:"),
        h("pre", { tabindex: "0", "aria-label": "Command" }, h("code", null, "agent-host token create NAME --right read")),
        h("p", null, "You stay signed in on this tab for 12 hours. The token itself is not stored.")))));
    field.focus();
  }
}

customElements.define("ah-sign-in", SignInPage);
