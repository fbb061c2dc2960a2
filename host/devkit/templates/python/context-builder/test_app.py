import unittest

from agent_host_sdk import ContextRequest, Scope
from app import build


class Build(unittest.TestCase):
    def test_names_the_user_if_the_user_is_known(self):
        names = lambda user: [section.name for section in build(ContextRequest(scope=Scope(user=user))).sections]
        self.assertEqual(names(None), ["answering"])
        self.assertEqual(names("ada"), ["answering", "reader"])


if __name__ == "__main__":
    unittest.main()
