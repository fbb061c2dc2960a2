// How many messages of a session stay in its page. Earlier ones are read again when somebody asks for them.

/** A page with more messages, or with more characters in them, is too long. */
const LIMITS = { messages: 160, characters: 400_000 };

/** What a page that was too long may keep. The difference to the limits makes removals rare. */
const AFTER_REMOVAL = { messages: 100, characters: 250_000 };

/** The latest messages stay, however long they are. */
const ALWAYS_KEPT = 10;

/** Returns how many of the latest messages stay in the page. `lengths` has the characters of each message, the latest first. */
export function numberOfKept(lengths) {
  if (numberWithin(lengths, LIMITS) === lengths.length) return lengths.length;
  return Math.min(Math.max(numberWithin(lengths, AFTER_REMOVAL), ALWAYS_KEPT), lengths.length);
}

/** Returns how many entries from the beginning of the list are within both limits. */
function numberWithin(lengths, limits) {
  let characters = 0;
  for (const [index, length] of lengths.entries()) {
    characters += length;
    if (index >= limits.messages || characters > limits.characters) return index;
  }
  return lengths.length;
}
