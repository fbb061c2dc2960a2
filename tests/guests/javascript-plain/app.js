// A component in JavaScript with its own world. It exports plain functions with a record, a variant and a result.

const words = (text) => text.split(/\s+/u).filter((word) => word !== "");

export const text = {
  count(given) {
    const all = words(given);
    const longer = (longest, word) => (longest !== undefined && longest.length >= word.length ? longest : word);
    return { words: all.length, longest: all.reduce(longer, undefined) };
  },

  pick(given, which) {
    const all = words(given);
    if (which.tag === "whole") return all;
    if (which.val > all.length) throw `there are only ${all.length} words`;
    return all.slice(0, which.val);
  },
};

export function shout(given) {
  return given.toUpperCase() + "!";
}
