// The reply that is being written. The server renders it block by block: blocks that are complete stay as they are, and only the
// last block is rendered again.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { sleep } from "../core/events.js";
import { renderedBlocks } from "../core/rendered.js";

/** Least time between two requests, in milliseconds. A slow server or a long block gets as much time as the last request took. */
const PAUSE = 70;

export class LiveText {
  #text = "";
  /** Number of complete blocks, and the position in the text at which the next block begins. */
  #complete = 0;
  #from = 0;
  /** The level of the last heading of the complete blocks. */
  #heading = 2;
  #isRunning = false;
  #version = 0;

  constructor(signal, onChange) {
    this.element = h("div", { class: "prose live" });
    this.signal = signal;
    this.onChange = onChange;
  }

  get text() {
    return this.#text;
  }

  /** Returns a copy of what is shown. */
  copy() {
    const copy = this.element.cloneNode(true);
    copy.classList.remove("live");
    return copy;
  }

  append(piece) {
    this.#text += piece;
    this.#run();
  }

  /** Replaces the whole text, for example after a connection was interrupted. */
  set(text) {
    this.#text = text;
    this.#complete = 0;
    this.#from = 0;
    this.#heading = 2;
    this.#version += 1;
    this.element.replaceChildren();
    if (text) this.#run();
  }

  async #run() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    let shown = null;
    while (!this.signal.aborted && shown !== `${this.#version}:${this.#text.length}`) {
      shown = `${this.#version}:${this.#text.length}`;
      const [version, from] = [this.#version, this.#from];
      const tail = this.#text.slice(from);
      const began = performance.now();
      if (tail) {
        try {
          const { blocks } = await api.post("api/render/markdown", { text: tail }, { signal: this.signal });
          if (version === this.#version) this.#show(blocks, tail, from);
        } catch {
          // The message is shown when it is complete.
        }
      }
      await sleep(Math.max(PAUSE, performance.now() - began), this.signal);
    }
    this.#isRunning = false;
  }

  #show(blocks, tail, from) {
    while (this.element.children.length > this.#complete) this.element.lastChild.remove();
    const headings = { last: this.#heading };
    this.element.append(...renderedBlocks(blocks.slice(0, -1), headings));
    if (blocks.length > 1) {
      this.#heading = headings.last;
      const lines = tail.split("\n");
      const last = blocks.at(-1).line;
      this.#complete += blocks.length - 1;
      this.#from = from + lines.slice(0, last).reduce((length, line) => length + line.length + 1, 0);
    }
    this.element.append(...renderedBlocks(blocks.slice(-1), headings));
    this.onChange();
  }
}
