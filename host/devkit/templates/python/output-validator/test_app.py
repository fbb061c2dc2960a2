import unittest

from agent_host_sdk import ValidationRequest, Verdict
from app import validate


class Validate(unittest.TestCase):
    def test_rejects_unfinished_answers(self):
        self.assertEqual(validate(ValidationRequest("The harbour opens at 6.")), Verdict.accept())
        self.assertEqual(len(validate(ValidationRequest("The harbour opens at TODO.")).problems), 1)


if __name__ == "__main__":
    unittest.main()
