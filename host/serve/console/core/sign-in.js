// The sign-in of this tab. The token itself is never stored: the server exchanges it for a secret that ends after 12 hours. The
// secret is in the storage of this tab only, which pages of other origins, other ports included, cannot read. It is sent in a
// header, and not as a cookie, so that no other page can make the browser send it.

const KEY = "agent-host.sign-in";

class SignIn extends EventTarget {
  #stored = null;
  /** Why the last sign-in ended, for the page that asks for a token. */
  message = "";
  /** Whether the person asked for the end of the sign-in, so that the message is no problem. */
  wasAsked = false;

  /** Uses the sign-in of this tab, or a code in the address. */
  async start() {
    const code = codeInAddress();
    if (code) {
      // The code must not stay in the address or in the history.
      history.replaceState(null, "", `${location.pathname}#/`);
      try {
        await this.#begin("api/sign-ins/code", { "content-type": "application/json" }, JSON.stringify({ code }));
        return;
      } catch (error) {
        this.message = error.message;
      }
    }
    const stored = readStored();
    if (stored && Date.parse(stored.expires) > Date.now()) this.#stored = stored;
  }

  /** Signs in with a token. */
  async withToken(token) {
    await this.#begin("api/sign-ins", { authorization: `Bearer ${token}` });
  }

  async #begin(path, headers, body) {
    let answer;
    try {
      answer = await fetch(new URL(`../${path}`, document.baseURI), { method: "POST", headers, body, cache: "no-store" });
    } catch {
      throw new Error("The server cannot be reached.");
    }
    const content = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(sentence(content.detail ?? `the server answered with the status ${answer.status}`));
    this.#stored = content;
    this.message = "";
    sessionStorage.setItem(KEY, JSON.stringify(content));
    this.dispatchEvent(new Event("change"));
  }

  /** Ends the sign-in, because the person asks for it. */
  async end(message = "") {
    const secret = this.secret;
    this.wasAsked = true;
    this.forget(message);
    this.wasAsked = false;
    if (!secret) return;
    const headers = { authorization: `Bearer ${secret}` };
    await fetch(new URL("../api/sign-ins", document.baseURI), { method: "DELETE", headers, keepalive: true }).catch(() => {});
  }

  /** Forgets the sign-in in this tab. */
  forget(message) {
    this.#stored = null;
    this.message = message;
    sessionStorage.removeItem(KEY);
    this.dispatchEvent(new Event("change"));
  }

  get secret() {
    return this.#stored?.secret ?? null;
  }

  /** The name, rights, agents and user of the token, or `null`. */
  get token() {
    return this.#stored?.token ?? null;
  }

  /** Returns whether the token has this right: `read`, `talk`, `approve` or `administer`. */
  may(right) {
    return this.token?.rights.includes(right) ?? false;
  }
}

function codeInAddress() {
  return /^#sign-in=(ahc_[0-9a-f]+)$/.exec(location.hash)?.[1] ?? null;
}

function readStored() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY));
    return typeof stored?.secret === "string" && Array.isArray(stored?.token?.rights) ? stored : null;
  } catch {
    return null;
  }
}

/** Makes a sentence of an error of the API. */
export function sentence(text) {
  const line = String(text).trim();
  const whole = /[.!?]$/.test(line) ? line : `${line}.`;
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}

export const signIn = new SignIn();
