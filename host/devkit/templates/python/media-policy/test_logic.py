import unittest

from logic import line


class Line(unittest.TestCase):
    def test_replaces_seen_media_by_a_line(self):
        self.assertIsNone(line("chart.png", "image/png", 0))
        self.assertEqual(line("chart.png", "image/png", 1), "[chart.png, image/png: seen before]")


if __name__ == "__main__":
    unittest.main()
