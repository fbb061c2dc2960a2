// An output validator: it decides whether an answer may end the turn. If the answer may not end the turn, the
// validator returns the reason.

import { accept, reject } from "agent-host-sdk";

// Words that mark unfinished text.
const UNFINISHED = ["TODO", "FIXME", "lorem ipsum"];

/** @type {import("agent-host-sdk").OutputValidator} */
export const outputValidator = ({ text }) => {
  const mark = UNFINISHED.find((mark) => text.includes(mark));
  // The model reads this message, so the message explains how to fix the answer.
  return mark === undefined ? accept() : reject(`The answer says \`${mark}\`. Write what belongs there.`);
};
