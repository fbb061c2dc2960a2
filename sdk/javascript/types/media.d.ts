// The media of the conversation. To read media, the manifest must request them: `[asks] media = true`.

import type { Media } from "./index.js";

export interface Medium {
  describe(): Media;
  /** Reads at most 1 MiB from an offset. */
  read(offset: number, length: number): Uint8Array;
  /** Reads all bytes, if there are not more than `atMost`. */
  readAll(atMost: number): Uint8Array;
}

/** Opens a media item of this session by its digest. */
export function open(digest: string): Medium;
/** Stores a new media item of at most 32 MiB. Return it from a tool with `Done.stored(item.digest)`. */
export function create(bytes: Uint8Array, mimeType: string, name?: string): Media;
