import unittest

from logic import replacement


class Replacement(unittest.TestCase):
    def test_replaces_seen_media_by_a_line_of_text(self):
        self.assertIsNone(replacement("chart.png", "image/png", 0))
        self.assertEqual(replacement("chart.png", "image/png", 1), "[chart.png, image/png: seen before]")


if __name__ == "__main__":
    unittest.main()
