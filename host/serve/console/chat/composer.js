// The field for prompts: text, pictures and files from the disk, from the clipboard or dropped.

import { announce, fill, h, outside, uniqueId } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { shownKeys } from "../core/keys.js";
import { signIn } from "../core/sign-in.js";
import { icon } from "../components/icon.js";
import { notify, notifyError } from "../components/notice.js";

/** Limits of the API: see the route that sends prompts. */
const MAX_ATTACHMENTS = 20;
const MAX_BYTES = 23 << 20;
const MAX_PROMPT_BYTES = 1 << 20;

export class Composer {
  #attachments = [];
  #isBusy = false;
  #turnIsOpen = false;

  /**
   * `send({ text, attachments, steer })` sends the prompt and throws if that fails; `stop()` stops the turn. The draft is kept in
   * this tab under `draftKey`, so that a reload does not lose it.
   */
  constructor({ draftKey, send, stop, placeholder = "Write a prompt" }) {
    this.draftKey = `agent-host.draft.${draftKey}`;
    this.send = send;
    const id = uniqueId("prompt");
    this.field = h("textarea", { id, rows: "1", placeholder, "aria-describedby": `${id}-hint`, enterkeyhint: "send" });
    this.field.value = sessionStorage.getItem(this.draftKey) ?? "";
    this.chosen = h("ul", { class: "chosen plain", "aria-label": "Attachments", hidden: true });
    this.input = h("input", { type: "file", multiple: true, hidden: true, tabindex: "-1", "aria-hidden": "true" });
    const attach = h("button", { class: "icon-button", type: "button", "aria-label": "Attach files", title: "Attach files", on: { click: () => this.input.click() } }, icon("attach"));
    this.sendButton = h("button", { class: "button primary send", type: "submit" }, icon("send"), h("span", null, "Send"));
    this.steerButton = h("button", { class: "button", type: "button", hidden: true, title: `Add to the open turn now (${shownKeys("Control+Enter")})`, on: { click: () => this.#submit(true) } }, "Steer");
    this.stopButton = h("button", { class: "button danger", type: "button", hidden: true, on: { click: () => stop() } }, icon("stop"), h("span", null, "Stop"));
    this.hint = h("p", { class: "hint muted small", id: `${id}-hint` });
    this.element = h("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); this.#submit(false); } } },
      h("label", { class: "visually-hidden", for: id }, "Prompt"), this.chosen, this.field,
      h("div", { class: "controls" }, attach, this.hint, h("div", { class: "row end" }, this.stopButton, this.steerButton, this.sendButton)), this.input);
    this.#listen();
    this.setTurnOpen(false);
    requestAnimationFrame(() => this.#grow());
  }

  #listen() {
    this.field.addEventListener("input", () => {
      this.#grow();
      sessionStorage.setItem(this.draftKey, this.field.value);
      this.#enable();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.#submit((event.ctrlKey || event.metaKey) && this.#turnIsOpen);
    });
    this.field.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      this.add(files);
    });
    this.input.addEventListener("change", () => {
      this.add([...this.input.files]);
      this.input.value = "";
    });
  }

  /** Lets people drop files anywhere on an element. */
  acceptDrops(element, signal) {
    const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    element.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      element.classList.add("dropping");
    }, { signal });
    element.addEventListener("dragleave", (event) => {
      if (!element.contains(event.relatedTarget)) element.classList.remove("dropping");
    }, { signal });
    element.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      element.classList.remove("dropping");
      this.add([...event.dataTransfer.files]);
    }, { signal });
  }

  add(files) {
    for (const file of files) {
      const total = this.#attachments.reduce((sum, attachment) => sum + attachment.file.size, file.size);
      if (this.#attachments.length >= MAX_ATTACHMENTS) return notify(`A prompt can have at most ${MAX_ATTACHMENTS} attachments.`, { kind: "bad" });
      if (file.size === 0) {
        notify(`${file.name} is empty.`, { kind: "bad" });
        continue;
      }
      if (total > MAX_BYTES) return notify(`The attachments of a prompt can have at most ${bytes(MAX_BYTES)}.`, { kind: "bad" });
      const url = file.type.startsWith("image/") && file.type !== "image/svg+xml" ? URL.createObjectURL(file) : null;
      this.#attachments.push({ file, name: file.name || "picture.png", url });
    }
    this.#showChosen();
    announce(`${this.#attachments.length} attached`);
    this.field.focus();
  }

  #showChosen() {
    this.chosen.hidden = this.#attachments.length === 0;
    fill(this.chosen, this.#attachments.map((attachment) => h("li", null,
      attachment.url ? h("img", { src: attachment.url, alt: "" }) : icon("file"),
      outside(attachment.name, { class: "cut" }), h("span", { class: "muted nowrap" }, bytes(attachment.file.size)),
      h("button", {
        class: "icon-button small", type: "button", "aria-label": `Remove ${attachment.name}`,
        on: { click: () => { this.#attachments = this.#attachments.filter((other) => other !== attachment); this.#showChosen(); this.field.focus(); } },
      }, icon("cross")))));
    this.#enable();
  }

  #grow() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight + 2, window.innerHeight * 0.4)}px`;
  }

  #enable() {
    const isEmpty = this.field.value.trim() === "";
    this.sendButton.disabled = this.#isBusy || isEmpty;
    this.steerButton.disabled = this.#isBusy || isEmpty;
  }

  /** Says whether a turn is open. A prompt then waits for its end, or steers it. */
  setTurnOpen(isOpen) {
    this.#turnIsOpen = isOpen;
    this.stopButton.hidden = !isOpen;
    this.steerButton.hidden = !isOpen;
    this.sendButton.lastChild.textContent = isOpen ? "Queue" : "Send";
    this.hint.textContent = isOpen
      ? `Enter queues the prompt, ${shownKeys("Control+Enter")} steers the turn`
      : "Enter sends, Shift+Enter begins a line";
    this.#enable();
  }

  async #submit(steer) {
    const text = this.field.value;
    if (this.#isBusy || text.trim() === "") return;
    if (new TextEncoder().encode(text).length > MAX_PROMPT_BYTES) {
      notify("A prompt can have at most 1 MiB. Attach a long text as a file.", { kind: "bad" });
      return;
    }
    this.#isBusy = true;
    this.#enable();
    try {
      const attachments = await Promise.all(this.#attachments.map(encode));
      await this.send({ text, attachments, shown: this.#attachments, steer });
      this.field.value = "";
      sessionStorage.removeItem(this.draftKey);
      // The prompt that waits shows them until the server has stored it.
      this.#attachments.forEach(({ url }) => { if (url) setTimeout(() => URL.revokeObjectURL(url), 60_000); });
      this.#attachments = [];
      this.#showChosen();
      this.#grow();
    } catch (error) {
      notifyError(error, "The prompt was not sent.");
    } finally {
      this.#isBusy = false;
      this.#enable();
      this.field.focus();
    }
  }
}

function encode({ file, name }) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      const data = String(reader.result).split(",", 2)[1] ?? "";
      resolve({ mime_type: file.type || "application/octet-stream", data, name });
    });
    reader.addEventListener("error", () => reject(new Error(`The file ${name} could not be read.`)));
    reader.readAsDataURL(file);
  });
}

/** Returns what is shown instead of the field if the token may not begin turns. */
export function readOnlyNote() {
  return h("p", { class: "callout read-only" }, `The token “${signIn.token?.name}” may read this session, but it may not write prompts. That needs the right `, h("code", null, "talk"), ".");
}
