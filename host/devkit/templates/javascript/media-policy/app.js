// A media policy: it decides which images and files of the conversation are sent to the provider.

const decide = ({ seenCount, media }) =>
  seenCount === 0
    ? { tag: "keep" }
    : { tag: "mask", val: `[${media.name ?? "a file"}, ${media.mimeType}: seen before]` };

export const mediaPolicy = {
  // Returns one decision per item, in the same order. The stored media never change.
  decide: (request) => request.items.map(decide),
};
