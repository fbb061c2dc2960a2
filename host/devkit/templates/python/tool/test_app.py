import unittest

import app
from agent_host_sdk import ToolError
from agent_host_sdk.testing import call


class Count(unittest.TestCase):
    def test_counts_words_in_any_case(self):
        outcome = call("my-plugin.count", {"text": "One two, and ONE more.", "word": "one"})
        self.assertEqual(outcome.value, app.Counted(times=2))

    def test_rejects_an_argument_that_is_not_one_word(self):
        with self.assertRaises(ToolError) as raised:
            call("my-plugin.count", {"text": "", "word": "two words"})
        self.assertEqual(raised.exception, ToolError.invalid("/word", "must be one word of letters and digits"))


if __name__ == "__main__":
    unittest.main()
