// A media policy: it decides which images and files of the conversation are sent to the provider.

const decide = ({ seenCount, media }) =>
  seenCount === 0
    ? { tag: "keep" }
    : { tag: "mask", val: `[${media.name ?? "a file"}, ${media.mimeType}: seen before]` };

export const mediaPolicy = {
  // Returns one decision for each item, in the same order. A decision does not change the stored media.
  decide: (request) => request.items.map(decide),
};
