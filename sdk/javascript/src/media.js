// The media of the conversation. To read media, the manifest must request them: `[asks] media = true`. Writing new media
// needs no grant.

import * as host from "#host/media";
import { ToolError } from "./errors.js";

/** The maximum number of bytes that one call of the host reads or writes. */
const CHUNK = 1024 * 1024;

/** Opens a media item of this session by its digest. */
export function open(digest) {
  const medium = attempt(() => host.open(digest));
  return {
    /** Returns the digest, MIME type, size, and where known the dimensions and the name. */
    describe: () => attempt(() => medium.describe()),
    /** Reads at most 1 MiB from an offset. */
    read: (offset, length) => attempt(() => Uint8Array.from(medium.read(offset, Math.min(length, CHUNK)))),
    /** Reads all bytes, if there are not more than `atMost`. */
    readAll: (atMost) => readAll(medium, atMost),
  };
}

/** Stores a new media item and returns its description. Return it from a tool with `Done.stored(item.digest)`. */
export function create(bytes, mimeType, name) {
  return attempt(() => {
    const medium = new host.NewMedium(mimeType, name);
    for (let start = 0; start < bytes.length; start += CHUNK) medium.write(bytes.subarray(start, start + CHUNK));
    return medium.finish();
  });
}

function readAll(medium, atMost) {
  return attempt(() => {
    const { size } = medium.describe();
    if (size > atMost) throw ToolError.failed(`the media item has ${size} bytes; at most ${atMost} can be read`);
    const bytes = new Uint8Array(size);
    for (let offset = 0; offset < size; ) {
      const chunk = medium.read(offset, CHUNK);
      if (chunk.length === 0) throw ToolError.failed(`the media item ends after ${offset} of ${size} bytes`);
      bytes.set(chunk, offset);
      offset += chunk.length;
    }
    return bytes;
  });
}

/** Calls the host, and converts its errors. */
function attempt(call) {
  try {
    return call();
  } catch (thrown) {
    const error = thrown?.payload ?? thrown;
    switch (error?.tag) {
      case "not-found":
        throw ToolError.notFound("this session has no media item with this digest");
      case "out-of-range":
        throw ToolError.failed("the range begins behind the end of the media item");
      case "failed":
      case "too-large":
        throw ToolError.failed(error.val);
      default:
        throw thrown;
    }
  }
}
