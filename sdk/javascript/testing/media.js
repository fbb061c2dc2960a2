// Answers the SDK's module `media` in tests, from the state of the current `TestHost`.

import { createHash } from "node:crypto";
import { state } from "./host.js";

export function open(digest) {
  const item = state().media.get(digest);
  if (item === undefined) throw { tag: "not-found" };
  return {
    describe: () => item.description,
    read: (offset, length) => item.bytes.subarray(offset, offset + length),
  };
}

export class NewMedium {
  #chunks = [];
  #mimeType;
  #name;

  constructor(mimeType, name) {
    this.#mimeType = mimeType;
    this.#name = name;
  }

  write(chunk) {
    this.#chunks.push(chunk);
  }

  finish() {
    return store(Buffer.concat(this.#chunks), this.#mimeType, this.#name);
  }
}

/** Stores a media item in the current state, and returns its description. */
export function store(bytes, mimeType, name, target = state()) {
  const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  const description = { digest, mimeType, size: bytes.length, dimensions: null, name: name ?? null };
  target.media.set(digest, { bytes: new Uint8Array(bytes), description });
  return description;
}
