import unittest

from agent_host_sdk import Decision, Item, Media
from app import decide

MEDIA = Media(digest=f"sha256:{'0' * 64}", mime_type="image/png", size=1000, name="chart.png")


class Decide(unittest.TestCase):
    def test_replaces_seen_media_by_a_line_of_text(self):
        self.assertEqual(decide(Item(MEDIA)), Decision.keep())
        self.assertEqual(decide(Item(MEDIA, seen_count=1)), Decision.mask("[chart.png, image/png: seen before]"))


if __name__ == "__main__":
    unittest.main()
