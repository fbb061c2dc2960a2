// An output validator: it accepts, repairs or rejects the answer that would end a turn. A validator has no permissions.

import { accept, acceptText, reject } from "agent-host-sdk";

// Maximum number of words in an answer.
const MAX_WORDS = 8;

/** @type {import("agent-host-sdk").OutputValidator} */
export const outputValidator = (request) => {
  const text = request.text.trim();
  const words = text.split(/\s+/).length;
  if (words > MAX_WORDS) {
    // The model reads this message, so the message says what is wrong, and what would be right.
    return reject(`The answer has ${words} words. Shorten it to at most ${MAX_WORDS} words.`);
  }
  // A validator can also change an answer that it accepts.
  return text === request.text ? accept() : acceptText(text);
};
