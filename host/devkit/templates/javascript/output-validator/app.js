// An output validator: it decides whether an answer may end the turn. If the answer may not end the turn, the
// validator returns the reason.

// Words that mark unfinished text.
const UNFINISHED = ["TODO", "FIXME", "lorem ipsum"];

export const outputValidator = {
  validate(request) {
    const mark = UNFINISHED.find((mark) => request.text.includes(mark));
    if (mark === undefined) {
      return { tag: "accept" };
    }
    // The model reads this message, so the message explains how to fix the answer.
    return { tag: "reject", val: [{ pointer: "", message: `The answer says \`${mark}\`. Write what belongs there.` }] };
  },
};
