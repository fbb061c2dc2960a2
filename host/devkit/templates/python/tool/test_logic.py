import unittest

from logic import count


class Count(unittest.TestCase):
    def test_words_are_counted_in_any_case(self):
        self.assertEqual(count("One two, and ONE more.", "one"), 2)

    def test_what_is_no_word_is_refused(self):
        with self.assertRaises(ValueError):
            count("", "two words")


if __name__ == "__main__":
    unittest.main()
