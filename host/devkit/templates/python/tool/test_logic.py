import unittest

from logic import count


class Count(unittest.TestCase):
    def test_counts_words_in_any_case(self):
        self.assertEqual(count("One two, and ONE more.", "one"), 2)

    def test_rejects_an_argument_that_is_not_one_word(self):
        with self.assertRaises(ValueError):
            count("", "two words")


if __name__ == "__main__":
    unittest.main()
