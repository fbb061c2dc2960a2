// A media policy: it decides which images and files of the conversation are sent to the provider. The function is called
// for each image and file. A decision does not change the stored media.

import { keep, mask } from "agent-host-sdk";

/** @type {import("agent-host-sdk").MediaPolicy} */
export const mediaPolicy = ({ seenCount, media }) =>
  seenCount === 0 ? keep() : mask(`[${media.name ?? "a file"}, ${media.mimeType}: seen before]`);
