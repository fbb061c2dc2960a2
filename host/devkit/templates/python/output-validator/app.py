"""An output validator: it decides whether an answer may end the turn. The classes implement the world in `wit/`."""

from logic import problem
from wit_world import exports
from wit_world.exports import output_validator as validator


class OutputValidator(exports.OutputValidator):
    def validate(self, request: validator.Request) -> validator.Verdict:
        message = problem(request.text)
        if message is None:
            return validator.Verdict_Accept()
        return validator.Verdict_Reject([validator.Problem(pointer="", message=message)])
