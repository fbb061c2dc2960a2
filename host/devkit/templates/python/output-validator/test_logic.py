import unittest

from logic import problem


class Problem(unittest.TestCase):
    def test_rejects_unfinished_answers(self):
        self.assertIsNone(problem("The harbour opens at 6."))
        self.assertIn("TODO", problem("The harbour opens at TODO."))


if __name__ == "__main__":
    unittest.main()
