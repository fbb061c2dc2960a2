// An output validator: it decides whether an answer may end the turn, and gives the reason if not.

// Marks of unfinished text.
const UNFINISHED = ["TODO", "FIXME", "lorem ipsum"];

export const outputValidator = {
  validate(request) {
    const place = UNFINISHED.find((place) => request.text.includes(place));
    if (place === undefined) {
      return { tag: "accept" };
    }
    // The model reads this message, so it says how to fix the answer.
    return { tag: "reject", val: [{ pointer: "", message: `The answer says \`${place}\`. Write what belongs there.` }] };
  },
};
