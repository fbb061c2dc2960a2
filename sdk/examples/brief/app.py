"""An output validator: it accepts, repairs or rejects the answer that would end a turn. A validator has no permissions."""

from agent_host_sdk import ValidationRequest, Verdict, output_validator

# Maximum number of words in an answer.
MAX_WORDS = 8


@output_validator
def validate(request: ValidationRequest) -> Verdict:
    text = request.text.strip()
    words = len(text.split())
    if words > MAX_WORDS:
        # The model reads this message, so the message says what is wrong, and what would be right.
        return Verdict.reject("", f"The answer has {words} words. Shorten it to at most {MAX_WORDS} words.")
    # A validator can also change an answer that it accepts.
    return Verdict.accept() if text == request.text else Verdict.accept_text(text)
