import unittest

from logic import sections


class Sections(unittest.TestCase):
    def test_names_the_user_if_the_user_is_known(self):
        self.assertEqual([name for name, _ in sections(None)], ["answering"])
        self.assertEqual([name for name, _ in sections("ada")], ["answering", "reader"])


if __name__ == "__main__":
    unittest.main()
