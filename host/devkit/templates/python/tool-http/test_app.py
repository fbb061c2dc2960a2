import unittest

import app
from agent_host_sdk import ToolError
from agent_host_sdk.testing import Host, call

URL = "https://api.example.com/v1/orders/7"


def order(host: Host) -> app.Order:
    """Calls the tool for the order 7 with a test host, which answers the request to the API."""
    return host.run(call, "my-plugin.order", {"number": 7}).value


class OrderTest(unittest.TestCase):
    def test_returns_the_fields_of_the_order(self):
        host = Host().response(URL, {"state": "packed", "items": 3, "warehouse": "north"})
        self.assertEqual(order(host), app.Order(state="packed", items=3))
        self.assertEqual(host.requests[0].method, "GET")

    def test_explains_errors_of_the_api(self):
        for status, kind in [(404, "not-found"), (403, "denied"), (503, "unavailable")]:
            with self.assertRaises(ToolError) as raised:
                order(Host().response(URL, "", status))
            self.assertEqual(raised.exception.kind, kind)


if __name__ == "__main__":
    unittest.main()
