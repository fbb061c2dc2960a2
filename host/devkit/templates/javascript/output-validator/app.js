// An output validator: it says whether an answer may end the turn, and if not, why.

// What stands in texts that are not finished.
const UNFINISHED = ["TODO", "FIXME", "lorem ipsum"];

export const outputValidator = {
  validate(request) {
    const place = UNFINISHED.find((place) => request.text.includes(place));
    if (place === undefined) {
      return { tag: "accept" };
    }
    // The model reads this, so it says what would be right.
    return { tag: "reject", val: [{ pointer: "", message: `The answer says \`${place}\`. Write what belongs there.` }] };
  },
};
