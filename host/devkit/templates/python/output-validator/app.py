"""An output validator: it decides whether an answer may end the turn. If the answer may not end the turn, the validator returns
the reason."""

from agent_host_sdk import ValidationRequest, Verdict, output_validator

# Words that mark unfinished text.
UNFINISHED = ["TODO", "FIXME", "lorem ipsum"]


@output_validator
def validate(request: ValidationRequest) -> Verdict:
    for mark in UNFINISHED:
        if mark in request.text:
            # The model reads this message, so the message explains how to fix the answer.
            return Verdict.reject("", f"The answer says `{mark}`. Write what belongs there.")
    return Verdict.accept()
