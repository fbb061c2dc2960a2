// A media policy: what the provider gets to see of the conversation's pictures and files.

const decide = ({ seenCount, media }) =>
  seenCount === 0
    ? { tag: "keep" }
    : { tag: "mask", val: `[${media.name ?? "a file"}, ${media.mimeType}: seen before]` };

export const mediaPolicy = {
  // One decision for each item, in the same order. What is stored never changes.
  decide: (request) => request.items.map(decide),
};
